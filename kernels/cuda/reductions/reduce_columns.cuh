// Reductions of columns on the GPU, whose neighbouring outputs lie side by side in the input.
#pragma once

#include "kernels/cuda/reductions/reduce_in_thread.cuh"

namespace gantry::kernels::cuda {

namespace {

// Columns that a thread of reduce_few reads at once, where they form packs.
template <class In, class R>
constexpr int kFewPack = sizeof(In) >= 4 ? 2
                         : kHasState<R>  ? 1
                                         : 4;
// Blocks of reduce_few that a multiprocessor is to hold; 0 leaves it to the compiler.
template <class In, class Acc, class R, int V>
constexpr int kFewBlocks = kBlocksOf<R, kThreads, sizeof(Acc) * V >= 8 ? 80 : 64>;
// True if the compiler wants so many registers that a multiprocessor holds one block of 256
// threads. Two blocks with a few words on the stack have more loads under way.
template <class R>
constexpr bool kHasLargeState = sizeof(typename R::Accumulator) > 8;

// One thread reduces V neighbouring outputs of at most a chunk; bits as in reduce_in_thread().
template <class In, class Acc, class R, int V>
__global__ void __launch_bounds__(kThreads, kFewBlocks<In, Acc, R, V>)
    reduce_few(const __grid_constant__ ReducePlan plan, const R reducer, int bits) {
  using Vector = StoredPack<In, V>;
  const int count = static_cast<int>(plan.length);
  const std::int64_t stride = plan.reduced.strides[0];
  for (std::int64_t pack = first_index(); pack * V < plan.outputs; pack += index_step()) {
    const In* column = static_cast<const In*>(plan.in) + distant_offset(plan.kept, pack * V);
    Acc results[V];
    const auto load = [&](int at) {
      return *reinterpret_cast<const Vector*>(column + at * stride);
    };
    const auto position = [](int at, int) { return at; };
    if constexpr (requires { R::only(In{}); }) {
      if (count <= kAccumulators) {
        reduce_once_in_thread<kFew, In, V>(reducer, count, bits, load, results);
      } else {
        reduce_in_thread<kFew, In, V>(reducer, count, count, bits, load, position, results);
      }
    } else {
      reduce_in_thread<kFew, In, V>(reducer, count, count, bits, load, position, results);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) write_output<R>(plan, pack * V + v, reducer.finish(results[v]));
  }
}

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
    Acc* partials = static_cast<Acc*>(plan.partials);
    if (is_present) partials += output * plan.partial_output_stride;
    int count = static_cast<int>(plan.chunks);
    const auto merge = [&](std::int64_t from, int n) {
      return reduce_column<Acc, Acc>(reducer.merge(), partials + from * plan.partial_chunk_stride,
                                     plan.partial_chunk_stride, is_present ? n : 0, from, c, part);
    };
    if constexpr (kHasState<R>) {
      count = merge_levels(count, [&](std::int64_t chunk, int n) {
        const Acc result = merge(chunk * kReduceChunk, n);
        if (is_present && part == 0) partials[chunk * plan.partial_chunk_stride] = result;
      });
    }
    const Acc result = merge(0, count);
    if (is_present && part == 0) write_output<R>(plan, output, result);
  }
}

// A block of 32 x 8 threads reduces one chunk of 32 neighbouring outputs. Each thread has 16 of a
// column's 128 accumulators.
template <class In, class Acc, class R>
__global__ void __launch_bounds__(kColumns* kColumnThreads,
                                  kHasLargeState<R> ? 2 : kBlocksOf<R, 256, 64>)
    reduce_columns(const __grid_constant__ ReducePlan plan, const R reducer) {
  const std::int64_t tiles = (plan.outputs + kColumns - 1) / kColumns;
  const std::int64_t stride = plan.reduced.strides[0];
  const int c = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(threadIdx.y);
  for (std::int64_t task = blockIdx.x; task < tiles * plan.chunks; task += gridDim.x) {
    const std::int64_t chunk = task / tiles;
    const std::int64_t tile = task - chunk * tiles;
    const std::int64_t output = tile * kColumns + c;
    const bool is_present = output < plan.outputs;
    const In* column = static_cast<const In*>(plan.in) + chunk * kReduceChunk * stride;
    if (is_present) column += distant_offset(plan.kept, output);
    const int count = is_present ? chunk_length(plan, chunk) : 0;
    const Acc result =
        reduce_column<In, Acc>(reducer, column, stride, count, chunk * kReduceChunk, c, part);
    if (is_present && part == 0) write_result<R>(plan, output, chunk, result);
    finish_columns<kColumns, Acc>(reducer, plan, tile);
  }
}

