#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

#include "kernels/peers/nary.hpp"
#include "kernels/target.hpp"

namespace gantry {

// The kernel operation and the divisor of a ReduceOp.
struct NaryReduction {
  kernels::NaryOp op;
  double divisor;
};

// Returns the reduction that computes `op` over `count` inputs of `dtype`.
// Throws: DTypeError, prefixed with `where`, if the op is not defined for the dtype.
NaryReduction reduction_for(ReduceOp op, DType dtype, int count, std::string_view where);

// Note [Passes]
// A kernel reduces up to 64 arrays. More arrays take several passes, which hand the partial result
// on through memory. The bits equal the bits of one pass if an element can hold the accumulator.
// f16 and bf16 accumulate in f32. So more than 64 arrays of these are converted first.

// True if reduce_in_passes() takes `inputs` arrays of `dtype`.
bool fits_passes(DType dtype, std::size_t inputs);

// Reduces any number of arrays into `out`, in their order: see kernels::nary(). Requires
// fits_passes(). `out` may be one of the first kernels::kMaxNaryInputs inputs.
void reduce_in_passes(const kernels::Target& target, const NaryReduction& how, void* out,
                      std::span<const void* const> inputs, std::int64_t count, DType dtype);

// The same for several reductions: see kernels::nary_batched(). No item's `out` is an input.
void reduce_items_in_passes(const kernels::Target& target, const NaryReduction& how,
                            std::span<const kernels::NaryItem> items,
                            std::span<const void* const> inputs, DType dtype);

}  // namespace gantry
