// Transposed copies: tiles go through shared memory, so that both sides move whole sectors.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/launch.cuh"
#include "kernels/input.hpp"
#include "kernels/strided.hpp"
#include "kernels/strided_index.hpp"

namespace gantry::kernels::cuda {

// A batch of transposed matrices. The output is dense along its rows, the input along its columns.
// Element (r, c) is out[r + c * out_stride] and in[r * in_stride + c]. A POD.
struct TransposePlan {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t in_stride = 0;
  std::int64_t out_stride = 0;
  StridedIndex batch_in;  // the other dims, with the strides of the input
  StridedIndex batch_out;
};

// Rows and columns of which a tile is worth its shared memory. Fewer columns are if they are dense
// in the input and rows fill a block: Note [Few columns].
inline constexpr int kTransposeLeast = 16;
inline constexpr int kFewLeast = 5;

// Fills `transpose` and returns true if `plan` (output, input) is a transposition.
inline bool make_transpose_plan(const StridedPlan<2>& plan, TransposePlan& transpose) {
  if (plan.ndim < 2 || plan.strides[0][0] != 1 || plan.strides[0][1] == 1) return false;
  int dense = 0;
  for (int dim = 1; dim < plan.ndim; ++dim) {
    if (plan.strides[dim][1] == 1) dense = dim;
  }
  if (dense == 0) return false;
  transpose.rows = plan.sizes[0];
  transpose.columns = plan.sizes[dense];
  transpose.in_stride = plan.strides[0][1];
  const bool has_few = transpose.in_stride == transpose.columns && transpose.columns >= kFewLeast &&
                       transpose.rows >= kThreads;
  if (transpose.rows < kTransposeLeast || (transpose.columns < kTransposeLeast && !has_few)) {
    return false;
  }
  transpose.out_stride = plan.strides[dense][0];
  for (int dim = plan.ndim - 1; dim > 0; --dim) {
    if (dim == dense) continue;
    const int at = transpose.batch_in.ndim++;
    transpose.batch_out.ndim = transpose.batch_in.ndim;
    transpose.batch_in.sizes[at] = transpose.batch_out.sizes[at] = plan.sizes[dim];
    transpose.batch_in.strides[at] = plan.strides[dim][1];
    transpose.batch_out.strides[at] = plan.strides[dim][0];
  }
  return true;
}

namespace detail {

// Side of a tile: rows of 128 or 256 bytes if packs move, else of one element per lane.
template <class W, int V>
inline constexpr int kTileSide = V == 1 || sizeof(W) == 8 ? 32
                                 : sizeof(W) == 1         ? 128
                                                          : 64;

// Stores a pack to shared memory, in words of 4 bytes if its elements are narrower. Rows of a tile
// are whole words.
template <class W, int V>
__device__ void put(W* to, const StoredPack<W, V>& pack) {
  if constexpr (sizeof(W) < 4 && V > 1) {
    constexpr int kWords = V * static_cast<int>(sizeof(W)) / 4;
    std::uint32_t words[kWords];
    memcpy(words, &pack, sizeof words);
#pragma unroll
    for (int i = 0; i < kWords; ++i) reinterpret_cast<std::uint32_t*>(to)[i] = words[i];
  } else {
#pragma unroll
    for (int v = 0; v < V; ++v) to[v] = pack.values[v];
  }
}

// The elements as W. In other than W is a floating type, and so is W.
template <class W, class In, int V>
__device__ StoredPack<W, V> converted(const StoredPack<In, V>& pack) {
  if constexpr (std::is_same_v<W, In>) {
    return pack;
  } else {
    StoredPack<W, V> result;
#pragma unroll
    for (int v = 0; v < V; ++v)
      result.values[v] = convert<W>(static_cast<ComputeType<In>>(pack.values[v]));
    return result;
  }
}

// V: elements per access of memory, 1 or as many as make 16 bytes of the wider of W and In.
template <class W, int V, class In>
__global__ void __launch_bounds__(kThreads)
    transpose_kernel(const __grid_constant__ TransposePlan plan, W* out, const In* in,
                     std::uint32_t tiles, const FastDivisor column_tiles,
                     const FastDivisor matrix_tiles) {
  constexpr int kSide = kTileSide<W, V>;
  constexpr int kPacks = kSide / V;          // of a row of the tile
  constexpr int kLines = kThreads / kPacks;  // rows that the block moves at once
  constexpr int kRounds = kSide / kLines;
  // Rows begin on different banks.
  constexpr int kPad = sizeof(W) < 4 ? 4 / static_cast<int>(sizeof(W)) : 1;
  alignas(4) __shared__ W tile[kSide][kSide + kPad];
  const int pack = static_cast<int>(threadIdx.x) % kPacks * V;
  const int line = static_cast<int>(threadIdx.x) / kPacks;
  for (std::uint32_t task = blockIdx.x; task < tiles; task += gridDim.x) {
    const std::uint32_t matrix = matrix_tiles.divide(task);
    const std::uint32_t at = task - matrix * matrix_tiles.divisor;
    const std::uint32_t row_tile = column_tiles.divide(at);
    const std::int64_t first_row = static_cast<std::int64_t>(row_tile) * kSide;
    const std::int64_t first_column =
        static_cast<std::int64_t>(at - row_tile * column_tiles.divisor) * kSide;
    const std::int64_t rows = plan.rows - first_row;
    const std::int64_t columns = plan.columns - first_column;
    const In* from = in + first_row * plan.in_stride + first_column;
    W* to = out + first_column * plan.out_stride + first_row;
    if (plan.batch_in.ndim > 0) {
      from += plan.batch_in.offset(matrix);
      to += plan.batch_out.offset(matrix);
    }
    StoredPack<In, V> read[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int r = line + i * kLines;
      if (r < rows && pack < columns) {
        read[i] = *reinterpret_cast<const StoredPack<In, V>*>(from + r * plan.in_stride + pack);
      }
    }
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      put(&tile[line + i * kLines][pack], converted<W>(read[i]));
    }
    __syncthreads();
    StoredPack<W, V> packs[kRounds];
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const int c = line + i * kLines;
#pragma unroll
      for (int v = 0; v < V; ++v) packs[i].values[v] = tile[pack + v][c];
      if (c < columns && pack < rows) {
        *reinterpret_cast<StoredPack<W, V>*>(to + c * plan.out_stride + pack) = packs[i];
      }
    }
    __syncthreads();
  }
}

