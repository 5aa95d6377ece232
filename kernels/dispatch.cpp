#include "kernels/dispatch.hpp"

#include <string>

#include <gantry/core/error.hpp>

#include "kernels/input.hpp"

namespace gantry::kernels {

void detail::throw_undefined(const char* family, int op, DType dtype) {
  throw DTypeError(std::string(family) + ": expected a dtype that op " + std::to_string(op) +
                   " supports, but got " + std::string(name(dtype)));
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

}  // namespace gantry::kernels