// Neighbouring columns that a thread of reduce_wide_columns loads at once.
template <class In>
constexpr int kPackColumns = sizeof(In) >= 8   ? 2
                             : sizeof(In) == 4 ? 4
                                               : 8;

// Packs of a tile of reduce_wide_columns: rows of 128 bytes, or of 64 for narrow tiles. Memory is
// slower at 64 bytes, but a matrix of 16-bit elements has twice as many narrow tiles.
constexpr int kTilePacks = 8;
constexpr int kNarrowTilePacks = 4;
template <class In>
constexpr bool kHasNarrowTiles = sizeof(In) == 2;
// True if the accumulators of a thread of the wider tiles fit into registers.
template <class R>
constexpr bool kHasWideTiles = sizeof(typename R::Accumulator) == 4;
// Blocks of reduce_wide_columns that a multiprocessor is to hold; 0 leaves it to the compiler.
template <class In, class R, int kPacks>
constexpr int kTileBlocks = kHasNarrowTiles<In>&& kPacks == kTilePacks ? 4
                            : kHasLargeState<R>                        ? 2
                                                                       : kBlocksOf<R, 256, 64>;
// Fewest blocks of reduce_wide_columns that fill a GPU.
constexpr std::int64_t kManyTiles = 256;

// A block of kPacks x (256 / kPacks) threads reduces one chunk of kPacks packs of neighbouring
// outputs. A thread has 2 or 4 of the 128 accumulators of each column of its pack. Packs are
// aligned.
template <class In, class Acc, class R, int kPacks>
__global__ void __launch_bounds__(256, kTileBlocks<In, R, kPacks>)
    reduce_wide_columns(const __grid_constant__ ReducePlan plan, const R reducer) {
  constexpr int V = kPackColumns<In>;
  constexpr int kPackThreads = 256 / kPacks;
  constexpr int kTile = kPacks * V;
  constexpr int kOwn = kAccumulators / kPackThreads;
  constexpr int kInFlight = 8;
  static_assert(kInFlight % kOwn == 0);
  using Vector = StoredPack<In, V>;
  __shared__ Acc shared[kPackThreads][kTile + 1];
  const std::int64_t tiles = (plan.outputs + kTile - 1) / kTile;
  const std::int64_t stride = plan.reduced.strides[0];
  const int pack = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(threadIdx.y);
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
    const auto add = [&](int i, const Vector& vector, int k) {
#pragma unroll
      for (int v = 0; v < V; ++v) reducer.take(own[i][v], vector.values[v], k);
    };
    const auto load = [&](int i) {
      return *reinterpret_cast<const Vector*>(column + i * kPackThreads * stride);
    };
    const int count = is_present ? chunk_length(plan, chunk) : 0;
    int k = part;
    int rest = count - part;
    for (; rest > (kInFlight - 1) * kPackThreads; rest -= kInFlight * kPackThreads) {
      assume_position(k);
      Vector batch[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) batch[i] = load(i);
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) add(i % kOwn, batch[i], k + i * kPackThreads);
      column += kInFlight * kPackThreads * stride;
      k += kInFlight * kPackThreads;
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (i * kPackThreads < rest) add(i % kOwn, load(i), k + i * kPackThreads);
    }
    __syncthreads();  // the previous task may still read the shared array
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
      for (int at = part * kPacks + pack; at < half * kTile; at += kPacks * kPackThreads) {
        Acc& into = shared[at / kTile][at % kTile];
        into = reducer.combine(into, shared[at / kTile + half][at % kTile]);
      }
    }
    __syncthreads();
    const int c = part * kPacks + pack;
    const std::int64_t output = tile * kTile + c;
    if (c < kTile && output < plan.outputs) {
      write_result<R>(plan, output, chunk, reducer.finish(shared[0][c]));
    }
    finish_columns<kTile, Acc>(reducer, plan, tile);
  }
}

}  // namespace

}  // namespace gantry::kernels::cuda
