// Reads by index tensors, and put.
#include <gantry/tensor/indexing.hpp>

#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/indexing/indexing.hpp"
#include "tensor/check.hpp"
#include "tensor/impl/stride_algebra.hpp"
#include "tensor/indexing/in_place_indexing.hpp"
#include "tensor/indexing/index_checks.hpp"
#include "tensor/layout/broadcast.hpp"
#include "tensor/overlap.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

using kernels::IndexRule;

// The checked output of `op`, or a new tensor.
Tensor output(std::string_view op, const Tensor* out, const Tensor& self, const Shape& sizes,
              const Tensor& index) {
  if (out == nullptr) return empty(sizes, {.dtype = self.dtype(), .device = self.device()});
  detail::check_index_out(op, *out, self.dtype(), sizes, {&self, &index});
  return *out;
}

void check_devices(std::string_view op, const Tensor* out, const Tensor& self,
                   const Tensor& index) {
  if (out == nullptr) {
    detail::common_device(op, {{"self", self}, {"index", index}});
  } else {
    detail::common_device(op,
                          {{"out", *out, detail::Role::output}, {"self", self}, {"index", index}});
  }
}

Tensor run_index_select(const Tensor* out, const Tensor& self, int dim, const Tensor& index) {
  constexpr const char* kOp = "index_select";
  check_devices(kOp, out, self, index);
  const int axis = detail::wrap_dim(kOp, dim, self);
  detail::check_index_dtype(kOp, index);
  if (index.dim() > 1) {
    throw ShapeError(
        fmt::format(
            "index_select(): Index is supposed to be a vector, but got dim: {} with shape {}",
            index.dim(), index.sizes().str()),
        self.device().str());
  }
  const Tensor source = detail::at_least_1d(self);
  Shape sizes = source.sizes();
  sizes[axis] = index.numel();
  const bool is_scalar = self.dim() == 0 && index.numel() == 1;
  const Tensor result = output(kOp, out, self, is_scalar ? Shape{} : sizes, index);
  kernels::index_select({kOp}, detail::target_of(self), detail::at_least_1d(result).ref(),
                        source.ref(), axis, detail::at_least_1d(index).ref());
  return result;
}

Tensor run_gather(const Tensor* out, const Tensor& self, int dim, const Tensor& index) {
  constexpr const char* kOp = "gather";
  check_devices(kOp, out, self, index);
  const int axis = detail::wrap_dim(kOp, dim, self);
  detail::check_index_dtype(kOp, index);
  const Tensor source = detail::at_least_1d(self);
  const Tensor positions = detail::at_least_1d(index);
  detail::check_index_dims(kOp, source, positions, "input");
  if (!detail::fits_index(positions, source, axis)) {
    throw ShapeError(
        fmt::format(
            "gather(): Expected index {} to be no larger than self {} apart from dimension {}",
            positions.sizes().str(), source.sizes().str(), axis),
        self.device().str());
  }
  const Tensor result = output(kOp, out, self, index.sizes(), index);
  kernels::gather({.op = kOp, .fills_new = out == nullptr}, detail::target_of(self),
                  detail::at_least_1d(result).ref(), source.ref(), axis, positions.ref());
  return result;
}

Tensor run_take(const Tensor* out, const Tensor& self, const Tensor& index) {
  constexpr const char* kOp = "take";
  check_devices(kOp, out, self, index);
  detail::check_index_dtype(kOp, index);
  if (self.numel() == 0 && index.numel() != 0) {
    throw IndexError("take(): tried to take from an empty tensor", self.device().str());
  }
  const Tensor result = output(kOp, out, self, index.sizes(), index);
  if (result.numel() == 0) return result;
  // A strided output gets the elements of a dense one, because the index becomes 1-D.
  const Tensor dense = result.is_contiguous() ? result : empty_like(result);
  kernels::index_select({kOp, IndexRule::wrapping}, detail::target_of(self), dense.view({-1}).ref(),
                        self.reshape({-1}).ref(), 0, index.reshape({-1}).ref());
  if (!result.is_contiguous()) result.copy_(dense);
  return result;
}

