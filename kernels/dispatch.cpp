#include "kernels/dispatch.hpp"

#include <fmt/format.h>

#include <string>

#include <gantry/core/error.hpp>

#include "kernels/input.hpp"

namespace gantry::kernels {

void detail::throw_undefined(const char* family, int op, DType dtype) {
  throw DTypeError(std::string(family) + ": expected a dtype that op " + std::to_string(op) +
                   " supports, but got " + std::string(name(dtype)));
}

void throw_does_not_compute(std::string_view op, DType dtype) {
  throw DTypeError(fmt::format("{} does not compute with {}; cast it with to()", op, name(dtype)));
}

void check_sim_operand(int device, const TensorRef& operand) {
  if (operand.data == nullptr || operand.numel() == 0) return;
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
  for (int dim = 0; dim < operand.ndim; ++dim) {
    const std::int64_t reach = (operand.sizes[dim] - 1) * operand.strides[dim];
    (reach < 0 ? lowest : highest) += reach;
  }
  const auto element_bytes = static_cast<std::int64_t>(element_size(operand.dtype));
  const char* first = static_cast<const char*>(operand.data) + lowest * element_bytes;
  const auto bytes = static_cast<std::size_t>((highest - lowest + 1) * element_bytes);
  ::gantry::sim::check_device_access(device, first, bytes);
}

sanitizer::Use array_use(const void* data, std::int64_t count, DType dtype, bool is_write) {
  return {{data, dtype, {count}, {1}}, is_write};
}

CheckedSubmission::CheckedSubmission(const KernelName& kernel, const Target& target,
                                     std::span<const TensorRef* const> operands) {
  std::vector<sanitizer::Use> uses;
  uses.reserve(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == nullptr || operands[i]->data == nullptr) continue;
    const TensorRef& ref = *operands[i];
    const auto ndim = static_cast<std::size_t>(ref.ndim);
    uses.push_back({{ref.data, ref.dtype, std::span(ref.sizes, ndim), std::span(ref.strides, ndim)},
                    i < static_cast<std::size_t>(kernel.outputs)});
  }
  enter(kernel, target, uses);
}

CheckedSubmission::CheckedSubmission(const KernelName& kernel, const Target& target,
                                     std::span<const sanitizer::Use> operands) {
  enter(kernel, target, operands);
}

void CheckedSubmission::enter(const KernelName& kernel, const Target& target,
                              std::span<const sanitizer::Use> operands) {
  if (target.is_cpu()) {
    sanitizer::uses_on_host(kernel.name, operands);
  } else {
    submission_.emplace(kernel.name, target.stream(), operands);
  }
}

}  // namespace gantry::kernels
