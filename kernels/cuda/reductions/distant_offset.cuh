#pragma once

#include <cstdint>

#include "kernels/strided_index.hpp"

namespace gantry::kernels::cuda {

namespace {

// dims.offset(i). Not inlined: unrolled loops would each get a copy of the divisions, more than the
// instruction cache holds.
__device__ __noinline__ std::int64_t distant_offset(const StridedIndex& dims, std::int64_t i) {
  return dims.offset(i);
}

// dims.offset(i), of at most one dim without a call.
__device__ inline std::int64_t near_offset(const StridedIndex& dims, std::int64_t i) {
  return dims.ndim <= 1 ? i * dims.strides[0] : distant_offset(dims, i);
}

}  // namespace

}  // namespace gantry::kernels::cuda
