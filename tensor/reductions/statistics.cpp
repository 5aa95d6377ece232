#include <gantry/tensor/statistics.hpp>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>

#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"

namespace gantry {

namespace {

// `self` with 0 in place of NaN.
Tensor without_nan(const Tensor& self) {
  return is_floating_point(self.dtype()) ? where(self.isnan(), 0, self) : self;
}

}  // namespace

MinMax aminmax(const Tensor& self, std::optional<Dim> dim, bool keepdim) {
  const kernels::OpScope scope("aminmax");
  const Axes axes = dim ? Axes(*dim) : Axes();
  return {amin(self, axes, keepdim), amax(self, axes, keepdim)};
}

Tensor nansum(const Tensor& self, const Axes& dims, bool keepdim, std::optional<DType> dtype) {
  const kernels::OpScope scope("nansum");
  detail::check_defined("nansum", "self", self);
  static_cast<void>(detail::wrap_dims("nansum", dims, self));
  return without_nan(self).sum(dims, keepdim, dtype);
}

Tensor nanmean(const Tensor& self, const Axes& dims, bool keepdim, std::optional<DType> dtype) {
  const kernels::OpScope scope("nanmean");
  detail::check_defined("nanmean", "self", self);
  const DType result = dtype.value_or(self.dtype());
  detail::check_computes("nanmean", self);
  detail::check_computes("nanmean", result);
  if (!is_floating_point(self.dtype()) || !is_floating_point(result)) {
    const DType refused = is_floating_point(self.dtype()) ? result : self.dtype();
    throw DTypeError(fmt::format("nanmean: expected a tensor and a dtype of floating types, but "
                                 "got {}",
                                 torch_name(refused)),
                     self.device().str());
  }
  static_cast<void>(detail::wrap_dims("nanmean", dims, self));
  // 16-bit types would round the sum and the count.
  const DType wide = result == DType::f64 || self.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor total = without_nan(self).sum(dims, keepdim, wide);
  const Tensor count = logical_not(self.isnan()).sum(dims, keepdim);
  return div(total, count.to(wide)).to(result);
}

Tensor dist(const Tensor& self, const Tensor& other, double p) {
  const kernels::OpScope scope("dist");
  return sub(self, other).norm(p);
}

}  // namespace gantry
