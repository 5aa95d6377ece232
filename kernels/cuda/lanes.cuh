#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/reduce_plan.hpp"

namespace gantry::kernels::cuda {

// The last step of Note [Reduction order]: halving the 128 lanes of a segment, for the ways in
// which kernels spread them over threads. Lanes without an element hold reducer.neutral().

// Lane j += lane j + 16, 8, 4, 2, 1 within groups of `group` threads of a warp; every thread of the
// warp calls. The group's first thread gets the result.
template <class R, class Acc>
__device__ Acc halve_in_group(const R& reducer, Acc value, int group) {
  for (int half = group / 2; half > 0; half /= 2) {
    value = reducer.combine(value, __shfl_down_sync(0xffffffffu, value, half, group));
  }
  return value;
}

// Each of 32 threads has the lanes t, t + 32, t + 64, t + 96 (fewer threads: only the first).
template <class R, class Acc>
__device__ Acc combine_warp_lanes(const R& reducer, const Acc (&own)[4], int group) {
  const Acc lower = reducer.combine(own[0], own[2]);
  const Acc upper = reducer.combine(own[1], own[3]);
  return halve_in_group(reducer, reducer.combine(lower, upper), group);
}

// A block of 128 threads with one lane each; every thread calls, thread 0 gets the result.
template <class R, class Acc>
__device__ Acc combine_block_lanes(const R& reducer, Acc lane) {
  __shared__ Acc lanes[kReduceLanes];
  __syncthreads();  // the block's last result may still be being read
  lanes[threadIdx.x] = lane;
  __syncthreads();
  if (threadIdx.x >= 32) return lane;
  const int t = static_cast<int>(threadIdx.x);
  const Acc own[4] = {lanes[t], lanes[t + 32], lanes[t + 64], lanes[t + 96]};
  return combine_warp_lanes(reducer, own, 32);
}

// A block of C x T threads in which thread (c, t) has the lanes t, t + T, t + 2 T, … of column c;
// every thread calls, the threads (c, 0) get the results.
template <class R, class Acc, int kOwn, int T, int C>
__device__ Acc combine_column_lanes(const R& reducer, Acc (&own)[kOwn], Acc (&shared)[T][C]) {
  static_assert(kOwn * T == kReduceLanes);
#pragma unroll
  for (int half = kOwn / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) own[i] = reducer.combine(own[i], own[i + half]);
  }
  __syncthreads();
  shared[threadIdx.y][threadIdx.x] = own[0];
  __syncthreads();
  if (threadIdx.y != 0) return own[0];
  Acc lanes[T];
#pragma unroll
  for (int t = 0; t < T; ++t) lanes[t] = shared[t][threadIdx.x];
#pragma unroll
  for (int half = T / 2; half > 0; half /= 2) {
#pragma unroll
    for (int t = 0; t < half; ++t) lanes[t] = reducer.combine(lanes[t], lanes[t + half]);
  }
  return lanes[0];
}

}  // namespace gantry::kernels::cuda
