#pragma once

#include <cstdint>

#include <gantry/core/scalar.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Copies `in` to `out` and converts it to out's dtype (see convert.hpp). Sizes are equal; strides
// are arbitrary. `in` may be on a peer device with access enabled.
void copy(const Target& target, const TensorRef& out, const TensorRef& in);

// Sets every element to `value`.
void fill(const Target& target, const TensorRef& out, const Scalar& value);

// Sets element i to start + (first + i) * step, computed in f64 for floating dtypes and in i64 for
// integers, and converted once. `out` is 1-D.
void arange(const Target& target, const TensorRef& out, const Scalar& start, const Scalar& step,
            std::int64_t first = 0);

// Copies the elements on and below (`lower`) or on and above the given diagonal of the last two
// dims. Sets the others to 0.
void triangle(const Target& target, const TensorRef& out, const TensorRef& in, bool lower,
              std::int64_t diagonal);

}  // namespace gantry::kernels
