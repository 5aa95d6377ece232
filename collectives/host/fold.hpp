#pragma once

#include <cstdint>
#include <span>

#include <gantry/core/dtype.hpp>

#include "collectives/folding.hpp"

namespace gantry {

// The left fold of collectives/reduce_op.hpp on the calling thread, over any number of contiguous
// arrays in host memory: out = round(fold(scale · inputs) / divisor). `out` may be one of the
// inputs. `scale` counts for floating dtypes only. Bits equal those of kernels::nary.
void fold_on_host(const Folding& how, double scale, void* out, std::span<const void* const> inputs,
                  std::int64_t count, DType dtype);

}  // namespace gantry
