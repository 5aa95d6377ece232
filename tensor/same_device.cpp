#include "tensor/same_device.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>

#include "tensor/check.hpp"
#include "tensor/peer_operands.hpp"

namespace gantry::detail {

namespace {

[[noreturn]] void throw_mismatch(std::string_view op, std::string_view argument, Device common,
                                 Device other) {
  throw DeviceMismatchError(
      fmt::format("Expected all tensors to be on the same device, but found at least two devices, "
                  "{} and {}! (when checking argument {} in {})",
                  common.str(), other.str(), argument, op),
      other.str());
}

// True if an operation runs on `common` within PeerOperands: there is its first argument that is
// neither an output nor on the CPU.
bool takes_peers(std::span<const NamedTensor> arguments, Device common) {
  for (const NamedTensor& argument : arguments) {
    if (argument.role == Role::output || argument.tensor.is_cpu()) continue;
    return argument.tensor.device() == common;
  }
  return false;
}

}  // namespace

Device common_device(std::string_view op, std::initializer_list<NamedTensor> arguments,
                     CpuScalars cpu_scalars) {
  return common_device(op, std::span(arguments.begin(), arguments.size()), cpu_scalars);
}

Device common_device(std::string_view op, std::span<const NamedTensor> arguments,
                     CpuScalars cpu_scalars) {
  Device common = Device::cpu();
  for (const NamedTensor& argument : arguments) {
    check_defined(op, argument.name, argument.tensor);
    if (common.is_cpu()) common = argument.tensor.device();
  }
  int cpu_scalar_count = 0;
  for (const NamedTensor& argument : arguments) {
    const Tensor& tensor = argument.tensor;
    if (tensor.device() == common) continue;
    const bool exempt = cpu_scalars == CpuScalars::allowed && argument.role == Role::input &&
                        tensor.is_cpu() && tensor.dim() == 0;
    if (!exempt) {
      const bool is_adopted = argument.role == Role::input && takes_peers(arguments, common) &&
                              adopt_peer_operand(common, tensor);
      if (is_adopted) continue;
      throw_mismatch(op, argument.name, common, tensor.device());
    }
    if (++cpu_scalar_count > 1) {
      throw DeviceMismatchError(
          fmt::format("{}: Trying to pass too many CPU scalars to non-CPU kernel!", op),
          common.str());
    }
  }
  return common;
}

Device common_device(std::string_view op, std::span<const Tensor> tensors) {
  Device common = Device::cpu();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check_defined(op, fmt::format("tensors[{}]", i), tensors[i]);
    if (common.is_cpu()) common = tensors[i].device();
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].device() != common && !adopt_peer_operand(common, tensors[i])) {
      throw_mismatch(op, fmt::format("tensors[{}]", i), common, tensors[i].device());
    }
  }
  return common;
}

}  // namespace gantry::detail
