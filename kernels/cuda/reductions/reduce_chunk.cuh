// Parts that the reduction kernels of all layouts share.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/accumulators.cuh"
#include "kernels/cuda/reductions/device_reducers.cuh"
#include "kernels/cuda/reductions/distant_offset.cuh"
#include "kernels/cuda/reductions/last_block.cuh"
#include "kernels/cuda/reductions/reduced_outputs.cuh"

namespace gantry::kernels::cuda {

namespace {

constexpr int kAccumulators = kReduceAccumulators;
// Threads of a block that reduces rows: one per accumulator.
constexpr int kRowThreads = kAccumulators;
// Loads in flight per thread.
constexpr int kBatch = 16;
constexpr int kVectorBatch = 8;
template <class In, class R>
constexpr int kDenseBatch = sizeof(In) == 8 || kHasState<R> ? 32 : 64;
// Columns whose threads fill a GPU.
constexpr std::int64_t kManyColumns = 65536;
// Bytes of the longest row that one thread reduces.
constexpr std::int64_t kTinyRowBytes = 32;
// Longest row that a warp, or a part of one, reduces without vector loads.
constexpr int kShortRow = 1024;
// Block shape of reduce_columns: columns x threads that share one column's accumulators.
constexpr int kColumns = 32;
constexpr int kColumnThreads = 8;
// Warps of such a block.
constexpr int kRowWarps = kRowThreads / 32;
// Fewest rows, or chunks, that fill a GPU with one warp per row or chunk.
constexpr std::int64_t kManyRows = 1024;
// Blocks of reduce_dense_chunks that a multiprocessor holds, and warps that run at once. More
// chunks are shared out evenly: a second round would be a small one.
constexpr int kChunkBlocks = 10;
constexpr std::int64_t kMostWarps = std::int64_t{132} * kChunkBlocks * kRowWarps;

// Blocks of `threads` threads with `registers` registers each that a multiprocessor is to hold.
// With a bound, the registers of a repetition go to the stack: Note [Small repetitions]. 0 leaves
// the number to the compiler.
template <class R, int threads, int registers>
constexpr int kBlocksOf = R::kIsRepeated ? 65536 / (threads * registers) : 0;

// The blocks of a grid of at most kMaxBlocks.
inline unsigned limited(std::int64_t blocks) {
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

// Lets the compiler know that the elements behind k are not the first of their accumulators, as far
// as they are behind.
__device__ inline void assume_position(int k) { __builtin_assume(k >= 0); }

// The elements of accumulator `j` in a chunk of `count` elements.
__device__ inline int elements_of(int count, int j) {
  return count > j ? (count - j + kAccumulators - 1) / kAccumulators : 0;
}

// The states of accumulators `j`, `j + step`, … of a chunk of `count` elements, which begins at
// element `first` of the reduction.
template <class R, int kOwn>
__device__ void close_all(const R& reducer, const typename R::Accumulator (&own)[kOwn],
                          typename R::State (&states)[kOwn], int j, int step, int count,
                          std::int64_t first) {
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    states[i] = reducer.close(own[i], elements_of(count, j + i * step), first);
  }
}

__device__ inline int chunk_length(const ReducePlan& plan, std::int64_t chunk) {
  const std::int64_t rest = plan.length - chunk * kReduceChunk;
  return static_cast<int>(rest < kReduceChunk ? rest : kReduceChunk);
}

// True if R has the state of one element.
template <class In, class R>
constexpr bool kHasOnly = requires(const R& reducer) {
  reducer.only(In{});
};

// The state of element `k` of a chunk, which is alone in its accumulator.
template <class R, class In>
__device__ typename R::State state_of(const R& reducer, In element, int k) {
  if constexpr (kHasOnly<In, R>) {
    return reducer.only(element);
  } else {
    auto own = reducer.start();
    reducer.take(own, element, k);
    return reducer.close(own, 1, 0);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
