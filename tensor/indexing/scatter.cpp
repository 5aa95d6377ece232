// Writes by index tensors that have an index for every element of the source.
#include <fmt/format.h>

#include <limits>

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

namespace {

using kernels::ScatterMode;

// Checks the arguments of scatter, except that self is writable. Returns the non-negative dim. A
// number counts as a source of the index's shape.
int check_scatter(std::string_view op, const Tensor& self, int dim, const Tensor& index,
                  const Operand& source) {
  const Tensor& shaped = source.is_tensor() ? source.tensor() : index;
  detail::common_device(
      op, {{"self", self, detail::Role::in_place}, {"index", index}, {"src", shaped}});
  const int axis = detail::wrap_dim(op, dim, self);
  detail::check_index_dtype(op, index);
  if (!source.is_tensor()) {
    detail::check_fits(op, source.number(), self.dtype());
  } else {
    detail::check_source_dtype(op, self, source.tensor());
  }
  const Tensor out = detail::at_least_1d(self);
  const Tensor positions = detail::at_least_1d(index);
  const Tensor values = detail::at_least_1d(shaped);
  detail::check_index_dims(op, out, positions, "self");
  detail::check_index_dims(op, values, positions, "src");
  if (!detail::fits_index(positions, out, axis) || !detail::fits_index(positions, values, -1)) {
    throw ShapeError(
        fmt::format("{}(): Expected index {} to be no larger than self {} apart from dimension {} "
                    "and to be no "
                    "larger size than src {}",
                    op, positions.sizes().str(), out.sizes().str(), axis, values.sizes().str()),
        self.device().str());
  }
  return axis;
}

// Runs a scatter whose arguments are checked.
void run_scatter(const kernels::IndexUse& use, const Tensor& self, int axis, const Tensor& index,
                 const Operand& source, ScatterMode mode) {
  const Tensor values = source.is_tensor()
                            ? source.tensor()
                            : self.new_full({}, source.number()).expand(index.sizes());
  kernels::scatter(use, detail::target_of(self), detail::at_least_1d(self).ref(), axis,
                   detail::at_least_1d(index).ref(), detail::at_least_1d(values).ref(), mode);
}

// Checks the arguments of an in-place scatter. Returns the non-negative dim.
int check_in_place(const char* op, const Tensor& self, int dim, const Tensor& index,
                   const Operand& source) {
  const int axis = check_scatter(op, self, dim, index, source);
  detail::check_writable(op, self);
  detail::check_no_overlap(op, self, index);
  if (source.is_tensor()) detail::check_no_overlap(op, self, source.tensor());
  return axis;
}

ScatterMode mode_of(std::string_view reduce, const Tensor& self) {
  detail::check_computes("scatter", self);
  if (reduce == "add") return ScatterMode::add;
  if (reduce == "multiply") return ScatterMode::multiply;
  throw InvalidArgument(
      fmt::format("scatter: reduce argument must be either add or multiply, but got {}", reduce),
      self.device().str());
}

constexpr const char* kReduce = "scatter_reduce";

// Runs a scatter_reduce whose arguments are checked.
void run_reduction(const Tensor& self, int axis, const Tensor& index, const Tensor& source,
                   detail::Reduction reduction, bool include_self) {
  const auto scatter = [&](const Tensor& out, const Operand& from, ScatterMode mode) {
    run_scatter({kReduce}, out, axis, index, from, mode);
  };
  detail::reduce_scattered(self, reduction, include_self, scatter, source);
}

}  // namespace

namespace detail {

void scatter_(const Tensor& self, int dim, const Tensor& index, const Operand& source) {
  const int axis = check_in_place("scatter", self, dim, index, source);
  run_scatter({"scatter"}, self, axis, index, source, ScatterMode::replace);
}

void scatter_(const Tensor& self, int dim, const Tensor& index, const Operand& source,
              std::string_view reduce) {
  const int axis = check_in_place("scatter", self, dim, index, source);
  const ScatterMode mode = mode_of(reduce, self);
  run_scatter({"scatter"}, self, axis, index, source, mode);
}

void scatter_add_(const Tensor& self, int dim, const Tensor& index, const Tensor& source) {
  const int axis = check_in_place("scatter_add", self, dim, index, source);
  check_computes("scatter_add", self);
  run_scatter({"scatter_add"}, self, axis, index, source, ScatterMode::add);
}

void scatter_reduce_(const Tensor& self, int dim, const Tensor& index, const Tensor& source,
                     std::string_view reduce, bool include_self) {
  const int axis = check_in_place(kReduce, self, dim, index, source);
  run_reduction(self, axis, index, source, reduction_named(kReduce, reduce, self), include_self);
}

}  // namespace detail

Tensor scatter(const Tensor& self, Dim dim, const Tensor& index, const Operand& source) {
  const int axis = check_scatter("scatter", self, dim, index, source);
  Tensor result = self.clone();
  run_scatter({.op = "scatter", .fills_new = true}, result, axis, index, source,
              ScatterMode::replace);
  return result;
}

Tensor scatter(const Tensor& self, Dim dim, const Tensor& index, const Operand& source,
               std::string_view reduce) {
  const int axis = check_scatter("scatter", self, dim, index, source);
  const ScatterMode mode = mode_of(reduce, self);
  Tensor result = self.clone();
  run_scatter({.op = "scatter", .fills_new = true}, result, axis, index, source, mode);
  return result;
}

Tensor scatter_add(const Tensor& self, Dim dim, const Tensor& index, const Tensor& source) {
  const int axis = check_scatter("scatter_add", self, dim, index, source);
  detail::check_computes("scatter_add", self);
  Tensor result = self.clone();
  run_scatter({.op = "scatter_add", .fills_new = true}, result, axis, index, source,
              ScatterMode::add);
  return result;
}

Tensor scatter_reduce(const Tensor& self, Dim dim, const Tensor& index, const Tensor& source,
                      std::string_view reduce, bool include_self) {
  const int axis = check_scatter(kReduce, self, dim, index, source);
  const detail::Reduction reduction = detail::reduction_named(kReduce, reduce, self);
  Tensor result = self.clone();
  run_reduction(result, axis, index, source, reduction, include_self);
  return result;
}

Tensor& Tensor::scatter_(Dim dim, const Tensor& index, const Operand& source) const {
  detail::scatter_(*this, dim, index, source);
  return handle();
}

Tensor& Tensor::scatter_add_(Dim dim, const Tensor& index, const Tensor& source) const {
  detail::scatter_add_(*this, dim, index, source);
  return handle();
}

}  // namespace gantry
