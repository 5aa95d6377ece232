// The check that begins every call which takes a device and needs a GPU.
#pragma once

#include <string_view>

#include <gantry/device/device.hpp>

namespace gantry {

/// Index of `device`, with the current device in place of -1. `op` names the caller in the error.
/// Throws: InvalidArgument for the CPU or a device that does not exist; NotSupported without
/// platform.
[[nodiscard]] int checked_device_index(Device device, std::string_view op);

}  // namespace gantry