// Note [Few columns]
// An output row of few input columns has a stride that wastes most of each sector, and every row
// reads them all again. A block loads kThreads rows of the input as they lie, and stores columns.
// Fewer than kFewLeast columns have little of a block's memory under way, and caches hold the
// sectors.
template <class W, class In>
__global__ void __launch_bounds__(kThreads)
    transpose_few_columns(const __grid_constant__ TransposePlan plan, W* out, const In* in,
                          std::uint32_t tiles, const FastDivisor by_columns,
                          const FastDivisor row_tiles) {
  constexpr int kMost = kTransposeLeast - 1;
  __shared__ W tile[kThreads * kMost];
  const int columns = static_cast<int>(plan.columns);
  const int pitch = columns | 1;  // neighbouring rows begin on different banks
  const int thread = static_cast<int>(threadIdx.x);
  for (std::uint32_t task = blockIdx.x; task < tiles; task += gridDim.x) {
    const std::uint32_t matrix = row_tiles.divide(task);
    const std::int64_t first_row =
        static_cast<std::int64_t>(task - matrix * row_tiles.divisor) * kThreads;
    const std::int64_t left = plan.rows - first_row;
    const int rows = left < kThreads ? static_cast<int>(left) : kThreads;
    const In* from = in + first_row * columns;
    W* to = out + first_row;
    if (plan.batch_in.ndim > 0) {
      from += plan.batch_in.offset(matrix);
      to += plan.batch_out.offset(matrix);
    }
    StoredPack<In, 1> read[kMost];
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int at = thread + i * kThreads;
      if (at < rows * columns) read[i].values[0] = from[at];
    }
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int at = thread + i * kThreads;
      if (at >= rows * columns) break;
      const auto row = static_cast<int>(by_columns.divide(static_cast<std::uint32_t>(at)));
      tile[at + row * (pitch - columns)] = converted<W>(read[i]).values[0];
    }
    __syncthreads();
    if (thread < rows) {
#pragma unroll 4
      for (int c = 0; c < columns; ++c) to[c * plan.out_stride + thread] = tile[thread * pitch + c];
    }
    __syncthreads();
  }
}

}  // namespace detail

