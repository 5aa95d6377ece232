// Note [Merge in the last block]
// A block writes its chunk's result, then increments a counter. The block with the last increment
// reads the results of all chunks, merges them in a fixed order, and resets the counter. The bits
// do not depend on which block is last, because the order is fixed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/reductions/merge_counters.hpp"

namespace gantry::kernels::cuda {

namespace {

__device__ std::uint32_t stream_counters[kCountedStreams][kStreamCounters];

// Counts the calling block among the `blocks` that share counter `at`. Every thread calls, after
// the block's results are written. True in every thread of the block that counts last; it sees the
// results of all.
__device__ inline bool is_last_block(const MergeCounters& counters, std::int64_t at,
                                     std::uint32_t blocks) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    std::uint32_t* counter = counters.memory != nullptr ? counters.memory + at
                                                        : &stream_counters[counters.stream_id][at];
    is_last = atomicInc(counter, blocks - 1) == blocks - 1;
  }
  __syncthreads();
  if (is_last) __threadfence();
  return is_last;
}

}  // namespace

}  // namespace gantry::kernels::cuda
