#pragma once

#include <gantry/device/driver.hpp>

namespace gantry::cuda {

/// Remembers which device `event` was made or opened for.
void own_event(NativeEvent event, int device);
/// The device that own_event was told, -1 for an event that this library did not make.
[[nodiscard]] int event_owner(NativeEvent event);

}  // namespace gantry::cuda
