// sort, topk and the selections that are elements of a sorted order.
#include <gantry/tensor/sorting.hpp>

#include <fmt/format.h>

#include <cmath>

#include <gantry/core/error.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/ordering/sort.hpp"
#include "tensor/check.hpp"
#include "tensor/ordering/ordered_results.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

using detail::OrderedResults;

// sort and topk: the first `count` elements of the order.
void order_into(OrderedResults& results, const Tensor& self, int dim, bool descending,
                std::optional<std::int64_t> count = {}) {
  const int axis = detail::wrap_dim(results.op(), dim, self);
  const Tensor source = detail::at_least_1d(self);
  if (count && (*count < 0 || *count > source.size(axis))) {
    throw IndexError(
        fmt::format("{}: selected index k out of range, expected 0 <= k <= {}, but got {}",
                    results.op(), source.size(axis), *count),
        self.device().str());
  }
  kernels::check_sort_length(results.op(), detail::target_of(source), source.size(axis));
  Shape shape = source.sizes();
  if (count) shape[axis] = *count;
  // The result of a 0-dim tensor is 0-dim, unless it is empty.
  results.prepare(self, self.dim() == 0 && shape[0] == 1 ? Shape{} : shape);
  results.keep_dim(axis, source.dim());
  kernels::sort(detail::target_of(source), results.values(), results.indices(), source.ref(), axis,
                descending);
}

// Throws ShapeError for an empty dim.
void check_selectable(std::string_view op, const Tensor& self, int axis) {
  if (self.dim() > 0 && self.size(axis) == 0) {
    throw ShapeError(
        fmt::format("{}(): Expected reduction dim {} to have non-zero size.", op, axis),
        self.device().str());
  }
}

// The results' shapes of a selection: with and without the dim.
struct SelectedShapes {
  Shape kept;
  Shape result;
};

SelectedShapes selected_shapes(const Tensor& self, int axis, bool keepdim) {
  SelectedShapes shapes;
  shapes.kept = detail::at_least_1d(self).sizes();
  shapes.kept[axis] = 1;
  shapes.result = self.dim() == 0 ? Shape{} : shapes.kept;
  if (!keepdim && self.dim() > 0) shapes.result.erase(axis);
  return shapes;
}

// The element of `rank`, or of `ranks` if it is defined.
void select_into(OrderedResults& results, const Tensor& self, int axis, bool keepdim,
                 std::int64_t rank, const Tensor& ranks = {}) {
  const SelectedShapes shapes = selected_shapes(self, axis, keepdim);
  const Tensor source = detail::at_least_1d(self);
  kernels::check_sort_length(results.op(), detail::target_of(self), source.size(axis));
  results.prepare(self, shapes.result);
  results.keep_dim(axis, shapes.kept.size());
  kernels::select_rank(detail::target_of(self), results.values(), results.indices(), source.ref(),
                       axis, rank, ranks.defined() ? ranks.ref() : TensorRef{});
}

void kthvalue_into(OrderedResults& results, const Tensor& self, std::int64_t k, int dim,
                   bool keepdim) {
  const int axis = detail::wrap_dim(results.op(), dim, self);
  check_selectable(results.op(), self, axis);
  const std::int64_t length = self.dim() == 0 ? 1 : self.size(axis);
  if (k < 1 || k > length) {
    throw IndexError(fmt::format("kthvalue(): selected number k out of range for dimension {}: "
                                 "expected 1 <= k <= {}, but got {}",
                                 axis, length, k),
                     self.device().str());
  }
  select_into(results, self, axis, keepdim, k - 1);
}

// NaNs are the last elements of the order. The rank of a median is thus that of the first NaN, or
// the middle of the elements before it.
Tensor median_ranks(const Tensor& source, int axis, bool ignores_nan) {
  const std::int64_t length = source.size(axis);
  const Tensor numbers = source.eq(source).sum(axis, true);
  if (ignores_nan) return numbers.sub(1).floor_divide(2).clamp(0, std::nullopt);
  return where(numbers.eq(length), (length - 1) / 2, numbers);
}