// True if packs of V elements are aligned on both sides and none reaches over an edge.
template <int V, class W, class In>
bool has_transpose_packs(const TransposePlan& plan, const W* out, const In* in) {
  const auto is_aligned = [](const auto* data, std::int64_t stride, const StridedIndex& batch) {
    if (reinterpret_cast<std::uintptr_t>(data) % (sizeof(*data) * V) != 0 || stride % V != 0) {
      return false;
    }
    for (int dim = 0; dim < batch.ndim; ++dim) {
      if (batch.strides[dim] % V != 0) return false;
    }
    return true;
  };
  return plan.rows % V == 0 && plan.columns % V == 0 &&
         is_aligned(in, plan.in_stride, plan.batch_in) &&
         is_aligned(out, plan.out_stride, plan.batch_out);
}

// Launches the copy and returns true, unless it has 2^31 tiles or more.
template <int V, class W, class In>
bool launch_tiles(void* stream, const TransposePlan& plan, W* out, const In* in) {
  constexpr int kSide = detail::kTileSide<W, V>;
  const std::int64_t row_tiles = (plan.rows + kSide - 1) / kSide;
  const std::int64_t column_tiles = (plan.columns + kSide - 1) / kSide;
  const std::int64_t tiles = row_tiles * column_tiles * plan.batch_in.count();
  if (tiles >= std::int64_t{1} << 31) return false;
  launch("copy", stream, blocks_for(tiles * kThreads), kThreads, 0,
         detail::transpose_kernel<W, V, In>, plan, out, in, static_cast<std::uint32_t>(tiles),
         FastDivisor(static_cast<std::uint32_t>(column_tiles)),
         FastDivisor(static_cast<std::uint32_t>(row_tiles * column_tiles)));
  return true;
}

template <class W, class In>
bool launch_few_columns(void* stream, const TransposePlan& plan, W* out, const In* in) {
  const std::int64_t row_tiles = (plan.rows + kThreads - 1) / kThreads;
  const std::int64_t tiles = row_tiles * plan.batch_in.count();
  if (tiles >= std::int64_t{1} << 31) return false;
  launch("copy", stream, blocks_for(tiles * kThreads), kThreads, 0,
         detail::transpose_few_columns<W, In>, plan, out, in, static_cast<std::uint32_t>(tiles),
         FastDivisor(static_cast<std::uint32_t>(plan.columns)),
         FastDivisor(static_cast<std::uint32_t>(row_tiles)));
  return true;
}

template <class W, class In>
bool launch_transpose(void* stream, const TransposePlan& plan, W* out, const In* in) {
  if (plan.columns < kTransposeLeast) return launch_few_columns(stream, plan, out, in);
  constexpr int V = 16 / static_cast<int>(sizeof(W) > sizeof(In) ? sizeof(W) : sizeof(In));
  return has_transpose_packs<V>(plan, out, in) ? launch_tiles<V>(stream, plan, out, in)
                                               : launch_tiles<1>(stream, plan, out, in);
}

}  // namespace gantry::kernels::cuda
