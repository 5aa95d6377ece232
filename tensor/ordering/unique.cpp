// The different elements, or slices, of a tensor.
#include <fmt/format.h>

#include <optional>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/promote.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/shape_ops.hpp>
#include <gantry/tensor/sorting.hpp>

#include "kernels/op_scope.hpp"
#include "kernels/ordering/binning.hpp"
#include "kernels/ordering/sort.hpp"
#include "tensor/check.hpp"
#include "tensor/outputs.hpp"
#include "tensor/same_device.hpp"
#include "tensor/target_of.hpp"

namespace gantry {

namespace {

// Runs of equal neighbours in a sequence of n.
struct Runs {
  Tensor starts;   // the position at which each run starts
  Tensor inverse;  // the run of each element, if asked for
  Tensor counts;   // the length of each run, if asked for
};

TensorOptions index_options(const Tensor& like) {
  return {.dtype = DType::i64, .device = like.device()};
}

// `differs` [n - 1]: whether element i + 1 differs from element i. `order`: the places of the
// elements; if undefined, element i is in place i. Precondition: n > 0. The host waits for the
// number of runs.
Runs find_runs(const Tensor& differs, const Tensor& order, bool return_inverse,
               bool return_counts) {
  const TensorOptions indices = index_options(differs);
  const std::int64_t n = differs.numel() + 1;
  const Tensor first =
      full({1}, !return_inverse, {.dtype = DType::bool_, .device = differs.device()});
  Runs result;
  if (return_inverse) {
    const Tensor runs = cat({first, differs}).cumsum(0);
    const std::int64_t count = runs[n - 1].item<std::int64_t>() + 1;
    result.starts = empty({count}, indices);
    result.inverse = order.defined() ? empty({n}, indices) : runs;
    TensorRef inverse;
    inverse.dtype = DType::i64;
    if (order.defined()) inverse = result.inverse.ref();
    kernels::run_starts(detail::target_of(differs), result.starts.ref(), inverse, runs.ref(),
                        order.defined() ? order.ref() : runs.ref());
  } else {
    result.starts = cat({first, differs}).nonzero().view({-1});
  }
  const std::int64_t count = result.starts.numel();
  if (return_counts) {
    result.counts =
        cat({result.starts.narrow(0, 1, count - 1), full({1}, n, indices)}).sub(result.starts);
  }
  return result;
}

// The elements of a 1-D tensor in ascending order, NaNs in any order.
Tensor sorted_values(std::string_view op, const Tensor& elements) {
  const kernels::Target target = detail::target_of(elements);
  kernels::check_sort_length(op, target, elements.numel());
  Tensor values = empty(elements.sizes(), {.dtype = elements.dtype(), .device = elements.device()});
  kernels::sort_values(target, values.ref(), elements.ref());
  return values;
}

// Whether each element along `dim` but the first differs from the one before.
Tensor differences(const Tensor& elements, int dim) {
  const std::int64_t n = elements.size(dim);
  return elements.narrow(dim, 1, n - 1).ne(elements.narrow(dim, 0, n - 1));
}

// The runs of equal elements of a 1-D tensor. `order`: the indices of its elements in `self`; if
// undefined, they are in place.
UniqueElements unique_runs(const Tensor& self, const Tensor& elements, const Tensor& order,
                           bool return_inverse, bool return_counts) {
  UniqueElements result;
  if (elements.numel() == 0) {
    result.values = elements.clone();
    if (return_inverse) result.inverse = empty(self.sizes(), index_options(self));
    if (return_counts) result.counts = empty({0}, index_options(self));
    return result;
  }
  const Runs runs = find_runs(differences(elements, 0), order, return_inverse, return_counts);
  result.values = elements.index_select(0, runs.starts);
  if (return_inverse) result.inverse = runs.inverse.view(self.sizes());
  result.counts = runs.counts;
  return result;
}

// The first element of every run of equal neighbours of a 1-D tensor. The host waits for their
// number.
Tensor first_of_runs(const Tensor& elements) {
  const std::int64_t n = elements.numel();
  if (n == 0) return elements.clone();
  const bool is_bool = elements.dtype() == DType::bool_;  // whose true bytes may differ
  const Tensor in = is_bool ? elements.ne(false) : elements.contiguous();
  const Tensor firsts = empty({n}, {.dtype = in.dtype(), .device = in.device()});
  const Tensor count = empty({1}, index_options(in));
  kernels::first_of_runs(detail::target_of(in), firsts.ref(), count.ref(), in.ref());
  const std::int64_t runs = count.item<std::int64_t>();
  // A part keeps the memory of the whole, of which it is at least half.
  const Tensor part = firsts.narrow(0, 0, runs);
  return 2 * runs < n ? part.clone() : part;
}

// Note [Unique slices]
// n slices of m elements are compared by ranks. Row k of `keys` [m, n] holds element k of every
// slice. A sort replaces the elements of a row by their ranks: the number of distinct smaller
// elements. Two rows of ranks are combined to one row, as the two digits of one number, which
// orders pairs of elements. Each such step halves the number of rows. The last row has the order of
// the slices, after about log2(m) sorts.

// The rank of each element among the different elements of its row: [m, n] → i64.
Tensor ranks_in_rows(const Tensor& keys) {
  const auto [values, indices] = sort(keys, 1);
  const Tensor first = zeros({keys.size(0), 1}, {.dtype = DType::bool_, .device = keys.device()});
  const Tensor ranks = empty(keys.sizes(), index_options(keys));
  return ranks.scatter_(1, indices, cat({first, differences(values, 1)}, 1).cumsum(1));
}

// Numbers [n] with the order of the n slices whose elements are in the rows of `elements` [m, n].
Tensor slice_keys(const Tensor& elements) {
  Tensor keys = elements;
  const std::int64_t n = elements.size(1);
  while (keys.size(0) > 1) {
    const Tensor ranks = ranks_in_rows(keys);
    const std::int64_t pairs = ranks.size(0) / 2;
    const Tensor paired = ranks.narrow(0, 0, 2 * pairs).view({pairs, 2, n});
    keys = paired.select(1, 0).mul(n).add(paired.select(1, 1));
    if (ranks.size(0) % 2 != 0) keys = cat({keys, ranks.narrow(0, 2 * pairs, 1)});
  }
  return keys[0];
}

// The dim of a unique operation on slices, checked.
int slice_dim(std::string_view op, const Tensor& self, int dim) {
  const int axis = detail::wrap_dim(op, dim, self);
  if (self.dim() == 0) {
    throw IndexError(
        fmt::format("{}: Dimension specified as {} but tensor has no dimensions", op, dim),
        self.device().str());
  }
  if (self.numel() == 0 && self.size(axis) != 0) {
    throw ShapeError(fmt::format("{}: There are 0 sized dimensions, and they aren't selected, so "
                                 "unique cannot be applied",
                                 op),
                     self.device().str());
  }
  // Two ranks make one 64-bit number.
  constexpr std::int64_t kMostSlices = 3'037'000'499;
  if (self.size(axis) > kMostSlices) {
    throw NotSupported(
        fmt::format("{}: expected at most {} slices, but got {}", op, kMostSlices, self.size(axis)),
        self.device().str());
  }
  return axis;
}

UniqueElements no_slices(const Tensor& self, bool return_inverse, bool return_counts) {
  UniqueElements result;
  result.values = self.clone();
  if (return_inverse) result.inverse = empty({0}, index_options(self));
  if (return_counts) result.counts = empty({0}, index_options(self));
  return result;
}

// The slices of `self` along `axis` as columns: [m, n].
Tensor slices_as_columns(const Tensor& self, int axis) {
  return self.movedim(axis, -1).reshape({-1, self.size(axis)});
}

UniqueElements unique_slices(const Tensor& self, int axis, bool return_inverse,
                             bool return_counts) {
  if (self.numel() == 0) return no_slices(self, return_inverse, return_counts);
  const auto [keys, order] = sort(slice_keys(slices_as_columns(self, axis)));
  const Runs runs = find_runs(differences(keys, 0), order, return_inverse, return_counts);
  // The sort is stable, so a run begins with the first of the equal slices.
  return {self.index_select(axis, order.index_select(0, runs.starts)), runs.inverse, runs.counts};
}

UniqueElements unique_consecutive_slices(const Tensor& self, int axis, bool return_inverse,
                                         bool return_counts) {
  if (self.numel() == 0) return no_slices(self, return_inverse, return_counts);
  const Tensor differs = differences(slices_as_columns(self, axis), 1).any(0);
  const Runs runs = find_runs(differs, {}, return_inverse, return_counts);
  return {self.index_select(axis, runs.starts), runs.inverse, runs.counts};
}

// A number as a tensor of `like`'s device, or the tensor itself.
Tensor tensor_of(const Operand& operand, DType dtype, Device device) {
  if (operand.is_tensor()) return operand.tensor().to(dtype);
  return full({}, operand.number(), {.dtype = dtype, .device = device});
}

// The device of isin's operands, which are checked.
Device isin_device(const Operand& elements, const Operand& test_elements) {
  if (elements.is_tensor() && test_elements.is_tensor()) {
    return detail::common_device(
        "isin", {{"elements", elements.tensor()}, {"test_elements", test_elements.tensor()}});
  }
  detail::check_defined("isin", "elements", elements);
  detail::check_defined("isin", "test_elements", test_elements);
  if (elements.is_tensor()) return elements.tensor().device();
  if (test_elements.is_tensor()) return test_elements.tensor().device();
  throw InvalidArgument("isin: expected a tensor, but got two numbers");
}

Shape sizes_of(const Operand& operand) {
  return operand.is_tensor() ? operand.tensor().sizes() : Shape{};
}

}  // namespace

UniqueElements unique(const Tensor& self, bool /*sorted*/, bool return_inverse, bool return_counts,
                      std::optional<Dim> dim) {
  const kernels::OpScope scope("unique");
  detail::check_defined("unique", "self", self);
  detail::check_computes("unique", self);
  if (dim) {
    return unique_slices(self, slice_dim("unique", self, *dim), return_inverse, return_counts);
  }
  const Tensor flat = self.reshape({-1});
  if (return_inverse) {
    const auto [values, indices] = sort(flat);
    return unique_runs(self, values, indices, true, return_counts);
  }
  const Tensor values = sorted_values("unique", flat);
  if (return_counts) return unique_runs(self, values, {}, false, true);
  UniqueElements result;
  result.values = first_of_runs(values);
  return result;
}

UniqueElements unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts,
                                  std::optional<Dim> dim) {
  const kernels::OpScope scope("unique_consecutive");
  constexpr std::string_view kOp = "unique_consecutive";
  detail::check_defined(kOp, "self", self);
  detail::check_computes(kOp, self);
  if (dim) {
    return unique_consecutive_slices(self, slice_dim(kOp, self, *dim), return_inverse,
                                     return_counts);
  }
  const Tensor flat = self.reshape({-1});
  if (return_inverse || return_counts) {
    return unique_runs(self, flat, {}, return_inverse, return_counts);
  }
  UniqueElements result;
  result.values = first_of_runs(flat);
  return result;
}

