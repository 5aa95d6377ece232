// Reductions of more arrays than one kernel takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/reduction.hpp"
#include "kernels/target.hpp"

namespace gantry {

// Note [Passes]
// A kernel reduces up to 64 arrays. More arrays take several passes, which hand the partial result
// on through memory. The bits equal the bits of one pass if an element can hold the accumulator.
// f16 and bf16 accumulate in f32. So more than 64 arrays of these are converted first.

// True if reduce_in_passes() takes `inputs` arrays of `dtype`.
bool fits_passes(DType dtype, std::size_t inputs);

// Reduces any number of arrays into `out`, in their order: see kernels::nary(). Requires
// fits_passes(). `out` may be one of the first kernels::kMaxNaryInputs inputs.
void reduce_in_passes(const kernels::Target& target, const Reduction& how, void* out,
                      std::span<const void* const> inputs, std::int64_t count, DType dtype);

// The same for several reductions: see kernels::nary_batched(). No item's `out` is an input.
void reduce_items_in_passes(const kernels::Target& target, const Reduction& how,
                            std::span<const kernels::NaryItem> items,
                            std::span<const void* const> inputs, DType dtype);

}  // namespace gantry
