// Writes of whole slices: the index tensor is 1-D and names slices along one dim.
#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>

#include "kernels/indexing/indexing.hpp"
#include "tensor/check.hpp"
#include "tensor/indexing/in_place_indexing.hpp"
#include "tensor/indexing/index_checks.hpp"
#include "tensor/indexing/scatter_reduction.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace detail {

namespace {

using kernels::IndexRule;
using kernels::ScatterMode;

void check_vector(const char* op, const Tensor& self, const Tensor& index) {
  check_index_dtype(op, index);
  if (index.dim() <= 1) return;
  throw ShapeError(
      fmt::format("{}(): Index is supposed to be a vector, but got dim: {} with shape {}", op,
                  index.dim(), index.sizes().str()),
      self.device().str());
}

// Checks the arguments of an operation that writes slices of `source`. Returns the non-negative
// dim.
int check_slices(const char* op, const Tensor& self, int dim, const Tensor& index,
                 const Tensor& source) {
  common_device(op, {{"self", self, detail::Role::in_place}, {"index", index}, {"source", source}});
  const int axis = wrap_dim(op, dim, self);
  check_vector(op, self, index);
  check_source_dtype(op, self, source);
  const Tensor out = at_least_1d(self);
  const Tensor in = at_least_1d(source);
  bool fits = in.dim() == out.dim();
  for (int d = 0; fits && d < in.dim(); ++d) fits = d == axis || in.size(d) == out.size(d);
  if (!fits) {
    throw ShapeError(
        fmt::format("{}(): source tensor shape must match self tensor shape, excluding the "
                    "specified dimension. Got self.shape = {} source.shape = {}",
                    op, self.sizes().str(), source.sizes().str()),
        self.device().str());
  }
  if (in.size(axis) != index.numel()) {
    throw ShapeError(
        fmt::format("{}(): Number of indices ({}) should be equal to source.size(dim): ({}), for "
                    "dim: {}",
                    op, index.numel(), in.size(axis), axis),
        self.device().str());
  }
  return axis;
}

// Checks the memory of an in-place operation.
void check_memory(const char* op, const Tensor& self, const Tensor& index, const Tensor& source) {
  check_writable(op, self);
  check_no_overlap(op, self, index);
  check_no_overlap(op, self, source);
}

void run_slices(const kernels::IndexUse& use, const Tensor& self, int axis, const Tensor& index,
                const Tensor& source, ScatterMode mode) {
  kernels::index_scatter(use, target_of(self), at_least_1d(self).ref(), axis,
                         at_least_1d(index).ref(), at_least_1d(source).ref(), mode);
}

void check_alpha(const Tensor& self, const Scalar& alpha) {
  check_computes("index_add", self);
  if (alpha.category() == DTypeCategory::floating && !is_floating_point(self.dtype())) {
    throw DTypeError(
        "index_add: For integral input tensors, argument alpha must not be a floating point "
        "number.",
        self.device().str());
  }
  check_fits("index_add", alpha, self.dtype());
}

void run_add(const Tensor& self, int axis, const Tensor& index, const Tensor& source,
             const Scalar& alpha) {
  // A sum of bools is an or, which a factor other than zero does not change.
  const Scalar factor = self.dtype() == DType::bool_ ? Scalar(alpha.to<bool>()) : alpha;
  const bool scales = factor.category() == DTypeCategory::floating ? factor.to<double>() != 1
                                                                   : factor.to<std::int64_t>() != 1;
  run_slices({"index_add"}, self, axis, index, scales ? mul(source, factor) : source,
             ScatterMode::add);
}

int check_fill(const Tensor& self, int dim, const Tensor& index, const Operand& value) {
  constexpr const char* kOp = "index_fill";
  check_defined(kOp, "value", value);
  common_device(kOp, {{"self", self, detail::Role::in_place}, {"index", index}});
  if (!value.is_tensor()) {
    check_fits(kOp, value.number(), self.dtype());
  } else if (value.tensor().dim() != 0) {
    throw ShapeError(
        fmt::format("index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                    "{} dimension(s).",
                    value.tensor().dim()),
        self.device().str());
  } else {
    common_device(kOp, {{"self", self, detail::Role::in_place}, {"value", value.tensor()}},
                  CpuScalars::allowed);
  }
  const int axis = wrap_dim(kOp, dim, self);
  check_vector(kOp, self, index);
  return axis;
}

void run_fill(const Tensor& self, int axis, const Tensor& index, const Operand& value) {
  Tensor number = empty({}, self.options());
  number.fill_(value);
  Shape sizes = at_least_1d(self).sizes();
  sizes[axis] = index.numel();
  run_slices({"index_fill", IndexRule::wrapping}, self, axis, index, number.expand(sizes),
             ScatterMode::replace);
}

Reduction index_reduction(std::string_view reduce, const Tensor& self) {
  if (reduce == "sum") {
    throw InvalidArgument(
        "index_reduce: reduce argument must be either prod, mean, amax or amin, but got sum",
        self.device().str());
  }
  return reduction_named("index_reduce", reduce, self);
}

void run_reduction(const Tensor& self, int axis, const Tensor& index, const Tensor& source,
                   Reduction reduction, bool include_self) {
  const auto scatter = [&](const Tensor& out, const Operand& from, ScatterMode mode) {
    const Tensor values =
        from.is_tensor() ? from.tensor() : self.new_full({}, from.number()).expand(source.sizes());
    run_slices({"index_reduce"}, out, axis, index, values, mode);
  };
  reduce_scattered(self, reduction, include_self, scatter, source);
}

}  // namespace

