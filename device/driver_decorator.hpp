// How a layer to the right puts a driver of its own in front of the platform's.
#pragma once

#include <gantry/extend/driver.hpp>

namespace gantry {

/// Called once with the new driver of the platform. Returns it, or a driver in front of it; both
/// live as long as the process. Must not call driver().
using DriverDecorator = Driver& (*)(Driver& native);

/// Takes effect when the first device is used; to be called when the library is loaded.
void set_driver_decorator(DriverDecorator decorator) noexcept;

}  // namespace gantry
