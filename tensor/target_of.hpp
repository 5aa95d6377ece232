#pragma once

#include <gantry/tensor/tensor.hpp>

#include "kernels/target.hpp"

namespace gantry::detail {

// The kernel target for tensors of `device`: the calling thread for the CPU, else the device's
// current stream.
[[nodiscard]] inline kernels::Target target_of(Device device) {
  return device.is_cpu() ? kernels::Target::cpu() : kernels::Target::on(Stream::current(device));
}
[[nodiscard]] inline kernels::Target target_of(const Tensor& tensor) {
  return target_of(tensor.device());
}

}  // namespace gantry::detail
