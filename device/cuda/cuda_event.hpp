#pragma once

#include <gantry/device/driver.hpp>

namespace gantry::cuda {

/// Remembers which device `event` was made or opened for.
void own_event(NativeEvent event, int device);

}  // namespace gantry::cuda
