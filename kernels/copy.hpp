#pragma once

#include <cstdint>

#include <gantry/core/scalar.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// out = in converted to out's dtype; equal sizes, any strides. Float to integer truncates toward
// zero and saturates (NaN gives 0); to bool tests for non-zero; integers wrap. `in` may live on a
// peer device with access enabled.
void copy(const Target& target, const TensorRef& out, const TensorRef& in);

// Every element becomes `value`, converted once.
void fill(const Target& target, const TensorRef& out, const Scalar& value);

// Element i becomes start + (first + i) * step, computed in f64 for floating types and i64 for
// integers, and converted once. `out` is 1-D.
void arange(const Target& target, const TensorRef& out, const Scalar& start, const Scalar& step,
            std::int64_t first = 0);

// Keeps the elements on and below diagonal `diagonal` (lower) or on and above it (upper) of the
// last two dims and writes 0 elsewhere.
void triangle(const Target& target, const TensorRef& out, const TensorRef& in, bool lower,
              std::int64_t diagonal);

}  // namespace gantry::kernels
