// Reductions of columns on the GPU, whose neighbouring outputs lie side by side in the input.
#pragma once

#include "kernels/cuda/reductions/narrow_columns.hpp"
#include "kernels/cuda/reductions/reduce_chunk.cuh"
#include "kernels/cuda/reductions/row_ring.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

// True if the compiler wants so many registers that a multiprocessor holds one block of 256
// threads. Two blocks with a few words on the stack have more loads under way.
template <class R>
constexpr bool kHasLargeState = sizeof(typename R::Accumulator) > 8;

// kColumnThreads threads reduce the chunk of one column that begins at element `first` of the
// column: `count` elements, which are `stride` apart. Thread `part` has the accumulators part,
// part + 8, …; column `c` of the block's kColumns. Every thread of the block calls; the threads
// with part 0 get the results.
template <class In, class Acc, class R>
__device__ Acc reduce_column(const R& reducer, const In* column, std::int64_t stride, int count,
                             std::int64_t first, int c, int part) {
  constexpr int kOwn = kAccumulators / kColumnThreads;
  __shared__ Acc shared[kColumnThreads][kColumns];
  typename R::Accumulator own[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own[i] = reducer.start();
  int k = part;
  for (; k + (kOwn - 1) * kColumnThreads < count; k += kAccumulators) {
    assume_position(k);
    In batch[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) batch[i] = column[(k + i * kColumnThreads) * stride];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) reducer.take(own[i], batch[i], k + i * kColumnThreads);
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int at = k + i * kColumnThreads;
    if (at < count) reducer.take(own[i], column[at * stride], at);
  }
  Acc states[kOwn];
  close_all(reducer, own, states, part, kColumnThreads, count, first);
  return reducer.finish(combine_column_accumulators(reducer, states, shared, c, part));
}

// Reduces the results of the chunks of a column to its output, level by level. reduce(results,
// count, first) gives the result of a chunk of them, which begins at result `first`; `is_writer`
// in one thread that gets it. Every thread of the column's last block calls.
template <class Acc, class R, class Reduce>
__device__ void merge_column(const R&, const ReducePlan& plan, std::int64_t output, bool is_present,
                             bool is_writer, const Reduce& reduce) {
  Acc* partials = static_cast<Acc*>(plan.partials);
  if (is_present) partials += output * plan.partial_output_stride;
  int count = static_cast<int>(plan.chunks);
  const auto merge = [&](std::int64_t from, int n) {
    return reduce(partials + from * plan.partial_chunk_stride, is_present ? n : 0, from);
  };
  if constexpr (kHasState<R>) {
    count = merge_levels(count, [&](std::int64_t chunk, int n) {
      const Acc result = merge(chunk * kReduceChunk, n);
      if (is_writer) partials[chunk * plan.partial_chunk_stride] = result;
    });
  }
  const Acc result = merge(0, count);
  if (is_writer) write_output<R>(plan, output, result);
}

// Ends a block of a column kernel with kTile columns and 256 threads: the last of the tile's blocks
// merges them.
template <int kTile, class Acc, class R>
__device__ void finish_columns(const R& reducer, const ReducePlan& plan, std::int64_t tile) {
  if (!plan.merges ||
      !is_last_block(plan.counters, tile, static_cast<std::uint32_t>(plan.chunks))) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int c = thread % kColumns;
  const int part = thread / kColumns;
  for (int first = 0; first < kTile; first += kColumns) {
    const std::int64_t output = tile * kTile + first + c;
    const bool is_present = output < plan.outputs && first + c < kTile;
    merge_column<Acc>(reducer, plan, output, is_present, is_present && part == 0,
                      [&](const Acc* partials, int count, std::int64_t from) {
                        return reduce_column<Acc, Acc>(reducer.merge(), partials,
                                                       plan.partial_chunk_stride, count, from, c,
                                                       part);
                      });
  }
}

// Neighbouring columns that a thread of reduce_columns reads at once, where they form packs.
template <class In>
constexpr int kPackColumns = sizeof(In) >= 8   ? 2
                             : sizeof(In) == 4 ? 4
                                               : 8;

// Packs of a tile of reduce_columns: rows of 128 bytes, or of 64 for narrow tiles. Memory is slower
// at 64 bytes, but a matrix of 16-bit elements has twice as many narrow tiles.
constexpr int kTilePacks = 8;
constexpr int kNarrowTilePacks = 4;
template <class In>
constexpr bool kHasNarrowTiles = sizeof(In) == 2;
// True if the accumulators of a thread of the wider tiles fit into registers.
template <class R>
constexpr bool kHasWideTiles = sizeof(typename R::Accumulator) == 4;
// Blocks of reduce_columns that a multiprocessor is to hold; 0 leaves it to the compiler.
template <class In, class R, int V, int kPacks>
constexpr int kTileBlocks = kHasLargeState<R>                   ? 2
                            : R::kIsRepeated && sizeof(In) == 8 ? 3
                            : kHasNarrowTiles<In>&& V* kPacks == kTilePacks* kPackColumns<In>
                                ? 4
                                : kBlocksOf<R, kRingThreads, 64>;
