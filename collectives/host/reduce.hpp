#pragma once

#include <cstdint>
#include <span>

#include <gantry/core/dtype.hpp>

#include "collectives/reduction.hpp"

namespace gantry {

// Reduces any number of contiguous arrays in host memory on the calling thread, in rank order:
// out = round(reduce(scale · inputs) / divisor). `out` may be one of the inputs. Only floating
// dtypes use `scale`. The bits equal the bits of kernels::nary.
void reduce_on_host(const NaryReduction& how, double scale, void* out,
                    std::span<const void* const> inputs, std::int64_t count, DType dtype);

}  // namespace gantry
