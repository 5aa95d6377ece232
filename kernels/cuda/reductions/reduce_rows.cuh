// Reductions of rows on the GPU: dense, strided and of several dims.
#pragma once

#include "kernels/cuda/reductions/reduce_chunk.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

// A block of kRowThreads threads reduces `count` results that are `stride` apart. Thread 0 gets the
// result.
template <class R, class Acc>
__device__ Acc merge_row(const R& reducer, const Acc* partials, std::int64_t stride, int count) {
  Acc accumulator = reducer.start();
  int k = static_cast<int>(threadIdx.x);
  const auto merge = [&](auto in_flight, int end) {
    constexpr int kInFlight = decltype(in_flight)::value;
    for (; k < end; k += kInFlight * kAccumulators) {
      Acc batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int at = k + i * kAccumulators;
        batch[i] = at < count ? load_result(partials + at * stride) : Acc{};
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int at = k + i * kAccumulators;
        if (at < count) reducer.take(accumulator, batch[i], at);
      }
    }
  };
  // The other blocks have ended: a round of loads waits its full time.
  constexpr int kMany = 16;
  if constexpr (sizeof(Acc) == 4) {
    merge(std::integral_constant<int, kMany>{}, count - (kMany - 1) * kAccumulators);
  }
  merge(std::integral_constant<int, 8>{}, count);
  return reducer.finish(combine_block_accumulators(reducer, accumulator));
}

// Ends a block of a row kernel: the last of the output's `blocks` merges.
template <class R, class Acc>
__device__ void finish_row(const R& reducer, const ReducePlan& plan, std::int64_t output,
                           std::uint32_t blocks) {
  if (!plan.merges || !is_last_block(plan.counters, output, blocks)) return;
  Acc* partials = static_cast<Acc*>(plan.partials) + output * plan.partial_output_stride;
  const std::int64_t stride = plan.partial_chunk_stride;
  int count = static_cast<int>(plan.chunks);
  if constexpr (kHasState<R>) {
    count = merge_levels(count, [&](std::int64_t chunk, int n) {
      const Acc result =
          merge_row(reducer.merge(), partials + chunk * kReduceChunk * stride, stride, n);
      if (threadIdx.x == 0) partials[chunk * stride] = result;
    });
  }
  const Acc result = merge_row(reducer.merge(), partials, stride, count);
  if (threadIdx.x == 0) write_output<R>(plan, output, result);
}

// `group` threads of a warp (a power of two) reduce `count` dense elements. Thread t has the
// accumulators 4 t … 4 t + 3, which one vector load fills. With fewer than 32 threads, `count` is
// at most 4 * group. Every thread of the warp calls; the group's first thread gets the result. The
// chunk begins at element `first` of the row.
template <class R, class In, class Acc>
__device__ Acc reduce_dense_chunk(const R& reducer, const In* in, int count, std::int64_t first,
                                  int lane, int group) {
  using Vector = StoredPack<In, 4>;
  const Vector* vectors = reinterpret_cast<const Vector*>(in) + lane;
  typename R::Accumulator own[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) own[i] = reducer.start();
  int k = 4 * lane;
  const auto add = [&](const Vector& vector) {
#pragma unroll
    for (int i = 0; i < 4; ++i) reducer.take(own[i], vector.values[i], k + i);
    k += kAccumulators;
  };
  int rest = count;
  for (; rest >= kVectorBatch * kAccumulators; rest -= kVectorBatch * kAccumulators) {
    assume_position(k);
    Vector batch[kVectorBatch];
#pragma unroll
    for (int i = 0; i < kVectorBatch; ++i) batch[i] = vectors[i * 32];
#pragma unroll
    for (int i = 0; i < kVectorBatch; ++i) add(batch[i]);
    vectors += kVectorBatch * 32;
  }
#pragma unroll 4
  for (; rest >= kAccumulators; rest -= kAccumulators, vectors += 32) add(*vectors);
  rest -= 4 * lane;
  if (rest >= 4) {
    add(*vectors);
  } else {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      if (i < rest) {
        const In element = reinterpret_cast<const In*>(vectors)[i];
        reducer.take(own[i], element, k + i);
      }
    }
  }
  Acc states[4];
  close_all(reducer, own, states, 4 * lane, 1, count, first);
  if constexpr (kHasState<R>) {
    return reducer.finish(reduce_four_in_group(reducer, states, lane, group));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) states[i] = reduce_in_group(reducer, states[i], group);
    return reducer.finish(reducer.combine(reducer.combine(states[0], states[2]),
                                          reducer.combine(states[1], states[3])));
  }
}

