// Parts that the reduction kernels of all layouts share.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/accumulators.cuh"
#include "kernels/cuda/reductions/device_reducers.cuh"
#include "kernels/cuda/reductions/distant_offset.cuh"
#include "kernels/cuda/reductions/last_block.cuh"
#include "kernels/math/math.hpp"
#include "kernels/reductions/wide_sum.inl"

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
// Longest column that one thread reduces, and longest if there are so many columns that their
// threads fill a GPU. A reducer with only() takes at most one element for each accumulator.
constexpr int kShortColumn = 16;
constexpr int kFewRows = 511;
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

// The value of any and all from a count of non-zeros, the root of a sum of squares; every other
// value is itself.
template <class Acc>
__device__ Acc finished(const ReducePlan& plan, Acc value) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    if (plan.op == Reduction::any) return value != 0;
    if (plan.op == Reduction::all) return value == plan.total_length;
  } else {
    if (plan.op == Reduction::norm2) return math::sqrt(value);
  }
  return value;
}

// The results that the chunks of an output have in `plan`, or that it reads.
template <class Acc>
__device__ ChunkResults<Acc> chunk_results(const ReducePlan& plan, std::int64_t output) {
  if (plan.chunks > 1 && plan.partials != nullptr) {
    const std::int64_t first = output * plan.partial_output_stride;
    return {static_cast<const Acc*>(plan.partials) + first, plan.wide_partials + first,
            plan.partial_chunk_stride, plan.chunks};
  }
  return {};
}
// The results of an earlier pass that `plan` reads for an output.
template <class Acc>
__device__ ChunkResults<Acc> earlier_results(const ReducePlan& plan, std::int64_t output) {
  const std::int64_t first = plan.kept.offset(output);
  return {static_cast<const Acc*>(plan.in) + first, plan.wide_in + first, plan.reduced.strides[0],
          plan.length};
}

// Not inlined, as said in Note [Small repetitions].
template <class R, class Acc>
__device__ __noinline__ Acc repeated_output(const ReducePlan& plan, std::int64_t output,
                                            Acc value) {
  ChunkResults<Acc> chunks = chunk_results<Acc>(plan, output);
  if (chunks.count == 0 && plan.reads_partials) chunks = earlier_results<Acc>(plan, output);
  return repeated<R::kOp>(plan.source, output, chunks, value);
}
template <class Acc>
__device__ __noinline__ void write_wide_result(const ReducePlan& plan, std::int64_t output,
                                               std::int64_t chunk) {
  const std::int64_t first = chunk * kReduceChunk;
  const std::int64_t rest = plan.length - first;
  const std::int64_t count = rest < kReduceChunk ? rest : kReduceChunk;
  plan.wide_partials[output * plan.partial_output_stride + chunk * plan.partial_chunk_stride] =
      plan.reads_partials ? earlier_results<Acc>(plan, output).sum(first, count)
                          : wide_sum(plan.source, output, first, count);
}

template <class R, class Acc>
__device__ __noinline__ void write_number(const ReducePlan& plan, std::int64_t output, Acc value) {
  if constexpr (R::kIsRepeated) {
    if (is_repeated<R>(plan, value)) value = repeated_output<R>(plan, output, value);
  }
  store_reduced(plan.out, plan.kept_out.offset(output), plan.out_dtype, finished(plan, value),
                plan.divisor);
}

template <class R, class State>
__device__ __noinline__ void write_state(const ReducePlan& plan, std::int64_t output,
                                         const State& state) {
  R::write(plan, output, state);
}

template <class R, class Acc>
__device__ void write_output(const ReducePlan& plan, std::int64_t output, const Acc& value) {
  if constexpr (kHasState<R>) {
    write_state<R>(plan, output, value);
  } else {
    write_number<R>(plan, output, value);
  }
}

template <class R, class Acc>
__device__ void write_result(const ReducePlan& plan, std::int64_t output, std::int64_t chunk,
                             const Acc& value) {
  if (plan.chunks == 1) {
    write_output<R>(plan, output, value);
  } else {
    static_cast<Acc*>(
        plan.partials)[output * plan.partial_output_stride + chunk * plan.partial_chunk_stride] =
        value;
    if constexpr (R::kIsRepeated) {
      if (!is_finite(value) && is_repeated(plan.op, plan.accumulator)) {
        write_wide_result<Acc>(plan, output, chunk);
      }
    }
  }
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

}  // namespace

}  // namespace gantry::kernels::cuda
