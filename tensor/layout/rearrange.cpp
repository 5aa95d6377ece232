#include <fmt/format.h>

#include <algorithm>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "kernels/layout/copy.hpp"
#include "kernels/layout/roll.hpp"
#include "kernels/op_scope.hpp"
#include "tensor/check.hpp"
#include "tensor/impl/stride_algebra.hpp"
#include "tensor/target_of.hpp"

// Copies with elements reordered or repeated.
namespace gantry {

Tensor Tensor::flip(const Axes& axes) const {
  const kernels::OpScope scope("flip");
  detail::check_defined("flip", "self", *this);
  const Dims dims = axes.all() ? Dims{} : detail::wrap_dims("flip", axes, *this);
  Tensor result = empty(sizes(), options());
  if (numel() == 0) return result;
  TensorRef source = ref();
  std::int64_t start = 0;
  for (const std::int64_t d : dims) {
    if (dim() == 0) break;
    start += (source.sizes[d] - 1) * source.strides[d];
    source.strides[d] = -source.strides[d];
  }
  source.data =
      static_cast<std::byte*>(source.data) + start * static_cast<std::int64_t>(element_size());
  kernels::copy(detail::target_of(*this), result.ref(), source);
  return result;
}

namespace {

Tensor roll_one(const Tensor& self, std::int64_t shift, int dim) {
  const Tensor result = empty(self.sizes(), self.options());
  if (self.numel() == 0) return result;
  const std::int64_t size = self.size(dim);
  const std::int64_t front = ((shift % size) + size) % size;
  std::int64_t inner = 1;  // elements of an index
  for (int d = dim + 1; d < self.dim(); ++d) inner *= self.size(d);
  const Tensor source = self.contiguous();
  kernels::roll_rows(detail::target_of(self), result.ref(), source.ref(), size * inner,
                     front * inner);
  return result;
}

// A contiguous view or copy of shape [outer, size of `dim`, inner].
Tensor as_three_dims(const Tensor& self, int dim) {
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (int d = 0; d < dim; ++d) outer *= self.sizes()[d];
  for (int d = dim + 1; d < self.dim(); ++d) inner *= self.sizes()[d];
  return self.contiguous().view({outer, self.sizes()[dim], inner});
}

}  // namespace

Tensor Tensor::roll(const Axes& shifts, const Axes& axes) const {
  const kernels::OpScope scope("roll");
  detail::check_defined("roll", "self", *this);
  const Dims& amounts = shifts.dims();
  if (amounts.empty()) throw InvalidArgument("roll: `shifts` required", device().str());
  if (axes.all() && amounts.size() == 1) {
    return dim() == 0 ? clone() : roll_one(reshape({numel()}), amounts[0], 0).view(sizes());
  }
  if (axes.dims().size() != amounts.size()) {
    throw ShapeError(fmt::format("roll: shifts and dimensions must align. shifts: {}, dims:{}",
                                 amounts.size(), axes.dims().size()),
                     device().str());
  }
  Dims dims;
  for (const std::int64_t d : axes.dims()) dims.push_back(detail::wrap_dim("roll", d, *this));
  if (dim() == 0) return clone();
  Tensor result = *this;
  for (int i = 0; i < dims.size(); ++i) {
    result = roll_one(result, amounts[i], static_cast<int>(dims[i]));
  }
  return result;
}

namespace {

// The number of elements of a contiguous result. Throws ShapeError if it is too large.
std::int64_t checked_contiguous(std::string_view op, const Shape& sizes, DType dtype) {
  (void)detail::checked_numel(op, sizes);  // first, because the strides might overflow
  return detail::checked_extent(op, sizes, detail::contiguous_strides(sizes), dtype);
}

Tensor repeat_as(std::string_view op, const Tensor& self, const Dims& repeats) {
  const kernels::OpScope scope(op);
  detail::check_defined(op, "self", self);
  if (repeats.size() < self.dim()) {
    throw ShapeError(
        fmt::format("{}: Number of dimensions of repeat dims can not be smaller than number of "
                    "dimensions of tensor, but got {} and {}",
                    op, repeats.size(), self.dim()),
        self.device().str());
  }
  Shape padded = self.sizes();
  while (padded.size() < repeats.size()) padded.insert(0, 1);
  Shape target = padded;
  for (int d = 0; d < target.size(); ++d) {
    if (repeats[d] < 0) {
      throw ShapeError(fmt::format("{}: Trying to create tensor with negative dimension {}: {}", op,
                                   repeats[d], repeats.str()),
                       self.device().str());
    }
    if (__builtin_mul_overflow(target[d], repeats[d], &target[d])) {
      throw ShapeError(fmt::format("{}: expected a shape of less than 2^63 elements", op),
                       self.device().str());
    }
  }
  if (checked_contiguous(op, target, self.dtype()) == 0) return empty(target, self.options());
  // Inner dims first, which keeps the data of the early passes small.
  Tensor result = self.contiguous().view(padded);
  for (int d = target.size() - 1; d >= 0; --d) {
    if (repeats[d] == 1) continue;
    const Tensor once = as_three_dims(result, d);
    Shape shape = result.sizes();
    shape[d] = target[d];
    result = once.unsqueeze(1).expand({-1, repeats[d], -1, -1}).clone().view(shape);
  }
  return result.storage() == self.storage() ? result.clone() : result;
}

}  // namespace

Tensor Tensor::repeat(const Dims& repeats) const { return repeat_as("repeat", *this, repeats); }

Tensor Tensor::tile(const Dims& repeats) const {
  detail::check_defined("tile", "self", *this);
  Dims padded = repeats;
  while (padded.size() < dim()) padded.insert(0, 1);
  return repeat_as("tile", *this, padded);
}

Tensor repeat_interleave(const Tensor& self, std::int64_t repeats, std::optional<Dim> dim) {
  const kernels::OpScope scope("repeat_interleave");
  detail::check_defined("repeat_interleave", "self", self);
  if (repeats < 0) {
    throw InvalidArgument(
        fmt::format("repeat_interleave: repeats must be non-negative, but got {}", repeats),
        self.device().str());
  }
  Shape target = dim && self.dim() > 0 ? self.sizes() : Shape{self.numel()};
  const int at =
      detail::wrap_dim("repeat_interleave", dim.value_or(0), target.size(), self.device());
  if (__builtin_mul_overflow(target[at], repeats, &target[at])) {
    throw ShapeError("repeat_interleave: expected a shape of less than 2^63 elements",
                     self.device().str());
  }
  if (checked_contiguous("repeat_interleave", target, self.dtype()) == 0) {
    return empty(target, self.options());
  }
  const Tensor source = target.size() == self.dim() ? self : self.reshape({self.numel()});
  return as_three_dims(source, at).unsqueeze(2).expand({-1, -1, repeats, -1}).clone().view(target);
}

}  // namespace gantry
