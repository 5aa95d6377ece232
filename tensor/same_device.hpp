#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// A tensor argument of an operation, and what the operation calls it.
struct NamedTensor {
  std::string_view name;
  const Tensor& tensor;
  bool is_output = false;
};

// Whether one 0-dim CPU tensor may stand among operands on a GPU.
enum class CpuScalars { refused, allowed };

// Note [Same device]
// The first operand that is not on the CPU decides the device. Every other operand must live there;
// with CpuScalars::allowed one input may be a 0-dim CPU tensor. The rule has no mirror image: a
// 0-dim GPU tensor among CPU tensors is an error. Checked before any allocation or launch.

// The device of all arguments. Throws InvalidArgument for an undefined tensor and
// DeviceMismatchError "Expected all tensors to be on the same device, but found at least two
// devices, cuda:0 and cuda:1! (when checking argument other in add)".
Device common_device(std::string_view op, std::initializer_list<NamedTensor> arguments,
                     CpuScalars cpu_scalars = CpuScalars::refused);
Device common_device(std::string_view op, std::span<const NamedTensor> arguments,
                     CpuScalars cpu_scalars);
// The device of a list of tensors; they are called "tensors[i]".
Device common_device(std::string_view op, std::span<const Tensor> tensors);

}  // namespace gantry::detail