Tensor isin(const Operand& elements, const Operand& test_elements, bool /*assume_unique*/,
            bool invert) {
  const kernels::OpScope scope("isin");
  const Device device = isin_device(elements, test_elements);
  const DType dtype = result_type(elements, test_elements);
  detail::check_computes("isin", dtype);
  for (const Operand* operand : {&elements, &test_elements}) {
    // A number that no element can be.
    if (operand->is_tensor() || detail::is_representable(operand->number(), dtype)) continue;
    return full(sizes_of(elements), invert, {.dtype = DType::bool_, .device = device});
  }
  const Tensor tested = tensor_of(test_elements, dtype, device).reshape({-1});
  if (tested.numel() == 0) {
    return full(sizes_of(elements), invert, {.dtype = DType::bool_, .device = device});
  }
  const Tensor sought = tensor_of(elements, dtype, device);
  const Tensor sorted = sorted_values("isin", tested);
  const Tensor places = searchsorted(sorted, sought).clamp(std::nullopt, tested.numel() - 1);
  const Tensor found = sorted.index_select(0, places.reshape({-1})).view(sought.sizes());
  return invert ? sought.ne(found) : sought.eq(found);
}

Tensor& isin_out(Tensor& out, const Operand& elements, const Operand& test_elements,
                 bool assume_unique, bool invert) {
  const kernels::OpScope scope("isin");
  isin_device(elements, test_elements);
  const Tensor& any = elements.is_tensor() ? elements.tensor() : test_elements.tensor();
  detail::common_device("isin", {{"out", out, detail::Role::output}, {"elements", any}});
  detail::check_output("isin", "out", out, sizes_of(elements), DType::bool_);
  return out.copy_(isin(elements, test_elements, assume_unique, invert));
}

}  // namespace gantry