// True if a ring is faster than rows in registers. The state of an argument leaves few registers
// for it. Elements of 8 bytes have as many bytes under way in registers, and no copies.
template <class In, class R, int V>
constexpr bool kStreamsRows = kHasRing<StoredPack<In, V>> && sizeof(In) < 8 &&
                              (kHasOnly<In, R> || sizeof(In) == 4);
// Fewest blocks of reduce_columns that fill a GPU.
constexpr std::int64_t kManyTiles = 256;

// A block of kPacks x (256 / kPacks) threads reduces one chunk of kPacks packs of V neighbouring
// outputs. The thread of part `part` has accumulators part, part + 256 / kPacks, … of each column
// of its pack. Packs are aligned.
template <class In, class Acc, class R, int V, int kPacks>
__global__ void __launch_bounds__(kRingThreads, kTileBlocks<In, R, V, kPacks>)
    reduce_columns(const __grid_constant__ ReducePlan plan, const R reducer) {
  constexpr int kPackThreads = kRingThreads / kPacks;
  constexpr int kTile = kPacks * V;
  constexpr int kOwn = kAccumulators / kPackThreads;
  using Vector = StoredPack<In, V>;
  // The ring while the block reads, then the results of the threads.
  struct Results {
    Acc of[kPackThreads][kTile + 1];
  };
  struct Ring {
    Vector slots[kStreamsRows<In, R, V> ? kRingRows<Vector> * kRingThreads : 1];
  };
  constexpr std::size_t kBytes = sizeof(Results) > sizeof(Ring) ? sizeof(Results) : sizeof(Ring);
  __shared__ __align__(16) unsigned char memory[kBytes];
  auto& shared = reinterpret_cast<Results*>(memory)->of;
  const std::int64_t tiles = (plan.outputs + kTile - 1) / kTile;
  const std::int64_t stride = plan.reduced.strides[0];
  const int pack = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(threadIdx.y);
  const int thread = part * kPacks + pack;
  for (std::int64_t task = blockIdx.x; task < tiles * plan.chunks; task += gridDim.x) {
    const std::int64_t chunk = task / tiles;
    const std::int64_t tile = task - chunk * tiles;
    const std::int64_t first_output = tile * kTile + pack * V;
    const bool is_present = first_output < plan.outputs;
    const In* column = static_cast<const In*>(plan.in) + (chunk * kReduceChunk + part) * stride;
    if (is_present) column += distant_offset(plan.kept, first_output);
    typename R::Accumulator own[kOwn][V];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll
      for (int v = 0; v < V; ++v) own[i][v] = reducer.start();
    }
    const int count = is_present ? chunk_length(plan, chunk) : 0;
    const int rows = count > part ? (count - part + kPackThreads - 1) / kPackThreads : 0;
    const auto take = [&](int i, const Vector& vector, int n) {
      __builtin_assume(part >= 0);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        reducer.take(own[i % kOwn][v], vector.values[v], part + n * kPackThreads);
      }
    };
    __syncthreads();  // the previous task may still read the results
    if constexpr (kStreamsRows<In, R, V>) {
      stream_rows(reinterpret_cast<Ring*>(memory)->slots + thread, column, kPackThreads * stride,
                  rows, take);
    } else {
      load_rows<Vector>(column, kPackThreads * stride, rows, take);
    }
    __syncthreads();  // every thread has read its part of the ring
#pragma unroll
    for (int v = 0; v < V; ++v) {
      typename R::Accumulator column_own[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) column_own[i] = own[i][v];
      Acc states[kOwn];
      close_all(reducer, column_own, states, part, kPackThreads, count, chunk * kReduceChunk);
      combine_own<kOwn / 2>(reducer, states);
      shared[part][pack * V + v] = states[0];
    }
    for (int half = kPackThreads / 2; half > 0; half /= 2) {
      __syncthreads();
      for (int at = thread; at < half * kTile; at += kRingThreads) {
        Acc& into = shared[at / kTile][at % kTile];
        into = reducer.combine(into, shared[at / kTile + half][at % kTile]);
      }
    }
    __syncthreads();
    const std::int64_t output = tile * kTile + thread;
    if (thread < kTile && output < plan.outputs) {
      write_result<R>(plan, output, chunk, reducer.finish(shared[0][thread]));
    }
    finish_columns<kTile, Acc>(reducer, plan, tile);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
