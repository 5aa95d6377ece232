// Reductions of few long columns on the GPU: each thread has one accumulator of a column.
#pragma once

#include "kernels/cuda/reductions/narrow_columns.hpp"
#include "kernels/cuda/reductions/reduce_columns.cuh"

namespace gantry::kernels::cuda {

namespace {

// Note [Narrow columns]
// A chunk of a column has 128 accumulators, and reduce_columns has several of them in a thread. A
// few columns are a few of its blocks, in which the reads of one chunk follow each other for most
// of the time. Here a column has as many threads as accumulators, with many reads of each under
// way, and a block has few columns.

constexpr int kNarrowThreads = kNarrowColumns * kAccumulators;
// Elements of a thread that are under way: 64 bytes at most, as a thread of 1024 has 64 registers.
template <class In>
constexpr int kNarrowBatch = sizeof(In) < 4 ? 16 : 64 / static_cast<int>(sizeof(In));

// The chunk of a column that begins at element `first` of it, in a block of columns x 128 threads:
// `count` elements, which are `stride` apart. Every thread calls; the threads of accumulator 0 get
// the results.
template <class In, class Acc, class R>
__device__ Acc reduce_narrow(const R& reducer, Acc (&shared)[kNarrowThreads], const In* column,
                             std::int64_t stride, int count, std::int64_t first) {
  const int columns = static_cast<int>(blockDim.x);
  const int own = static_cast<int>(threadIdx.y);
  __builtin_assume(own >= 0 && own < kAccumulators);
  const int rows = elements_of(count, own);
  auto accumulator = reducer.start();
  load_rows<In, kNarrowBatch<In>>(column + own * stride, kAccumulators * stride, rows,
                                  [&](int, const In& element, int n) {
                                    reducer.take(accumulator, element, own + n * kAccumulators);
                                  });
  Acc state = reducer.close(accumulator, rows, first);
  const int at = static_cast<int>(threadIdx.x) + own * columns;
  __syncthreads();  // the previous call may still read the shared array
  shared[at] = state;
  for (int half = kAccumulators / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < half) {
      state = reducer.combine(state, shared[at + half * columns]);
      shared[at] = state;
    }
  }
  return reducer.finish(state);
}

// A block reduces one chunk of neighbouring columns, and the last of their blocks merges them.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kNarrowThreads, 1)
    reduce_narrow_columns(const __grid_constant__ ReducePlan plan, const R reducer) {
  __shared__ Acc shared[kNarrowThreads];
  const std::int64_t columns = blockDim.x;
  const std::int64_t tiles = (plan.outputs + columns - 1) / columns;
  const std::int64_t chunk = blockIdx.x / tiles;
  const std::int64_t tile = blockIdx.x - chunk * tiles;
  const std::int64_t output = tile * columns + threadIdx.x;
  const bool is_present = output < plan.outputs;
  const std::int64_t stride = plan.reduced.strides[0];
  const In* column = static_cast<const In*>(plan.in) + chunk * kReduceChunk * stride;
  if (is_present) column += distant_offset(plan.kept, output);
  const Acc result =
      reduce_narrow(reducer, shared, column, stride, is_present ? chunk_length(plan, chunk) : 0,
                    chunk * kReduceChunk);
  const bool is_writer = is_present && threadIdx.y == 0;
  if (is_writer) write_result<R>(plan, output, chunk, result);
  if (!plan.merges ||
      !is_last_block(plan.counters, tile, static_cast<std::uint32_t>(plan.chunks))) {
    return;
  }
  merge_column<Acc>(reducer, plan, output, is_present, is_writer,
                    [&](const Acc* partials, int count, std::int64_t first) {
                      return reduce_narrow(reducer.merge(), shared, partials,
                                           plan.partial_chunk_stride, count, first);
                    });
}

}  // namespace

}  // namespace gantry::kernels::cuda