// A group of threads per dense row of at most one chunk: a warp, or fewer threads for rows of fewer
// than 128 elements.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kRowThreads, kBlocksOf<R, kRowThreads, 64>)
    reduce_dense_rows(const __grid_constant__ ReducePlan plan, const R reducer, int group) {
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int per_block = kRowThreads / group;
  const std::int64_t groups = static_cast<std::int64_t>(gridDim.x) * per_block;
  std::int64_t output = static_cast<std::int64_t>(blockIdx.x) * per_block + threadIdx.x / group;
  // Threads without a row stay in the loop: a warp's shuffles need all of its threads.
  const std::int64_t rounds = (plan.outputs + groups - 1) / groups;
  for (std::int64_t round = 0; round < rounds; ++round, output += groups) {
    const bool is_present = output < plan.outputs;
    const In* row = static_cast<const In*>(plan.in);
    if (is_present) row += distant_offset(plan.kept, output);
    const int count = is_present ? static_cast<int>(plan.length) : 0;
    const Acc result = reduce_dense_chunk<R, In, Acc>(reducer, row, count, 0, lane, group);
    if (is_present && lane == 0) write_output<R>(plan, output, result);
  }
}

// A warp per `per_warp` chunks of a dense row; a block has chunks of one row. For elements
// of fewer than 4 bytes, of which a thread of reduce_rows has too few in flight.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kRowThreads, kChunkBlocks)
    reduce_dense_chunks(const __grid_constant__ ReducePlan plan, const R reducer,
                        std::uint32_t blocks_per_row, int per_warp) {
  const std::int64_t output = blockIdx.x / blocks_per_row;
  std::int64_t chunk =
      (static_cast<std::int64_t>(blockIdx.x % blocks_per_row) * kRowWarps + threadIdx.x / 32) *
      per_warp;
  const std::int64_t end = chunk + per_warp < plan.chunks ? chunk + per_warp : plan.chunks;
  for (; chunk < end; ++chunk) {
    const In* in =
        static_cast<const In*>(plan.in) + distant_offset(plan.kept, output) + chunk * kReduceChunk;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Acc result = reduce_dense_chunk<R, In, Acc>(reducer, in, chunk_length(plan, chunk),
                                                      chunk * kReduceChunk, lane, 32);
    if (lane == 0) write_result<R>(plan, output, chunk, result);
  }
  finish_row<R, Acc>(reducer, plan, output, blocks_per_row);
}

// The elements of one chunk for a thread that takes every 128th. Offset(i) is the position of
// element i of the chunk.
template <int kInFlight, class In, class R, class Offset>
__device__ void reduce_every_128th(const R& reducer, const In* in, int count,
                                   typename R::Accumulator& accumulator, const Offset& offset) {
  int k = static_cast<int>(threadIdx.x);
  for (; k + (kInFlight - 1) * kAccumulators < count; k += kInFlight * kAccumulators) {
    assume_position(k);
    In batch[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) batch[i] = in[offset(k, i)];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) reducer.take(accumulator, batch[i], k + i * kAccumulators);
  }
#pragma unroll 4
  for (; k < count; k += kAccumulators) reducer.take(accumulator, in[offset(k, 0)], k);
}

// How a block of reduce_rows finds the elements of a chunk.
enum class RowLayout { dense, strided, dims };

// Blocks of reduce_rows that a multiprocessor is to hold; 0 leaves it to the compiler.
template <class In, class R, RowLayout kLayout>
constexpr int kRowBlocks = kLayout == RowLayout::dense && sizeof(In) <= 4 && !kHasState<R>
                               ? R::kIsRepeated ? 8 : 10
                               : kBlocksOf<R, kRowThreads, 64>;

