// What the reduction kernels of all layouts share.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reductions/accumulators.cuh"
#include "kernels/cuda/reductions/device_reducers.cuh"
#include "kernels/cuda/reductions/distant_offset.cuh"
#include "kernels/cuda/reductions/last_block.cuh"

namespace gantry::kernels::cuda {

namespace {

constexpr int kAccumulators = kReduceAccumulators;
// Threads of a block that reduces rows: one per accumulator.
constexpr int kRowThreads = kAccumulators;
// Loads in flight per thread.
constexpr int kBatch = 16;
constexpr int kVectorBatch = 8;
template <class In>
constexpr int kDenseBatch = sizeof(In) == 8 ? 32 : 64;
// Longest column that one thread reduces, with every element in a register.
constexpr int kFew = 16;
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

// The value of any and all from a count of non-zeros; every other value is itself.
template <class Acc>
__device__ Acc answer(const ReducePlan& plan, Acc value) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    if (plan.op == Reduction::any) return value != 0;
    if (plan.op == Reduction::all) return value == plan.total_length;
  }
  return value;
}

template <class Acc>
__device__ __noinline__ void write_output(const ReducePlan& plan, std::int64_t output, Acc value) {
  store_reduced(plan.out, plan.kept_out.offset(output), plan.out_dtype, answer(plan, value),
                plan.divisor);
}

template <class Acc>
__device__ void write_result(const ReducePlan& plan, std::int64_t output, std::int64_t chunk,
                             Acc value) {
  if (plan.chunks == 1) {
    write_output(plan, output, value);
  } else {
    static_cast<Acc*>(
        plan.partials)[output * plan.partial_output_stride + chunk * plan.partial_chunk_stride] =
        value;
  }
}

__device__ inline int chunk_length(const ReducePlan& plan, std::int64_t chunk) {
  const std::int64_t rest = plan.length - chunk * kReduceChunk;
  return static_cast<int>(rest < kReduceChunk ? rest : kReduceChunk);
}

}  // namespace

}  // namespace gantry::kernels::cuda