Tensor run_take_along_dim(const Tensor* out, const Tensor& given_self, const Tensor& given_indices,
                          std::optional<int> dim) {
  constexpr const char* kOp = "take_along_dim";
  check_devices(kOp, out, given_self, given_indices);
  detail::check_index_dtype(kOp, given_indices);
  const Tensor self = dim ? given_self : given_self.reshape({-1});
  const Tensor indices = dim ? given_indices : given_indices.reshape({-1});
  if (self.dim() != indices.dim()) {
    throw ShapeError(
        fmt::format("take_along_dim(): input and indices should have the same number of "
                    "dimensions, but got {} dimensions for input, and {} dimensions for indices",
                    self.dim(), indices.dim()),
        self.device().str());
  }
  const Tensor source = detail::at_least_1d(self);
  const Tensor positions = detail::at_least_1d(indices);
  const int axis = detail::wrap_dim(kOp, dim.value_or(0), source);
  Shape self_sizes = source.sizes();
  self_sizes[axis] = 1;
  Shape index_sizes = positions.sizes();
  index_sizes[axis] = 1;
  Shape sizes = detail::common_shape(kOp, {&self_sizes, &index_sizes}, self.device());
  sizes[axis] = source.size(axis);
  const TensorRef broadcast_self = detail::broadcast_ref(source, sizes);
  sizes[axis] = positions.size(axis);
  const Tensor result = output(kOp, out, self, self.dim() == 0 ? Shape{} : sizes, given_indices);
  kernels::gather({.op = kOp, .rule = IndexRule::wrapping, .fills_new = out == nullptr},
                  detail::target_of(self), detail::at_least_1d(result).ref(), broadcast_self, axis,
                  detail::broadcast_ref(positions, sizes));
  return result;
}

}  // namespace

Tensor index_select(const Tensor& self, Dim dim, const Tensor& index) {
  return run_index_select(nullptr, self, dim, index);
}
Tensor& index_select_out(Tensor& out, const Tensor& self, Dim dim, const Tensor& index) {
  run_index_select(&out, self, dim, index);
  return out;
}

Tensor gather(const Tensor& self, Dim dim, const Tensor& index) {
  return run_gather(nullptr, self, dim, index);
}
Tensor& gather_out(Tensor& out, const Tensor& self, Dim dim, const Tensor& index) {
  run_gather(&out, self, dim, index);
  return out;
}

Tensor take(const Tensor& self, const Tensor& index) { return run_take(nullptr, self, index); }
Tensor& take_out(Tensor& out, const Tensor& self, const Tensor& index) {
  run_take(&out, self, index);
  return out;
}

Tensor take_along_dim(const Tensor& self, const Tensor& indices, std::optional<Dim> dim) {
  return run_take_along_dim(nullptr, self, indices, dim);
}
Tensor& take_along_dim_out(Tensor& out, const Tensor& self, const Tensor& indices,
                           std::optional<Dim> dim) {
  run_take_along_dim(&out, self, indices, dim);
  return out;
}

Tensor index(const Tensor& self, std::initializer_list<Index> indices) {
  return self.index(indices);
}

namespace {

void check_put(const char* op, const Tensor& self, const Tensor& index, const Tensor& source) {
  detail::common_device(
      op, {{"self", self, detail::Role::in_place}, {"index", index}, {"source", source}});
  detail::check_index_dtype(op, index);
  detail::check_source_dtype(op, self, source);
  if (source.numel() != index.numel()) {
    throw ShapeError(
        fmt::format("{}(): Expected source and index to have the same number of elements, but got "
                    "source.numel() = {}, index.numel() = {}",
                    op, source.numel(), index.numel()),
        self.device().str());
  }
  if (self.numel() == 0 && index.numel() != 0) {
    throw IndexError(fmt::format("{}(): tried to put elements into an empty tensor", op),
                     self.device().str());
  }
}

// Positions count in row-major order, so a strided self takes the elements of a dense copy.
void run_put(const char* op, const Tensor& self, const Tensor& index, const Tensor& source,
             bool accumulate) {
  const bool is_flat =
      detail::view_strides(self.sizes(), self.strides(), {self.numel()}).has_value();
  const Tensor dense = is_flat ? self : self.clone();
  kernels::index_scatter({op, IndexRule::wrapping}, detail::target_of(self), dense.view({-1}).ref(),
                         0, index.reshape({-1}).ref(), source.reshape({-1}).ref(),
                         accumulate ? kernels::ScatterMode::add : kernels::ScatterMode::replace);
  if (!is_flat) self.copy_(dense);
}

}  // namespace

void detail::put_(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  check_put("put_", self, index, source);
  if (accumulate) check_computes("put_", self);
  check_writable("put_", self);
  check_no_overlap("put_", self, index);
  check_no_overlap("put_", self, source);
  run_put("put_", self, index, source, accumulate);
}

Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  check_put("put", self, index, source);
  if (accumulate) detail::check_computes("put", self);
  Tensor result = self.clone();
  run_put("put", result, index, source, accumulate);
  return result;
}

}  // namespace gantry
