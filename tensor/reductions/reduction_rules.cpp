#include "tensor/reductions/reduction_rules.hpp"

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/promote.hpp>

#include "tensor/check.hpp"
#include "tensor/destination.hpp"

namespace gantry::detail {

std::optional<DType> dtype_for(std::string_view op, const Tensor& out, const Tensor& self,
                               std::optional<DType> given) {
  check_defined(op, "self", self);
  check_defined(op, "out", out);
  if (given || !can_cast(summed(self.dtype()), out.dtype())) return given;
  return out.dtype();
}

Tensor& copy_result(std::string_view op, Tensor& out, const Tensor& result) {
  check_defined(op, "out", out);
  check_output(op, out, result.sizes(), result.dtype(), result);
  return out.copy_(result);
}

[[noreturn]] void refuse_empty(std::string_view op, Device device) {
  throw ShapeError(
      fmt::format("{}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
                  "the reduction dim with the 'dim' argument.",
                  op),
      device.str());
}

void check_not_empty(std::string_view op, const Tensor& self, const Axes& axes, const Dims& dims) {
  if (self.numel() != 0) return;
  if (axes.all()) refuse_empty(op, self.device());
  for (const std::int64_t d : dims) {
    if (self.size(static_cast<int>(d)) == 0) {
      throw ShapeError(fmt::format("{}(): Expected reduction dim {} to have non-zero size.", op, d),
                       self.device().str());
    }
  }
}

}  // namespace gantry::detail
