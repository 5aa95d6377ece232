#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include <gantry/tensor/tensor.hpp>

namespace gantry::detail {

// What an operation does with a tensor argument: reads it, writes it where the inputs are, or
// writes it and runs on its device.
enum class Role { input, output, in_place };

// A tensor argument of an operation and its name in errors.
struct NamedTensor {
  std::string_view name;
  const Tensor& tensor;
  Role role = Role::input;
};

// Permission for one 0-dim CPU tensor among operands on a GPU.
enum class CpuScalars { refused, allowed };

// Note [Same device]
// The first operand that is not on the CPU decides the device. Every other operand must be on it.
// With CpuScalars::allowed, one input may be a 0-dim CPU tensor. A 0-dim GPU tensor among CPU
// tensors is an error. The check precedes every allocation and launch. Within PeerOperands an input
// may also be on a peer device. Outputs are then where the first input is.

// The device of all arguments. Throws InvalidArgument for an undefined tensor and
// DeviceMismatchError "Expected all tensors to be on the same device, but found at least two
// devices, cuda:0 and cuda:1! (when checking argument other in add)".
Device common_device(std::string_view op, std::initializer_list<NamedTensor> arguments,
                     CpuScalars cpu_scalars = CpuScalars::refused);
Device common_device(std::string_view op, std::span<const NamedTensor> arguments,
                     CpuScalars cpu_scalars);
// The device of a list of tensors, which errors name "tensors[i]".
Device common_device(std::string_view op, std::span<const Tensor> tensors);

}  // namespace gantry::detail
