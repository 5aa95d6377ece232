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

  __device__ void offsets(std::uint32_t index, std::int64_t (&result)[N]) const {
    for (int k = 0; k < N; ++k) result[k] = 0;
#pragma unroll
    for (int dim = 0; dim < kMaxDims; ++dim) {
      if (dim == ndim - 1) {
        for (int k = 0; k < N; ++k) result[k] += static_cast<std::int64_t>(index) * strides[dim][k];
        return;
      }
      const std::uint32_t quotient = sizes[dim].divide(index);
      const std::uint32_t rest = index - quotient * sizes[dim].divisor;
      for (int k = 0; k < N; ++k) result[k] += static_cast<std::int64_t>(rest) * strides[dim][k];
      index = quotient;
    }
  }
};

}  // namespace gantry::kernels::cuda
