#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/sorting.hpp>

#include "tests/tensor/bad_inputs/bad_inputs.hpp"

namespace gantry::testing {

std::vector<BadInput> bad_sorting_inputs() {
  return {
      {"sort", "IndexError", "sort: Dimension out of range",
       [](Operands& o) { static_cast<void>(sort(o.a, 2)); }},
      {"sort", "InvalidArgument", "expected a defined tensor for argument 'self'",
       [](Operands& o) { static_cast<void>(sort(o.undefined)); }},
      {"sort_out", "DTypeError", "sort: expected argument 'values' of dtype Float, but got Long",
       [](Operands& o) {
         Tensor indices = o.integers.clone();
         sort_out(o.integers, indices, o.a);
       }},
      {"sort_out", "DTypeError", "sort: expected argument 'indices' of dtype Long, but got Float",
       [](Operands& o) {
         Tensor values = o.a.clone();
         sort_out(values, o.a, o.a);
       }},
      {"sort_out", "ShapeError", "sort: expected argument 'values' of shape [2, 3], but got [4]",
       [](Operands& o) { sort_out(o.vector, o.integers, o.a); }},
      {"sort_out", "InvalidArgument",
       "some elements of the input tensor and the written-to tensor refer to a single memory",
       [](Operands& o) { sort_out(o.a, o.integers, o.a); }},
      {"sort_out", "InvalidArgument",
       "some elements of the input tensor and the written-to tensor refer to a single memory",
       [](Operands& o) {
         Tensor out = o.integers.clone();
         sort_out(out, out, o.integers);
       }},
      {"sort_out", "InvalidArgument", "more than one element of the written-to tensor",
       [](Operands& o) { sort_out(o.repeated, o.integers, o.a); }},
      {"sort_out", "DeviceMismatchError", "Expected all tensors to be on the same device",
       [](Operands& o) {
         Tensor indices = zeros({2, 3}, i64);
         sort_out(o.a, indices, o.a.clone());
       },
       1},
      {"argsort_out", "ShapeError", "argsort: expected argument 'out' of shape [4], but got [2, 3]",
       [](Operands& o) { argsort_out(o.integers, o.vector); }},
      {"topk", "IndexError", "selected index k out of range, expected 0 <= k <= 3, but got 4",
       [](Operands& o) { static_cast<void>(topk(o.a, 4)); }},
      {"topk", "IndexError", "selected index k out of range",
       [](Operands& o) { static_cast<void>(topk(o.a, -1)); }},
      {"kthvalue", "IndexError", "kthvalue(): selected number k out of range for dimension 1",
       [](Operands& o) { static_cast<void>(kthvalue(o.a, 0)); }},
      {"kthvalue", "ShapeError", "kthvalue(): Expected reduction dim 1 to have non-zero size.",
       [](Operands& o) { static_cast<void>(kthvalue(o.a.narrow(1, 0, 0), 1)); }},
      {"median", "ShapeError", "median(): Expected reduction dim 0 to have non-zero size.",
       [](Operands& o) { static_cast<void>(median(o.a.narrow(0, 0, 0), 0)); }},
      {"median", "ShapeError", "median: expected at least one element, but got a tensor of shape",
       [](Operands& o) { static_cast<void>(median(o.integers.narrow(0, 0, 0))); }},
      {"median_out", "ShapeError", "median: expected argument 'values' of shape [2], but got [4]",
       [](Operands& o) { median_out(o.vector, o.integers, o.a, 1); }},
      {"mode", "ShapeError", "mode(): Expected reduction dim 1 to have non-zero size.",
       [](Operands& o) { static_cast<void>(mode(o.a.narrow(1, 0, 0))); }},
      {"mode_out", "ShapeError", "mode: expected argument 'values' of shape [2], but got [4]",
       [](Operands& o) { mode_out(o.vector, o.integers, o.a); }},
      {"unique", "InvalidArgument", "expected a defined tensor",
       [](Operands& o) { static_cast<void>(unique(o.undefined)); }},
      {"isin", "InvalidArgument", "isin: expected a tensor, but got two numbers",
       [](Operands&) { static_cast<void>(isin(1, 2)); }},
      {"isin_out", "DTypeError", "isin: expected argument 'out' of dtype Bool, but got Float",
       [](Operands& o) { isin_out(o.a, o.a, 1); }},
      {"cummax", "IndexError", "cummax: Dimension out of range",
       [](Operands& o) { static_cast<void>(cummax(o.a, 2)); }},
      {"cummin_out", "DTypeError", "cummin: expected argument 'values' of dtype Float",
       [](Operands& o) { cummin_out(o.mask, o.integers, o.a, 1); }},
      {"logcumsumexp", "DTypeError", "expected a floating type, but got Long",
       [](Operands& o) { static_cast<void>(logcumsumexp(o.integers, 0)); }},
      {"logcumsumexp_out", "InvalidArgument", "refer to a single memory",
       [](Operands& o) { logcumsumexp_out(o.a, o.a, 0); }},
      {"diff", "ShapeError", "diff expects input to be at least one-dimensional",
       [](Operands& o) { static_cast<void>(diff(o.scalar)); }},
      {"diff", "InvalidArgument", "order must be non-negative but got -1",
       [](Operands& o) { static_cast<void>(diff(o.a, -1)); }},
      {"diff", "ShapeError", "to be the same dimension as input, but got 1 and 2",
       [](Operands& o) { static_cast<void>(diff(o.a, 1, -1, o.vector)); }},
      {"diff", "ShapeError", "except along the differencing dimension",
       [](Operands& o) { static_cast<void>(diff(o.a, 1, 0, {}, o.a.narrow(1, 0, 1))); }},
      {"diff_out", "ShapeError", "diff: expected argument 'out' of shape [2, 2], but got [2, 3]",
       [](Operands& o) { diff_out(o.a, o.a); }},
      {"searchsorted", "ShapeError", "boundaries tensor should have positive dimension",
       [](Operands& o) { static_cast<void>(searchsorted(o.scalar, o.vector)); }},
      {"searchsorted", "ShapeError", "the first N-1 dimensions of boundaries tensor and input",
       [](Operands& o) { static_cast<void>(searchsorted(o.a, o.vector)); }},
      {"searchsorted", "ShapeError", "input value can be a scalar only when boundaries tensor",
       [](Operands& o) { static_cast<void>(searchsorted(o.a, 2)); }},
      {"searchsorted", "ShapeError", "boundary and sorter must have the same size",
       [](Operands& o) {
         static_cast<void>(
             searchsorted(o.vector, o.vector, false, false, {}, o.integers.reshape({-1})));
       }},
      {"searchsorted", "DTypeError", "sorter must be a tensor of long dtype, but got Float",
       [](Operands& o) {
         static_cast<void>(searchsorted(o.vector, o.vector, false, false, {}, o.vector));
       }},
      {"searchsorted", "InvalidArgument", "side can only be 'left' or 'right', but got 'l'",
       [](Operands& o) { static_cast<void>(searchsorted(o.vector, o.a, false, false, "l")); }},
      {"searchsorted", "InvalidArgument", "side and right can't be set to opposites",
       [](Operands& o) { static_cast<void>(searchsorted(o.vector, o.a, false, true, "left")); }},
      {"searchsorted_out", "DTypeError",
       "searchsorted: expected argument 'out' of dtype Int, but got Long",
       [](Operands& o) { searchsorted_out(o.integers, o.vector, o.a, true); }},
      {"bucketize", "ShapeError", "boundaries tensor must be 1 dimension, but got dim(2)",
       [](Operands& o) { static_cast<void>(bucketize(o.vector, o.a)); }},
      {"bincount", "DTypeError", "bincount: expected a tensor of an integer type, but got Float",
       [](Operands& o) { static_cast<void>(bincount(o.vector)); }},
      {"bincount", "ShapeError", "bincount only supports 1-d non-negative integral inputs",
       [](Operands& o) { static_cast<void>(bincount(o.integers)); }},
      {"bincount", "InvalidArgument", "bincount only supports 1-d non-negative integral inputs",
       [](Operands& o) { static_cast<void>(bincount(o.integers.reshape({-1}).neg())); }},
      {"bincount", "InvalidArgument", "minlength should be >= 0, but got -1",
       [](Operands& o) { static_cast<void>(bincount(o.integers.reshape({-1}), {}, -1)); }},
      {"bincount", "ShapeError", "weights should be 1-d and have the same length as input",
       [](Operands& o) { static_cast<void>(bincount(o.integers.reshape({-1}), o.vector)); }},
      {"histc", "DTypeError", "histc: expected a tensor of numbers, but got Bool",
       [](Operands& o) { static_cast<void>(histc(o.integers.gt(0))); }},
      {"histc", "InvalidArgument", "expected a whole number for argument 'max'",
       [](Operands& o) { static_cast<void>(histc(o.integers, 2, 0, 1.5)); }},
      {"unique", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(unique(o.a, true, true, true, 7)); }},
      {"unique_consecutive", "IndexError", "Dimension out of range",
       [](Operands& o) { static_cast<void>(unique_consecutive(o.a, true, true, -7)); }},
      {"histc", "InvalidArgument", "bins must be > 0, but got 0",
       [](Operands& o) { static_cast<void>(histc(o.a, 0)); }},
      {"histc", "InvalidArgument", "max must be larger than min",
       [](Operands& o) { static_cast<void>(histc(o.a, 2, 3, 1)); }},
      {"histc", "InvalidArgument", "is not finite",
       [](Operands& o) { static_cast<void>(histc(o.a.div(0), 2)); }},
      {"histc_out", "ShapeError", "histc: expected argument 'out' of shape [2], but got [4]",
       [](Operands& o) { histc_out(o.vector, o.a, 2); }},
  };
}

}  // namespace gantry::testing
