// Scatter along short dense rows, which a block holds in shared memory: Note [Rows in shared
// memory].
#pragma once

#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::cuda {

namespace {

// Note [Rows in shared memory]
// One thread makes all writes of a fibre, in their order. A fibre that is a dense row lies apart
// from the rows of the neighbouring threads, so its accesses would waste most of each line. A block
// therefore loads a tile of rows side by side into shared memory, updates them there, and stores
// them side by side. The lengths of rows in shared memory are such that the threads of a warp,
// which read one column of 32 rows, read 32 banks.

// Threads of a block; at most as many rows make a tile.
constexpr int kRowTileThreads = 128;
// Shared memory of a tile: without leave, and the most that leaves room for a second block.
constexpr std::int64_t kPlainTileBytes = 48 << 10;
constexpr std::int64_t kMostTileBytes = 100 << 10;
// Rows of the smallest tiles of either size.
constexpr std::int64_t kFewestPlainRows = 32;
constexpr std::int64_t kFewestRows = 16;
// Fewest writes of a row, and most elements of an indexed row for each write: rows of which few
// elements change are updated in place.
constexpr std::int64_t kFewestRowWrites = 4;
constexpr std::int64_t kMostPerWrite = 8;
// A write whose index is out of range.
constexpr std::uint16_t kNoPosition = 0xffff;

// The elements of `bytes` bytes from a row in shared memory to the next one: an odd number of
// words, or of elements if these are larger.
constexpr std::int64_t row_pitch(std::int64_t length, std::int64_t bytes) {
  const std::int64_t per_word = bytes < 4 ? 4 / bytes : 1;
  const std::int64_t words = (length + per_word - 1) / per_word;
  return (words | 1) * per_word;
}

// The rows of a plan: row r of an operand begins `r * stride` elements from its base.
struct RowTiles {
  std::int64_t strides[3];  // direct, indexed, indices
  std::int64_t rows;
  std::int32_t length;  // writes of a row
  std::int32_t extent;  // elements of an indexed row
  std::int32_t length_pitch;
  std::int32_t extent_pitch;
  std::int32_t positions_pitch;
  std::int32_t tile;  // rows
  FastDivisor by_length;
  FastDivisor by_extent;

  // Of one row.
  [[nodiscard]] std::int64_t bytes(std::int64_t element_bytes) const {
    return (extent_pitch + length_pitch) * element_bytes + positions_pitch * 2;
  }
};

// Calls store(row, column, load(row, column)) for each of `rows` x `length` elements, neighbouring
// ones in neighbouring threads. The loads of a batch are in flight together.
template <class Load, class Store>
__device__ void move_tile(const FastDivisor& by_length, int rows, const Load& load,
                          const Store& store) {
  constexpr int kBatch = 8;
  const int length = static_cast<int>(by_length.divisor);
  const int count = rows * length;
  for (int first = static_cast<int>(threadIdx.x); first < count;
       first += kBatch * kRowTileThreads) {
    decltype(load(0, 0)) batch[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = first + i * kRowTileThreads;
      const int row = static_cast<int>(by_length.divide(static_cast<std::uint32_t>(at)));
      if (at < count) batch[i] = load(row, at - row * length);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int at = first + i * kRowTileThreads;
      const int row = static_cast<int>(by_length.divide(static_cast<std::uint32_t>(at)));
      if (at < count) store(row, at - row * length, batch[i]);
    }
  }
}

template <class Update>
__global__ void __launch_bounds__(kRowTileThreads)
    scatter_rows_kernel(const __grid_constant__ IndexingPlan plan,
                        const __grid_constant__ RowTiles tiles) {
  using T = typename Update::Element;
  extern __shared__ __align__(16) unsigned char scatter_rows_memory[];
  T* const elements = reinterpret_cast<T*>(scatter_rows_memory);
  T* const values = elements + tiles.tile * tiles.extent_pitch;
  auto* const positions =
      reinterpret_cast<std::uint16_t*>(values + tiles.tile * tiles.length_pitch);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * tiles.tile;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * tiles.tile; first < tiles.rows;
       first += step) {
    const int rows =
        static_cast<int>(tiles.rows - first < tiles.tile ? tiles.rows - first : tiles.tile);
    const T* const direct = static_cast<const T*>(plan.direct) + first * tiles.strides[0];
    T* const indexed = static_cast<T*>(plan.indexed) + first * tiles.strides[1];
    const std::int64_t indices = first * tiles.strides[2];
    move_tile(
        tiles.by_length, rows,
        [&](int row, int column) {
          return load_index(plan, indices + row * tiles.strides[2] + column);
        },
        [&](int row, int column, std::int64_t index) {
          const std::int64_t position = checked_position(plan, index);
          positions[row * tiles.positions_pitch + column] =
              position < 0 ? kNoPosition : static_cast<std::uint16_t>(position);
        });
    move_tile(
        tiles.by_length, rows,
        [&](int row, int column) { return direct[row * tiles.strides[0] + column]; },
        [&](int row, int column, T value) { values[row * tiles.length_pitch + column] = value; });
    move_tile(
        tiles.by_extent, rows,
        [&](int row, int column) { return indexed[row * tiles.strides[1] + column]; },
        [&](int row, int column, T element) {
          elements[row * tiles.extent_pitch + column] = element;
        });
    __syncthreads();
    const int own = static_cast<int>(threadIdx.x);
    if (own < rows) {
      T* const to = elements + own * tiles.extent_pitch;
      const T* const from = values + own * tiles.length_pitch;
      const std::uint16_t* const at = positions + own * tiles.positions_pitch;
      const auto update = [&](std::uint16_t position, T value) {
        if (position != kNoPosition) to[position] = Update::apply(to[position], value);
      };
      // The compiler cannot tell that the writes change none of what is read next.
      constexpr int kAhead = 4;
      int k = 0;
      for (; k + kAhead <= tiles.length; k += kAhead) {
        std::uint16_t next[kAhead];
        T value[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) next[i] = at[k + i];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) value[i] = from[k + i];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) update(next[i], value[i]);
      }
      for (; k < tiles.length; ++k) update(at[k], from[k]);
    }
    __syncthreads();
    move_tile(
        tiles.by_extent, rows,
        [&](int row, int column) { return elements[row * tiles.extent_pitch + column]; },
        [&](int row, int column, T element) {
          indexed[row * tiles.strides[1] + column] = element;
        });
    __syncthreads();  // the next tile overwrites this one
  }
}

