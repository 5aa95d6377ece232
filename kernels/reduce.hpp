#pragma once

#include <cstdint>

#include <gantry/core/scalar.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Reduction order]
// The order in which elements are combined is a function of the reduction's length alone, never of
// layout, grid, device or platform, so sums have the same bits on the GPU, the simulator and the
// CPU. Element k of a reduction of length n goes to lane k % 128 of segment k / 16384; a lane
// combines its elements in order; the lanes of a segment are combined by halving (lane j takes in
// lane j + 64, then j + 32, …, j + 1; absent lanes are skipped); the segment results are reduced by
// the same rule until one is left. f16 and bf16 accumulate in f32, f32 in f32, f64 in f64, integers
// and bool in i64 (wrapping).
enum class Reduction : std::uint8_t {
  sum,
  prod,
  min,
  max,
  any,
  all,
  sum_squares,
  sum_abs,
  count_nonzero
};

// Reduces the dims of `in` in which `out` has size 1 and `in` may have any size; both have the same
// ndim. Dims are combined in row-major order of the reduced dims. dtypes: sum, prod: out is in's
// dtype, or i64 for integers and bool, or any floating dtype (in is converted on load); min, max:
// the same dtype, NaN wins; any, all: out bool; sum_squares, sum_abs: floating; count_nonzero: i64.
// `scale` multiplies the final accumulator before rounding (mean = sum with 1/n as f64 → the
// accumulator is divided by `divisor`). An empty reduction gives the identity.
void reduce(const Target& target, Reduction op, const TensorRef& out, const TensorRef& in,
            double divisor = 1);

// Largest (or smallest) value along `dim` and its first index; NaN counts as larger (smaller) than
// everything. `values` (in's dtype; data may be null: not wanted) and `indices` (i64) have in's
// sizes with size 1 at `dim`, which is not empty.
void arg_reduce(const Target& target, bool largest, const TensorRef& values,
                const TensorRef& indices, const TensorRef& in, int dim);

// Running sum (or product) along `dim`, left to right, accumulated as in `reduce`.
void cumulate(const Target& target, bool product, const TensorRef& out, const TensorRef& in,
              int dim);

// Softmax (or its logarithm) along `dim`: in and out of one floating dtype, computed in f32 (f64
// for f64) as exp(x - max) / sum, the sum in the order of Note [Reduction order].
void softmax(const Target& target, bool logarithm, const TensorRef& out, const TensorRef& in,
             int dim);

}  // namespace gantry::kernels