void median_into(OrderedResults& results, const Tensor& self, int dim, bool keepdim,
                 bool ignores_nan) {
  const int axis = detail::wrap_dim(results.op(), dim, self);
  check_selectable(results.op(), self, axis);
  results.check(self, selected_shapes(self, axis, keepdim).result);
  const Tensor source = detail::at_least_1d(self);
  Tensor ranks;
  if (is_floating_point(self.dtype()) && self.numel() > 0) {
    ranks = median_ranks(source, axis, ignores_nan);
  }
  select_into(results, self, axis, keepdim, (source.size(axis) - 1) / 2, ranks);
}

Tensor median_of_all(std::string_view op, const Tensor& self, bool ignores_nan) {
  detail::check_defined(op, "self", self);
  detail::check_computes(op, self);
  if (self.numel() == 0) {
    if (is_floating_point(self.dtype())) return full({}, std::nan(""), self.options());
    throw ShapeError(fmt::format("{}: expected at least one element, but got a tensor of shape {}",
                                 op, self.sizes().str()),
                     self.device().str());
  }
  OrderedResults results(op);
  median_into(results, self.reshape({-1}), 0, false, ignores_nan);
  return results.take().values;
}

// The run of equal elements that ends at each position of a sorted order has a length; the first
// of the longest ones is that of the mode.
void mode_into(OrderedResults& results, const Tensor& self, int dim, bool keepdim) {
  const int axis = detail::wrap_dim(results.op(), dim, self);
  check_selectable(results.op(), self, axis);
  const SelectedShapes shapes = selected_shapes(self, axis, keepdim);
  results.prepare(self, shapes.result);
  results.keep_dim(axis, shapes.kept.size());
  if (self.numel() == 0) return;
  const ValuesAndIndices sorted = sort(detail::at_least_1d(self), axis);
  const std::int64_t length = sorted.values.size(axis);
  const Tensor differs =
      sorted.values.narrow(axis, 1, length - 1).ne(sorted.values.narrow(axis, 0, length - 1));
  Shape along = Dims::filled(sorted.values.dim(), 1);
  along[axis] = length - 1;
  const Tensor positions = arange(1, length, {.dtype = i64, .device = self.device()}).view(along);
  const Tensor starts = cummax(where(differs, positions, 0), axis).values;
  const Tensor first = zeros(shapes.kept, {.dtype = i64, .device = self.device()});
  const Tensor lengths = cat({first, positions.sub(starts)}, axis);
  const Tensor end = lengths.argmax(axis, true);
  results.copy_from(sorted.values.gather(axis, end), sorted.indices.gather(axis, end));
}

}  // namespace

ValuesAndIndices sort(const Tensor& self, Dim dim, bool descending, bool /*stable*/) {
  const kernels::OpScope scope("sort");
  detail::check_defined("sort", "self", self);
  detail::check_computes("sort", self);
  OrderedResults results("sort");
  order_into(results, self, dim, descending);
  return results.take();
}

std::tuple<Tensor&, Tensor&> sort_out(Tensor& values, Tensor& indices, const Tensor& self, Dim dim,
                                      bool descending, bool /*stable*/) {
  const kernels::OpScope scope("sort");
  OrderedResults results("sort", values, indices, self);
  order_into(results, self, dim, descending);
  return {values, indices};
}

Tensor argsort(const Tensor& self, Dim dim, bool descending, bool /*stable*/) {
  const kernels::OpScope scope("argsort");
  detail::check_defined("argsort", "self", self);
  detail::check_computes("argsort", self);
  OrderedResults results("argsort", OrderedResults::Only::indices);
  order_into(results, self, dim, descending);
  return results.take().indices;
}

Tensor& argsort_out(Tensor& out, const Tensor& self, Dim dim, bool descending, bool /*stable*/) {
  const kernels::OpScope scope("argsort");
  OrderedResults results("argsort", OrderedResults::Only::indices, out, self);
  order_into(results, self, dim, descending);
  return out;
}

Tensor msort(const Tensor& self) {
  const kernels::OpScope scope("msort");
  detail::check_defined("msort", "self", self);
  detail::check_computes("msort", self);
  OrderedResults results("msort", OrderedResults::Only::values);
  order_into(results, self, 0, false);
  return results.take().values;
}