// The rows of `plan`, or none (`tile` is 0) if its fibres are not short dense rows.
inline RowTiles row_tiles(const IndexingPlan& plan) {
  RowTiles tiles = {};
  const bool is_dense = plan.fibres.ndim == 1 && plan.direct_stride == 1 &&
                        plan.index_stride == 1 && plan.indices_stride == 1;
  if (!is_dense || plan.element_bytes > 8 || plan.rule == IndexRule::offsets ||
      plan.fibre_length < kFewestRowWrites || plan.fibre_length >= kNoPosition ||
      plan.index_size >= kNoPosition || plan.index_size > kMostPerWrite * plan.fibre_length) {
    return tiles;
  }
  for (int k = 0; k < 3; ++k) tiles.strides[k] = plan.fibres.strides[0][k];
  tiles.rows = plan.fibres.numel;
  tiles.length = static_cast<std::int32_t>(plan.fibre_length);
  tiles.extent = static_cast<std::int32_t>(plan.index_size);
  const std::int64_t bytes = plan.element_bytes;
  tiles.length_pitch = static_cast<std::int32_t>(row_pitch(tiles.length, bytes));
  tiles.extent_pitch = static_cast<std::int32_t>(row_pitch(tiles.extent, bytes));
  tiles.positions_pitch = static_cast<std::int32_t>(row_pitch(tiles.length, 2));
  tiles.by_length = FastDivisor(static_cast<std::uint32_t>(tiles.length));
  tiles.by_extent = FastDivisor(static_cast<std::uint32_t>(tiles.extent));
  std::int64_t tile = kRowTileThreads;
  const auto halve_until = [&](std::int64_t fewest, std::int64_t most) {
    while (tile > fewest && tile * tiles.bytes(bytes) > most) tile /= 2;
  };
  halve_until(kFewestPlainRows, kPlainTileBytes);
  halve_until(kFewestRows, kMostTileBytes);
  if (tile * tiles.bytes(bytes) <= kMostTileBytes) tiles.tile = static_cast<std::int32_t>(tile);
  return tiles;
}

template <class Update>
void launch_scatter_rows(void* stream, const IndexingPlan& plan, const RowTiles& tiles) {
  const std::int64_t blocks = (tiles.rows + tiles.tile - 1) / tiles.tile;
  const std::int64_t bytes = tiles.tile * tiles.bytes(plan.element_bytes);
  if (bytes > kPlainTileBytes) {
    const cudaError_t status = cudaFuncSetAttribute(
        scatter_rows_kernel<Update>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostTileBytes);
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw_launch_error("scatter_rows", stream, status);
    }
  }
  launch("scatter_rows", stream, static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks),
         kRowTileThreads, static_cast<std::size_t>(bytes), scatter_rows_kernel<Update>, plan,
         tiles);
}

}  // namespace

}  // namespace gantry::kernels::cuda
