// How a layer to the right learns that a whole device was waited for.
#pragma once

namespace gantry {

/// The implementation of synchronize(Device): calls Driver::synchronize_device and whatever else is
/// to happen before and after it. The index was checked.
using DeviceSynchronizer = void (*)(int device);

/// Puts `function` in the place of the driver's bare call, from now on and for the whole process.
void set_device_synchronizer(DeviceSynchronizer function) noexcept;

}  // namespace gantry
