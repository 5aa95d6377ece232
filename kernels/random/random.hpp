#pragma once

#include <cstdint>

#include <gantry/kernels/philox.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// A generator's position. Element i draws from (seed, offset, i) by the convention of philox.hpp.
// The index i counts the elements of `out` in row-major order, whatever its strides.
using RandomPosition = PhiloxPosition;

// Writes seed and offset to `words`, two u64 of the target's device: a RandomPosition's `replay`.
void store_position(const Target& target, std::uint64_t* words, RandomPosition at);

// Uniform on [low, high). DTypes: floating. f32 uses the upper 24 bits of one word, f64 53 bits of
// two.
void uniform(const Target& target, const TensorRef& out, RandomPosition at, double low,
             double high);

// Normal, by Box-Muller in f32 (f64 for f64). DTypes: floating.
void normal(const Target& target, const TensorRef& out, RandomPosition at, double mean,
            double standard_deviation);

// Uniform integers on [low, high), by the multiply-high of a 64-bit draw. DTypes: all.
void randint(const Target& target, const TensorRef& out, RandomPosition at, std::int64_t low,
             std::int64_t high);

// 1 with the given probability, else 0. DTypes: all. `probability` is a floating tensor of out's
// sizes (strides of 0 broadcast).
void bernoulli(const Target& target, const TensorRef& out, const TensorRef& probability,
               RandomPosition at);

// A permutation of 0 … n-1: the indices, sorted stably by their 64-bit draws. `out` is 1-D
// contiguous i64.
void randperm(const Target& target, const TensorRef& out, RandomPosition at);

}  // namespace gantry::kernels
