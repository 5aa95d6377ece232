// Note [Merge in the last block]
// A block writes its chunk's result, then increments a counter. The block with the last increment
// reads the results of all chunks, merges them in a fixed order, and resets the counter. The bits
// do not depend on which block is last, because the order is fixed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/reductions/merge_counters.hpp"
#include "kernels/reductions/reduce_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

__device__ std::uint32_t stream_counters[kCountedStreams][kStreamCounters];

// A result that another block has written before the calling block was the last.
template <class State>
__device__ State load_result(const State* result) {
  if constexpr (std::is_arithmetic_v<State>) {
    return __ldcg(result);
  } else {
    return *result;
  }
}

// Calls merge(chunk, n) for each chunk of `count` results, level by level, until one chunk is left;
// merge puts what it makes of chunk c in the place of result c. Returns the results that are left.
// The last block calls with all its threads.
template <class Merge>
__device__ int merge_levels(int count, const Merge& merge) {
  while (count > kReduceChunk) {
    const int chunks = static_cast<int>((count + kReduceChunk - 1) / kReduceChunk);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int rest = count - chunk * static_cast<int>(kReduceChunk);
      __syncthreads();  // every thread has read the results that are replaced
      merge(chunk, rest < kReduceChunk ? rest : static_cast<int>(kReduceChunk));
    }
    __syncthreads();
    count = chunks;
  }
  return count;
}

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
