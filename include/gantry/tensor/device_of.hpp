#pragma once

#include <gantry/device/guard.hpp>
#include <gantry/tensor/tensor.hpp>

namespace gantry {

/// A guard that makes the device of `tensor` current until the end of its scope:
/// `const auto guard = device_of(t);`. A CPU tensor leaves the current device alone.
/// Throws: InvalidArgument for an undefined tensor.
/// @since 0.3
[[nodiscard]] inline DeviceGuard device_of(const Tensor& tensor) {
  return DeviceGuard(tensor.device());
}

}  // namespace gantry
