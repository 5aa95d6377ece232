#pragma once

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/reductions/reduce_plan.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Repeated variances]
// The sum of elements, their distances from its mean, and the squares of these may exceed the dtype
// where the variance or its root does not. So the results that are not finite are computed again,
// in f64. Elements of f64 are multiplied by 2^-600. The row's first element is taken from each:
//  1. Element k is added to the sum of lane k % 128, in increasing order of k. A tree combines the
//     lanes as it does in Note [Reduction order]. The sum over the length is the mean.
//  2. The squared distances from the mean are added in the same order.
//  3. The sum is divided by the divisor. A standard deviation is its root. A power of two is
//     taken back, and the result is rounded to the dtype.
// The results of a row with an infinite element or a NaN stay.

// Repeats the results of `out`, f32 or f64, that are not finite: variances of `in`, or with
// `is_root` standard deviations, along every dim in which `out` has size 1. Both have the same
// ndim. `in` is of a floating dtype, `out` is contiguous.
void repeat_variances(const Target& target, const TensorRef& out, const TensorRef& in,
                      double divisor, bool is_root);

namespace host {
void repeat_variances(const ReducePlan& plan, bool is_root);
}  // namespace host

namespace cuda {
void repeat_variances(void* stream, const ReducePlan& plan, bool is_root);
}  // namespace cuda

}  // namespace gantry::kernels
