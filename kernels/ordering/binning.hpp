#pragma once

#include <cstdint>

#include <gantry/core/scalar.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// All operands are contiguous.

// Writes where each value belongs in a sorted sequence: the number of its elements below the value,
// or with `right` the number of those not above it. Note [Element order]. `sequences` is 1-D, or
// it has the other dims of `values`. `out` is i32 or i64.
void searchsorted(const Target& target, const TensorRef& out, const TensorRef& sequences,
                  const TensorRef& values, bool right);

// Adds to counts[v] the number of elements v of `in`. Elements outside are not counted. `in` is of
// an integer dtype or bool, `counts` i64.
void count_values(const Target& target, const TensorRef& counts, const TensorRef& in);

// Adds to each element of `counts`, i64, the elements of `in` in its part of [low, high]. The parts
// have one width; the last one includes `high`. `in` is of a floating dtype, or of an integer
// dtype, whose parts are exact. low < high.
void count_bins(const Target& target, const TensorRef& counts, const TensorRef& in,
                const Scalar& low, const Scalar& high);

// For `runs`, i64, the number of the run that each element of a sequence belongs to: writes the
// position at which each run starts. If `inverse` has data, also the run of element order[k] is
// written to inverse[order[k]]. All are i64.
void run_starts(const Target& target, const TensorRef& starts, const TensorRef& inverse,
                const TensorRef& runs, const TensorRef& order);

// Writes the first element of every run of equal neighbours of `in`, 1-D, to `out`, which has its
// size, and the number of runs to `count`, i64. Zeros are equal, and NaNs equal nothing. A bool is
// 0 or 1.
void first_of_runs(const Target& target, const TensorRef& out, const TensorRef& count,
                   const TensorRef& in);

}  // namespace gantry::kernels