void index_add_(const Tensor& self, int dim, const Tensor& index, const Tensor& source,
                const Scalar& alpha) {
  const int axis = check_slices("index_add", self, dim, index, source);
  check_alpha(self, alpha);
  check_memory("index_add", self, index, source);
  run_add(self, axis, index, source, alpha);
}

void index_copy_(const Tensor& self, int dim, const Tensor& index, const Tensor& source) {
  const int axis = check_slices("index_copy", self, dim, index, source);
  check_memory("index_copy", self, index, source);
  run_slices({"index_copy"}, self, axis, index, source, ScatterMode::replace);
}

void index_fill_(const Tensor& self, int dim, const Tensor& index, const Operand& value) {
  const int axis = check_fill(self, dim, index, value);
  check_writable("index_fill", self);
  check_no_overlap("index_fill", self, index);
  if (value.is_tensor()) check_no_overlap("index_fill", self, value.tensor());
  run_fill(self, axis, index, value);
}

void index_reduce_(const Tensor& self, int dim, const Tensor& index, const Tensor& source,
                   std::string_view reduce, bool include_self) {
  const int axis = check_slices("index_reduce", self, dim, index, source);
  const Reduction reduction = index_reduction(reduce, self);
  check_memory("index_reduce", self, index, source);
  run_reduction(self, axis, index, source, reduction, include_self);
}

}  // namespace detail

Tensor index_add(const Tensor& self, Dim dim, const Tensor& index, const Tensor& source,
                 const Scalar& alpha) {
  const int axis = detail::check_slices("index_add", self, dim, index, source);
  detail::check_alpha(self, alpha);
  Tensor result = self.clone();
  detail::run_add(result, axis, index, source, alpha);
  return result;
}

Tensor index_copy(const Tensor& self, Dim dim, const Tensor& index, const Tensor& source) {
  const int axis = detail::check_slices("index_copy", self, dim, index, source);
  Tensor result = self.clone();
  detail::run_slices({"index_copy"}, result, axis, index, source, kernels::ScatterMode::replace);
  return result;
}

Tensor index_fill(const Tensor& self, Dim dim, const Tensor& index, const Operand& value) {
  const int axis = detail::check_fill(self, dim, index, value);
  Tensor result = self.clone();
  detail::run_fill(result, axis, index, value);
  return result;
}

Tensor index_reduce(const Tensor& self, Dim dim, const Tensor& index, const Tensor& source,
                    std::string_view reduce, bool include_self) {
  const int axis = detail::check_slices("index_reduce", self, dim, index, source);
  const detail::Reduction reduction = detail::index_reduction(reduce, self);
  Tensor result = self.clone();
  detail::run_reduction(result, axis, index, source, reduction, include_self);
  return result;
}

}  // namespace gantry
