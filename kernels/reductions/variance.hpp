#pragma once

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/reductions/reduce_plan.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Variances]
// A variance takes one pass, in the order of Note [Reduction order]. It has the same bits on the
// GPU, the simulator and the CPU.
//  1. An accumulator has the sum of its elements' distances from its first element, the sum of the
//     squares of these, and the plain sum of its elements. The first element is one of at most 128,
//     so the squares are at most 129 times their part of the result.
//  2. An accumulator of n elements has the mean `first + distances / n`. The sum of squared
//     distances from it is `squares - distances * (distances / n)`.
//  3. Two such parts of m and n elements, d apart, are combined: their squares are added to
//     d * d * (m * (n / (m + n))), and the mean is the first one's plus d * (n / (m + n)).
// Elements that are equal have the variance 0. A mean beside a variance is the plain sum over the
// length, as in mean().
//
// Note [Repeated variances]
// The sum of elements, their distances from each other, and the squares of these may exceed the
// dtype where the variance or its root does not. So the results that are not finite are computed
// again, in f64. Elements of f64 are multiplied by 2^-600. The row's first element is taken from
// each:
//  1. Element k is added to the sum of lane k % 128, in increasing order of k. A tree combines the
//     lanes as it does in Note [Reduction order]. The sum over the length is the mean.
//  2. The squared distances from the mean are added in the same order.
//  3. The sum is divided by the divisor. A standard deviation is its root. A power of two is
//     taken back, and the result is rounded to the dtype.
// The results of a row with an infinite element or a NaN stay.

// Writes variances of `in`, or with `is_root` standard deviations, along every dim in which `out`
// has size 1: the sum of squared distances from the mean over `divisor`. `means` gets the means;
// null data skips it. All have the same ndim and floating dtype; `means` is laid out like `out`.
void variance(const Target& target, bool is_root, const TensorRef& out, const TensorRef& means,
              const TensorRef& in, double divisor);

namespace host {
// Repeats the results of `plan` that are not finite.
void repeat_variances(const ReducePlan& plan);
}  // namespace host

namespace cuda {
void repeat_variances(void* stream, const ReducePlan& plan);
}  // namespace cuda

}  // namespace gantry::kernels
