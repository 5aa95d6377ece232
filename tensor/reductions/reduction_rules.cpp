#include "tensor/reductions/reduction_rules.hpp"

#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/tensor/promote.hpp>

#include "tensor/check.hpp"
#include "tensor/destination.hpp"

namespace gantry::detail {

ReducedDims reduced_dims(std::string_view op, const Tensor& self, const Axes& axes) {
  ReducedDims result;
  result.dims = wrap_dims(op, axes, self);
  if (self.dim() == 0) return result;
  const Shape& sizes = self.sizes();
  for (int d = 0; d < sizes.size(); ++d) {
    const bool is_reduced =
        std::find(result.dims.begin(), result.dims.end(), d) != result.dims.end();
    result.kept.push_back(is_reduced ? 1 : sizes[d]);
    if (is_reduced) {
      result.length *= sizes[d];
    } else {
      result.removed.push_back(sizes[d]);
    }
  }
  return result;
}

TensorRef dense_ref(const Tensor& tensor, const Shape& sizes) {
  TensorRef ref;
  ref.data = tensor.data();
  ref.dtype = tensor.dtype();
  ref.ndim = sizes.size();
  std::int64_t stride = 1;
  for (int d = ref.ndim - 1; d >= 0; --d) {
    ref.sizes[d] = sizes[d];
    ref.strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return ref;
}

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
