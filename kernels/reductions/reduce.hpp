#pragma once

#include <cstdint>

#include <gantry/core/scalar.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Reduction order]
// The order in which elements are combined depends on the reduction's length only, never on layout,
// grid, device or platform. Sums therefore have the same bits on the GPU, the simulator and the
// CPU.
//  1. The elements form chunks of 16384. A chunk has 128 accumulators.
//  2. Element k goes to accumulator k % 128 of chunk k / 16384, in increasing order of k.
//  3. A tree combines the accumulators of a chunk: accumulator j with j + 64, then with j + 32, …,
//     j + 1. Accumulators without an element are skipped.
//  4. The chunk results are reduced by the same rule, until one value is left.
// f16, bf16 and f32 accumulate in f32, f64 in f64, integers and bool in i64 (wrapping).
//
// One rule holds for every operation that combines elements in blocks. A result is infinite or NaN
// only where it is with the elements left to right. A block may exceed the accumulator although no
// running value does: in [-v, v, v, -v] the sum of the middle, in [0, v, v] the product of the end.
// Notes [Overflowing chunks], [Restarted scans] and [Repeated variances] say how the rule is kept.
// Sums of squares and of magnitudes only grow, so they follow it as they are. norm2 is the root of
// a sum of squares, taken of the accumulator before it is rounded.
//
// Note [Overflowing chunks]
// A floating sum or product that is not finite is computed again.
//  - Sum: each chunk result that is not finite is replaced by a sum of its elements. Then all are
//    added. These sums are f64, go left to right and do not overflow. The last one is rounded
//    to the accumulator.
//  - Product, also one that is not finite in the result's dtype: if all elements are finite, they
//  are
//    multiplied left to right in the accumulator. If the new product is not finite, the first one
//    stays.
enum class Reduction : std::uint8_t {
  sum,
  prod,
  min,
  max,
  any,
  all,
  norm2,
  sum_abs,
  count_nonzero,
  variance,
  deviation,
  log_sum_exp,
  argmax,
  argmin
};

// Reduces `in` along every dim in which `out` has size 1. Both have the same ndim. A reduction's
// elements are combined in row-major order of the reduced dims.
// DTypes of `out`: sum, prod: in's dtype, i64 for integers and bool, or any floating dtype (`in` is
// converted first); min, max: in's dtype, NaN propagates; any, all: bool; norm2, sum_abs:
// floating; count_nonzero: i64; log_sum_exp: in's dtype, floating. variance() and
// arg_reduce() have the others.
// A floating accumulator is divided by `divisor` before it is rounded (mean: the number of
// elements). An empty reduction gives the identity of `op`.
// The state of log_sum_exp is two numbers, as ExponentialSum says; exp and log are the platform's.
void reduce(const Target& target, Reduction op, const TensorRef& out, const TensorRef& in,
            double divisor = 1);

// Writes the largest (or smallest) value along `dim` and its first index. NaN counts as larger (or
// smaller) than every number. `values` has in's dtype; null data skips it. `indices` is i64. Both
// have in's sizes, with size 1 at `dim`, and the same strides. `dim` is not empty.
void arg_reduce(const Target& target, bool largest, const TensorRef& values,
                const TensorRef& indices, const TensorRef& in, int dim);

// Note [Scan order]
// The order of a running sum or product depends on the position only. cumsum and cumprod therefore
// have the same bits on the GPU, the simulator and the CPU.
//  1. The elements form groups of 16. A group's running value goes left to right.
//  2. A group's total is its last running value. The totals are scanned by the same rule: 16 totals
//     form a group of the next level.
//  3. The value before a group is the value before its group of groups, combined with the running
//     value of the totals between. For the first of 16 groups it is the value before its group of
//     groups.
//  4. A result is the value before the element's group, combined with its running value.
// The rounding error is proportional to 16 times the number of levels, not to the length.
//
// Note [Restarted scans]
// Totals of groups may exceed the accumulator although no running value does. The results then go
// left to right:
//  - A running sum of bf16 or f64: the elements form tiles of 4096. A tile fails if the last result
//    of one of its groups is not finite before it is rounded. The results from the first tile that
//    fails to the end start from the last result of the tile before, which is not rounded.
//  - A running product of floating elements: if a result, rounded to the dtype, is not finite, all
//    results start from the first element. Left to right, a product may have become too small for
//    the accumulator. It stays 0 then.
// The accumulators of other running values hold every total.

// Inclusive scan along `dim`, in the order of Note [Scan order]: running sum, product, or logarithm
// of the sum of exponentials. f16 and bf16 accumulate in f32, f32 and f64 in f64, integers and bool
// in i64 (wrapping). log_sum_exp: `in` is floating; exp and log are the platform's. `out`
// may be `in`.
enum class ScanOp : std::uint8_t { sum, product, log_sum_exp };
void scan(const Target& target, ScanOp op, const TensorRef& out, const TensorRef& in, int dim);

// Softmax (or its logarithm) along `dim`: exp(x - max) / sum, with the sum in the order of
// Note [Reduction order]. `in` and `out` have one floating dtype; f32 arithmetic, f64 for f64.
void softmax(const Target& target, bool logarithm, const TensorRef& out, const TensorRef& in,
             int dim);

}  // namespace gantry::kernels