Tensor& msort_out(Tensor& out, const Tensor& self) {
  const kernels::OpScope scope("msort");
  OrderedResults results("msort", OrderedResults::Only::values, out, self);
  order_into(results, self, 0, false);
  return out;
}

ValuesAndIndices topk(const Tensor& self, std::int64_t k, Dim dim, bool largest, bool /*sorted*/) {
  const kernels::OpScope scope("topk");
  detail::check_defined("topk", "self", self);
  detail::check_computes("topk", self);
  OrderedResults results("topk");
  order_into(results, self, dim, largest, k);
  return results.take();
}

std::tuple<Tensor&, Tensor&> topk_out(Tensor& values, Tensor& indices, const Tensor& self,
                                      std::int64_t k, Dim dim, bool largest, bool /*sorted*/) {
  const kernels::OpScope scope("topk");
  OrderedResults results("topk", values, indices, self);
  order_into(results, self, dim, largest, k);
  return {values, indices};
}

ValuesAndIndices kthvalue(const Tensor& self, std::int64_t k, Dim dim, bool keepdim) {
  const kernels::OpScope scope("kthvalue");
  detail::check_defined("kthvalue", "self", self);
  detail::check_computes("kthvalue", self);
  OrderedResults results("kthvalue");
  kthvalue_into(results, self, k, dim, keepdim);
  return results.take();
}

std::tuple<Tensor&, Tensor&> kthvalue_out(Tensor& values, Tensor& indices, const Tensor& self,
                                          std::int64_t k, Dim dim, bool keepdim) {
  const kernels::OpScope scope("kthvalue");
  OrderedResults results("kthvalue", values, indices, self);
  kthvalue_into(results, self, k, dim, keepdim);
  return {values, indices};
}

Tensor median(const Tensor& self) {
  const kernels::OpScope scope("median");
  return median_of_all("median", self, false);
}

ValuesAndIndices median(const Tensor& self, Dim dim, bool keepdim) {
  const kernels::OpScope scope("median");
  detail::check_defined("median", "self", self);
  detail::check_computes("median", self);
  OrderedResults results("median");
  median_into(results, self, dim, keepdim, false);
  return results.take();
}

std::tuple<Tensor&, Tensor&> median_out(Tensor& values, Tensor& indices, const Tensor& self,
                                        Dim dim, bool keepdim) {
  const kernels::OpScope scope("median");
  OrderedResults results("median", values, indices, self);
  median_into(results, self, dim, keepdim, false);
  return {values, indices};
}

Tensor nanmedian(const Tensor& self) {
  const kernels::OpScope scope("nanmedian");
  return median_of_all("nanmedian", self, true);
}

ValuesAndIndices nanmedian(const Tensor& self, Dim dim, bool keepdim) {
  const kernels::OpScope scope("nanmedian");
  detail::check_defined("nanmedian", "self", self);
  detail::check_computes("nanmedian", self);
  OrderedResults results("nanmedian");
  median_into(results, self, dim, keepdim, true);
  return results.take();
}

std::tuple<Tensor&, Tensor&> nanmedian_out(Tensor& values, Tensor& indices, const Tensor& self,
                                           Dim dim, bool keepdim) {
  const kernels::OpScope scope("nanmedian");
  OrderedResults results("nanmedian", values, indices, self);
  median_into(results, self, dim, keepdim, true);
  return {values, indices};
}

ValuesAndIndices mode(const Tensor& self, Dim dim, bool keepdim) {
  const kernels::OpScope scope("mode");
  detail::check_defined("mode", "self", self);
  detail::check_computes("mode", self);
  OrderedResults results("mode");
  mode_into(results, self, dim, keepdim);
  return results.take();
}

std::tuple<Tensor&, Tensor&> mode_out(Tensor& values, Tensor& indices, const Tensor& self, Dim dim,
                                      bool keepdim) {
  const kernels::OpScope scope("mode");
  OrderedResults results("mode", values, indices, self);
  mode_into(results, self, dim, keepdim);
  return {values, indices};
}

}  // namespace gantry
