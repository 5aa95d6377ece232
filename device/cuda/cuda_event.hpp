#pragma once

#include <gantry/extend/driver.hpp>

namespace gantry::cuda {

/// Remembers which device `event` was made or opened for, and whether other processes may have it.
void own_event(NativeEvent event, int device, bool interprocess);
/// The device that own_event was told, -1 for an event that this library did not make.
[[nodiscard]] int event_owner(NativeEvent event);
/// event_owner of an interprocess event, -1 for every other.
[[nodiscard]] int interprocess_owner(NativeEvent event);
/// Lets `stream` wait for an interprocess event of `owner`, another device.
void wait_for_other_device(NativeStream stream, NativeEvent event, int owner);

}  // namespace gantry::cuda
