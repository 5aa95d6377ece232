// Reductions of short dense rows on the GPU, tile by tile in shared memory.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/reductions/reduce_in_thread.cuh"

namespace gantry::kernels::cuda {

namespace {

// Note [Tiles of short rows]
// A warp that reads one short row has few bytes under way, and most of its steps belong to the
// tree. So a block copies tiles of many rows into shared memory, one ahead of the one that it
// reduces, and one thread, or a few, reduce a row. A row of whole 16-byte words has one more word
// of padding in shared memory, so that the threads of a warp read different banks. Other rows lie
// as in memory.

constexpr int kTileThreads = 128;
// Tiles in the shared memory of a block.
constexpr int kMostTileStages = 2;
// Bytes of shared memory of a multiprocessor that tiles fill.
constexpr std::int64_t kTileMemory = 200 << 10;
// Accumulators of a lane that a thread holds at a time.
constexpr int kTileHeld = 4;
// Bytes of a tile: wanted, and the most.
constexpr std::int64_t kTileBytes = 16 << 10;
constexpr std::int64_t kMostTileBytes = 36 << 10;
// Fewest tiles that fill a GPU.
constexpr std::int64_t kManyRowTiles = 264;

// Longest row: a thread of another kernel has enough of a longer one.
template <class R>
constexpr std::int64_t kMostTileRow = kHasState<R> ? 640 : 1024;

// Blocks of reduce_row_tiles that a multiprocessor is to hold, whose tiles are under way.
template <class R>
constexpr int kRowTileBlocks = sizeof(typename R::State) <= 8    ? 5
                               : sizeof(typename R::State) <= 16 ? 4
                                                                 : 2;

// Elements that a thread reads at once from aligned rows.
template <class In>
constexpr int kTilePack = sizeof(In) == 8 ? 2 : 4;

// The tiles of a plan. A POD.
struct RowTiling {
  std::int64_t tiles;
  std::int64_t pitch_bytes;  // from a row in shared memory to the next one
  std::int64_t row_bytes;
  std::int64_t stride_bytes;  // from a row in memory to the next one
  std::int32_t rows;          // of a tile
  std::int32_t group;         // threads of a row, a power of two
  std::int32_t bits;          // as in reduce_in_thread()
  std::int32_t stages;
  std::int32_t stage_bytes;
  bool is_padded;
};

// Begins to copy tile `tile` to `to`.
__device__ inline void copy_tile(const ReducePlan& plan, const RowTiling& tiling, std::int64_t tile,
                                 unsigned char* to) {
  const std::int64_t first = tile * tiling.rows;
  const std::int64_t left = plan.outputs - first;
  const int rows = static_cast<int>(left < tiling.rows ? left : tiling.rows);
  const auto* from = static_cast<const unsigned char*>(plan.in) + first * tiling.stride_bytes;
  const int thread = static_cast<int>(threadIdx.x);
  if (tiling.is_padded) {
    const int words = static_cast<int>(tiling.row_bytes / 16);
    int row = thread / words;
    int word = thread % words;
    const int row_step = kTileThreads / words;
    const int word_step = kTileThreads % words;
    while (row < rows) {
      __pipeline_memcpy_async(to + row * tiling.pitch_bytes + word * 16,
                              from + row * tiling.stride_bytes + word * 16, 16);
      row += row_step;
      word += word_step;
      if (word >= words) {
        word -= words;
        ++row;
      }
    }
    return;
  }
  const int bytes = static_cast<int>(rows * tiling.row_bytes);
  const int whole = bytes / 16 * 16;
  for (int at = 16 * thread; at < whole; at += 16 * kTileThreads) {
    __pipeline_memcpy_async(to + at, from + at, 16);
  }
  if (whole + thread < bytes && thread < 16) to[whole + thread] = from[whole + thread];
}

// Reduces dense rows of at most a chunk, `tiling.group` threads each. A thread reads V neighbouring
// elements at once; vector `at` of thread g is vector at * group + g of the row.
template <class In, class Acc, class R, int V>
__global__ void __launch_bounds__(kTileThreads, kRowTileBlocks<R>)
    reduce_row_tiles(const __grid_constant__ ReducePlan plan, const R reducer,
                     const __grid_constant__ RowTiling tiling) {
  using Vector = StoredPack<In, V>;
  extern __shared__ __align__(16) unsigned char reduced_rows[];
  const int group = tiling.group;
  const int row = static_cast<int>(threadIdx.x) / group;
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int length = static_cast<int>(plan.length);
  const int vectors = length / V;
  const auto stage_of = [&](int i) { return reduced_rows + i * tiling.stage_bytes; };
  std::int64_t ahead = blockIdx.x;
  int filled = 0;
  const auto copy_next = [&] {
    if (ahead < tiling.tiles) copy_tile(plan, tiling, ahead, stage_of(filled));
    __pipeline_commit();
    ahead += gridDim.x;
    filled = filled + 1 == tiling.stages ? 0 : filled + 1;
  };
  const bool is_ahead = tiling.stages > 1;
  if (is_ahead) copy_next();
  int stage = 0;
  for (std::int64_t tile = blockIdx.x; tile < tiling.tiles; tile += gridDim.x) {
    if (!is_ahead) {
      __syncthreads();  // the tile before is read
      copy_next();
    }
    __pipeline_wait_prior(0);
    __syncthreads();  // the tile is there, and the one before is read
    if (is_ahead) copy_next();
    const std::int64_t output = tile * tiling.rows + row;
    const bool is_present = row < tiling.rows && output < plan.outputs;
    const auto* elements =
        reinterpret_cast<const Vector*>(stage_of(stage) + row * tiling.pitch_bytes);
    const int count = is_present && lane < vectors ? (vectors - lane + group - 1) / group : 0;
    Acc results[V];
    reduce_in_thread<kTileHeld, In, V>(
        reducer, count, is_present ? length : 0, tiling.bits,
        [&](int at) { return elements[at * group + lane]; },
        [&](int at, int v) { return (at * group + lane) * V + v; }, results);
#pragma unroll
    for (int v = 0; v < V; ++v) results[v] = reduce_in_group(reducer, results[v], group);
    if constexpr (V > 1) combine_own<V / 2>(reducer, results);
    if (is_present && lane == 0) write_output<R>(plan, output, reducer.finish(results[0]));
    stage = stage + 1 == tiling.stages ? 0 : stage + 1;
  }
}

// The tiling of `plan` for vectors of V elements; no tiles if it is not for short dense rows.
template <class In, class R, int V>
RowTiling row_tiling(const ReducePlan& plan) {
  RowTiling tiling = {};
  constexpr std::int64_t kSize = sizeof(In);
  const std::int64_t stride = plan.kept.strides[0];
  if (plan.kept.ndim != 1 || plan.length % V != 0 || plan.length > kMostTileRow<R> ||
      reinterpret_cast<std::uintptr_t>(plan.in) % 16 != 0) {
    return tiling;
  }
  tiling.row_bytes = plan.length * kSize;
  tiling.stride_bytes = stride * kSize;
  tiling.is_padded = tiling.row_bytes % 16 == 0;
  if (tiling.is_padded ? tiling.stride_bytes % 16 != 0 || stride < 0 : stride != plan.length) {
    return tiling;
  }
  tiling.pitch_bytes = tiling.row_bytes + (tiling.is_padded ? 16 : 0);
  constexpr int kMostGroup = kAccumulators / V / kTileHeld;
  int group = 1;
  while (group < kMostGroup && group < 32 &&
         kTileThreads / group * tiling.pitch_bytes > kTileBytes) {
    group *= 2;
  }
  const std::int64_t rows = kTileThreads / group;
  const std::int64_t bytes = rows * tiling.pitch_bytes;
  if (bytes > kMostTileBytes || rows * tiling.row_bytes % 16 != 0 || plan.length < group * V) {
    return tiling;
  }
  tiling.group = group;
  tiling.rows = static_cast<std::int32_t>(rows);
  tiling.bits =
      subtree_bits(kTileHeld, (plan.length / V + group - 1) / group, kAccumulators / V / group);
  tiling.stage_bytes = static_cast<std::int32_t>((bytes + 15) / 16 * 16);
  // Work on states takes longer than the copies: rather all blocks that the registers allow, which
  // wait for each other's copies, than tiles ahead.
  const bool fits = kMostTileStages * tiling.stage_bytes * kRowTileBlocks<R> <= kTileMemory;
  tiling.stages = kHasState<R> && !fits ? 1 : kMostTileStages;
  tiling.tiles = (plan.outputs + rows - 1) / rows;
  if (tiling.tiles < kManyRowTiles) tiling.tiles = 0;
  return tiling;
}

template <class In, class Acc, class R, int V>
void launch_row_tiles(void* stream, const ReducePlan& plan, const R& reducer,
                      const RowTiling& tiling) {
  const auto kernel = reduce_row_tiles<In, Acc, R, V>;
  const int bytes = tiling.stages * tiling.stage_bytes;
  int device = 0;
  int multiprocessors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (status == cudaSuccess) {
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kMostTileStages * kMostTileBytes));
  }
  int per_multiprocessor = 1;
  if (status == cudaSuccess) {
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &per_multiprocessor, kernel, kTileThreads, static_cast<std::size_t>(bytes));
  }
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    throw_launch_error("reduce_row_tiles", stream, status);
  }
  const std::int64_t blocks = std::int64_t{per_multiprocessor} * multiprocessors;
  launch("reduce_row_tiles", stream,
         static_cast<unsigned>(tiling.tiles < blocks ? tiling.tiles : blocks), kTileThreads,
         static_cast<std::size_t>(bytes), kernel, plan, reducer, tiling);
}

}  // namespace

}  // namespace gantry::kernels::cuda
