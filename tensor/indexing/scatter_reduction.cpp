#include "tensor/indexing/scatter_reduction.hpp"

#include <fmt/format.h>

#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tensor/check.hpp"

namespace gantry::detail {

namespace {

using kernels::ScatterMode;

ScatterMode mode_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::mean:
      return ScatterMode::add;
    case Reduction::prod:
      return ScatterMode::multiply;
    case Reduction::amax:
      return ScatterMode::largest;
    case Reduction::amin:
      return ScatterMode::smallest;
  }
  __builtin_unreachable();
}

// The smallest or largest element of `dtype`.
Scalar extreme(DType dtype, bool smallest) {
  if (is_floating_point(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return smallest ? -infinity : infinity;
  }
  return dispatch(dtype, [&]<class T>(TypeTag<T>) -> Scalar {
    if constexpr (std::is_integral_v<T>) {
      return smallest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
    } else {
      return 0;
    }
  });
}

// The number that changes no result of the reduction.
Scalar identity(Reduction reduction, DType dtype) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::mean:
      return 0;
    case Reduction::prod:
      return 1;
    case Reduction::amax:
      return extreme(dtype, true);
    case Reduction::amin:
      return extreme(dtype, false);
  }
  __builtin_unreachable();
}

}  // namespace

Reduction reduction_named(std::string_view op, std::string_view name, const Tensor& self) {
  struct Entry {
    std::string_view name;
    Reduction reduction;
  };
  static constexpr Entry kEntries[] = {{"sum", Reduction::sum},
                                       {"prod", Reduction::prod},
                                       {"mean", Reduction::mean},
                                       {"amax", Reduction::amax},
                                       {"amin", Reduction::amin}};
  for (const Entry& entry : kEntries) {
    if (entry.name != name) continue;
    check_computes(op, self);
    if (entry.reduction == Reduction::mean && self.dtype() == DType::bool_) {
      throw DTypeError(fmt::format("{}: expected a dtype of numbers for a mean, but got Bool", op),
                       self.device().str());
    }
    return entry.reduction;
  }
  throw InvalidArgument(
      fmt::format("{}: reduce argument must be either sum, prod, mean, amax or amin, but got {}",
                  op, name),
      self.device().str());
}

namespace {

// The dtype in which a mean adds. A sum in 16 bits stops growing at 2048 (bf16: 256), and one of
// narrow integers wraps.
DType sum_dtype(DType dtype) {
  if (!is_floating_point(dtype)) return DType::i64;
  return element_size(dtype) < sizeof(float) ? DType::f32 : dtype;
}

// Writes the means into `sum`, which has the elements of self and the dtype sum_dtype().
void average(const Tensor& sum, bool include_self, const Scatter& scatter, const Tensor& source) {
  const TensorOptions counted{.dtype = DType::i64, .device = sum.device()};
  const Tensor count = full(sum.sizes(), include_self ? 1 : 0, counted);
  scatter(count, full({}, 1, counted).expand(source.sizes()), ScatterMode::add);
  count.clamp_(1);
  if (!include_self) {
    scatter(sum, full({}, 0, sum.options()).expand(source.sizes()), ScatterMode::replace);
  }
  scatter(sum, source, ScatterMode::add);
  sum.div_(count, is_floating_point(sum.dtype()) ? RoundingMode::none : RoundingMode::floor);
}

}  // namespace

void reduce_scattered(const Tensor& self, Reduction reduction, bool include_self,
                      const Scatter& scatter, const Tensor& source) {
  if (reduction == Reduction::mean) {
    const DType dtype = sum_dtype(self.dtype());
    const Tensor sum = self.to(dtype);
    average(sum, include_self, scatter, source.to(dtype));
    if (dtype != self.dtype()) self.copy_(sum);
    return;
  }
  if (!include_self) scatter(self, identity(reduction, self.dtype()), ScatterMode::replace);
  scatter(self, source, mode_of(reduction));
}

}  // namespace gantry::detail