// A block of 128 threads, one per accumulator, reduces one chunk of one row. A warp per chunk would
// have wide loads, but read from four times as many places at a time, which memory is slower at.
// There are many more blocks than run at a time, so they end at about the same time.
template <class In, class Acc, class R, RowLayout kLayout>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<In, R, kLayout>)
    reduce_rows(const __grid_constant__ ReducePlan plan, const R reducer) {
  const std::int64_t tasks = plan.outputs * plan.chunks;
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const std::int64_t output = plan.chunks == 1    ? task
                                : plan.outputs == 1 ? 0
                                                    : task / plan.chunks;
    const std::int64_t chunk = plan.chunks == 1 ? 0 : task - output * plan.chunks;
    const std::int64_t first = chunk * kReduceChunk;
    const In* row = static_cast<const In*>(plan.in) + distant_offset(plan.kept, output);
    auto accumulator = reducer.start();
    const int count = chunk_length(plan, chunk);
    if constexpr (kLayout == RowLayout::dense) {
      reduce_every_128th<kDenseBatch<In, R>>(reducer, row + first, count, accumulator,
                                             [](int k, int i) { return k + i * kAccumulators; });
    } else if constexpr (kLayout == RowLayout::strided) {
      const std::int64_t step = stride * kAccumulators;
      reduce_every_128th<kBatch>(reducer, row + first * stride, count, accumulator,
                                 [&](int k, int i) { return k * stride + i * step; });
    } else {
      reduce_every_128th<4>(reducer, row, count, accumulator, [&](int k, int i) {
        return distant_offset(plan.reduced, first + k + i * kAccumulators);
      });
    }
    const Acc state =
        reducer.close(accumulator, elements_of(count, static_cast<int>(threadIdx.x)), first);
    const Acc result = reducer.finish(combine_block_accumulators(reducer, state));
    if (threadIdx.x == 0) write_result<R>(plan, output, chunk, result);
    finish_row<R, Acc>(reducer, plan, output, static_cast<std::uint32_t>(plan.chunks));
  }
}

// A group of `group` threads (a power of two, at most a warp) reduces one short row. With 32
// threads, each has 4 of the 128 accumulators.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kThreads, kBlocksOf<R, kThreads, 64>)
    reduce_short_rows(const __grid_constant__ ReducePlan plan, const R reducer, int group) {
  constexpr int kOwn = 4;
  constexpr int kInFlight = 2 * kOwn;
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int per_block = kThreads / group;
  const std::int64_t groups = static_cast<std::int64_t>(gridDim.x) * per_block;
  std::int64_t output = static_cast<std::int64_t>(blockIdx.x) * per_block + threadIdx.x / group;
  const std::int64_t stride = plan.reduced.strides[0];
  // Threads without a row stay in the loop: a warp's shuffles need all of its threads.
  const std::int64_t rounds = (plan.outputs + groups - 1) / groups;
  for (std::int64_t round = 0; round < rounds; ++round, output += groups) {
    const bool is_present = output < plan.outputs;
    const In* row = static_cast<const In*>(plan.in) + lane * stride;
    if (is_present) row += distant_offset(plan.kept, output);
    typename R::Accumulator own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = reducer.start();
    const int count = is_present ? static_cast<int>(plan.length) : 0;
    int k = lane;
    for (int rest = count - lane; rest > 0; rest -= kInFlight * 32) {
      assume_position(k);
      In batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * 32 < rest) batch[i] = row[i * 32 * stride];
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        if (i * 32 < rest) reducer.take(own[i % kOwn], batch[i], k + i * 32);
      }
      row += kInFlight * 32 * stride;
      k += kInFlight * 32;
    }
    Acc states[kOwn];
    close_all(reducer, own, states, lane, 32, count, 0);
    const Acc result = reducer.finish(combine_warp_accumulators(reducer, states, group));
    if (is_present && lane == 0) write_output<R>(plan, output, result);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
