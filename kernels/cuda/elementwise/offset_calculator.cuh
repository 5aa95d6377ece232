// Offsets of strided operands, computed on the GPU.
#pragma once

#include <cstdint>

#include "kernels/strided.hpp"

namespace gantry::kernels::cuda {

// Converts a linear index to the operands' offsets, for plans of fewer than 2^31 elements.
template <int N>
struct OffsetCalculator {
  std::int32_t ndim = 0;
  FastDivisor sizes[kMaxDims];
  std::int64_t strides[kMaxDims][N];

  OffsetCalculator() = default;
  explicit OffsetCalculator(const StridedPlan<N>& plan) : ndim(plan.ndim) {
    for (int dim = 0; dim < kMaxDims; ++dim) {
      if (dim < ndim) sizes[dim] = FastDivisor(static_cast<std::uint32_t>(plan.sizes[dim]));
      for (int k = 0; k < N; ++k) strides[dim][k] = plan.strides[dim][k];
    }
  }

  // Returns the number of positions from `index` to the end of its row, the innermost dim.
  __device__ std::uint32_t offsets(std::uint32_t index, std::int64_t (&result)[N]) const {
    for (int k = 0; k < N; ++k) result[k] = 0;
    std::uint32_t left = sizes[0].divisor - index;
#pragma unroll
    for (int dim = 0; dim < kMaxDims; ++dim) {
      if (dim == ndim - 1) {
        for (int k = 0; k < N; ++k) result[k] += static_cast<std::int64_t>(index) * strides[dim][k];
        return left;
      }
      const std::uint32_t quotient = sizes[dim].divide(index);
      const std::uint32_t rest = index - quotient * sizes[dim].divisor;
      if (dim == 0) left = sizes[0].divisor - rest;
      for (int k = 0; k < N; ++k) result[k] += static_cast<std::int64_t>(rest) * strides[dim][k];
      index = quotient;
    }
    return left;
  }
};

}  // namespace gantry::kernels::cuda
