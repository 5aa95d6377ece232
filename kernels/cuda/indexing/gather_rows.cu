// Note [Gathers of rows]
// An index along a row names elements anywhere in it. Reading them from memory takes a sector
// each. So a block first loads a few rows side by side into shared memory. If the rows share the
// index, a thread loads it once for all of them.
//
// An index of whole rows names elements that are side by side. Threads write vectors of the output,
// whatever the length of the rows: a vector lies in one row, or in two.
#include "kernels/cuda/indexing/gather_rows.hpp"

#include <cuda_pipeline_primitives.h>

#include <algorithm>

#include "kernels/cuda/elementwise/offset_calculator.cuh"
#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/impl/scatter.inl"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

// Shared memory of the rows of a block, unless one row has more, and of the longest row.
constexpr std::int64_t kRowsBytes = 32 << 10;
constexpr std::int64_t kMostRowBytes = 47 << 10;
constexpr std::int64_t kMostRows = 16;
// The caches hold shorter rows. Fewer rows leave the GPU idle: two blocks for a multiprocessor.
constexpr std::int64_t kLeastRowBytes = 1 << 10;
constexpr std::int64_t kFewestRows = 2 * 132;
// Most elements of a row for each index: all of them are read.
constexpr std::int64_t kMostPerIndex = 4;
// Elements of a thread that are in flight together.
constexpr int kBatch = 4;

struct StagedRows {
  OffsetCalculator<3> fibres;
  std::uint32_t count;
  std::int32_t tile;    // rows of a block
  std::int32_t length;  // elements of a row
  bool is_wide;         // rows are whole words of 16 bytes
};

// Copies a row of `length` elements into shared memory. Every thread calls.
template <class T>
__device__ void stage_row(T* to, const T* from, int length) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (sizeof(T) >= 4) {
    for (int i = thread; i < length; i += kThreads) {
      __pipeline_memcpy_async(to + i, from + i, sizeof(T));
    }
  } else {
    for (int first = thread; first < length; first += kBatch * kThreads) {
      T batch[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (first + b * kThreads < length) batch[b] = from[first + b * kThreads];
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (first + b * kThreads < length) to[first + b * kThreads] = batch[b];
      }
    }
  }
}

template <class T, bool kSharesIndex>
__global__ void __launch_bounds__(kThreads)
    gather_along_rows_kernel(const __grid_constant__ IndexingPlan plan,
                             const __grid_constant__ StagedRows staged) {
  extern __shared__ __align__(16) unsigned char gather_rows_memory[];
  __shared__ std::int64_t offsets[kMostRows][3];
  T* const elements = reinterpret_cast<T*>(gather_rows_memory);
  const std::uint32_t first = blockIdx.x * static_cast<std::uint32_t>(staged.tile);
  const std::uint32_t rest = staged.count - first;
  const int rows =
      rest < static_cast<std::uint32_t>(staged.tile) ? static_cast<int>(rest) : staged.tile;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < rows) staged.fibres.offsets(first + thread, offsets[thread]);
  __syncthreads();
  for (int row = 0; row < rows; ++row) {
    const T* const from = static_cast<const T*>(plan.indexed) + offsets[row][1];
    T* const to = elements + row * staged.length;
    if (staged.is_wide) {
      constexpr int kPerWord = 16 / static_cast<int>(sizeof(T));
      stage_row(reinterpret_cast<Word16*>(to), reinterpret_cast<const Word16*>(from),
                staged.length / kPerWord);
    } else {
      stage_row(to, from, staged.length);
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();

  // The element of a staged row at an index's position, or 0. Reports an index out of range.
  const auto element_of = [&](int row, std::int64_t position) {
    return position < 0 ? T{} : elements[row * staged.length + position];
  };
  const int count = static_cast<int>(plan.fibre_length);
  for (int turn = 0; turn < (kSharesIndex ? 1 : rows); ++turn) {
    const std::int64_t index_offset = offsets[turn][2];
    for (int column = thread; column < count; column += kBatch * kThreads) {
      std::int64_t positions[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int at = column + b * kThreads;
        if (at >= count) break;
        positions[b] = load_index(plan, index_offset + at * plan.indices_stride);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (column + b * kThreads < count) positions[b] = checked_position(plan, positions[b]);
      }
      for (int row = turn; row < (kSharesIndex ? rows : turn + 1); ++row) {
        T* const to = static_cast<T*>(plan.direct) + offsets[row][0];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          const int at = column + b * kThreads;
          if (at < count) to[at] = element_of(row, positions[b]);
        }
      }
    }
  }
}

// The places that a vector of the output takes in two rows of the input.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    gather_whole_rows_kernel(const __grid_constant__ IndexingPlan plan,
                             const __grid_constant__ OffsetCalculator<3> calculator,
                             std::uint32_t n) {
  // The first element of the row that `offsets` begins in, or null. Reports an index out of range.
  const auto row_of = [&](const std::int64_t(&offsets)[3]) -> const T* {
    const std::int64_t position = checked_position(plan, load_index(plan, offsets[2]));
    if (position < 0) return nullptr;
    return static_cast<const T*>(plan.indexed) + offsets[1] + position * plan.index_stride;
  };
  T* const out = static_cast<T*>(plan.direct);
  const std::uint32_t vectors = n / V;
  for (std::int64_t i = first_index(); i < vectors; i += index_step()) {
    const std::uint32_t at = static_cast<std::uint32_t>(i) * V;
    std::int64_t offsets[3];
    const std::uint32_t left = calculator.offsets(at, offsets);
    const T* const row = row_of(offsets);
    const T* next = nullptr;
    if (left < V) {
      calculator.offsets(at + left, offsets);
      next = row_of(offsets);
    }
    StoredPack<T, V> pack;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const bool is_first = v < left;
      const T* const from = is_first ? row : next;
      pack.values[v] = from == nullptr ? T{} : from[is_first ? v : v - left];
    }
    *reinterpret_cast<StoredPack<T, V>*>(out + at) = pack;
  }
  const std::int64_t last = static_cast<std::int64_t>(vectors) * V + first_index();
  if (last >= n) return;
  std::int64_t offsets[3];
  calculator.offsets(static_cast<std::uint32_t>(last), offsets);
  const T* const from = row_of(offsets);
  out[last] = from == nullptr ? T{} : *from;
}

bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

// True if the rows begin on 16 bytes and are whole words of them.
bool has_wide_rows(const IndexingPlan& plan) {
  const std::int64_t per_word = 16 / plan.element_bytes;
  if (!is_aligned(plan.indexed) || plan.index_size % per_word != 0) return false;
  for (int d = 0; d < plan.fibres.ndim; ++d) {
    if (plan.fibres.strides[d][1] % per_word != 0) return false;
  }
  return true;
}

// True if all fibres have one index.
bool shares_index(const IndexingPlan& plan) {
  for (int d = 0; d < plan.fibres.ndim; ++d) {
    if (plan.fibres.strides[d][2] != 0) return false;
  }
  return true;
}

// True if the output is dense in the order of its positions.
bool is_dense(const StridedPlan<3>& positions) {
  std::int64_t size = 1;
  for (int d = 0; d < positions.ndim; ++d) {
    if (positions.strides[d][0] != size) return false;
    size *= positions.sizes[d];
  }
  return true;
}

}  // namespace

bool gather_along_rows(void* stream, const IndexingPlan& plan) {
  const std::int64_t rows = plan.fibres.numel;
  const std::int64_t row_bytes = plan.index_size * plan.element_bytes;
  if (plan.direct_stride != 1 || plan.index_stride != 1 || plan.element_bytes > 8 ||
      row_bytes < kLeastRowBytes || row_bytes > kMostRowBytes || rows < kFewestRows ||
      rows >= std::int64_t{1} << 31 || plan.fibre_length >= std::int64_t{1} << 30 ||
      plan.index_size > kMostPerIndex * plan.fibre_length) {
    return false;
  }
  StagedRows staged = {};
  staged.fibres = OffsetCalculator<3>(plan.fibres);
  staged.count = static_cast<std::uint32_t>(rows);
  staged.tile = static_cast<std::int32_t>(
      std::max<std::int64_t>(1, std::min({kRowsBytes / row_bytes, rows / kFewestRows, kMostRows})));
  staged.length = static_cast<std::int32_t>(plan.index_size);
  staged.is_wide = has_wide_rows(plan);
  const auto tile = static_cast<std::uint32_t>(staged.tile);
  const unsigned blocks = (staged.count + tile - 1) / tile;
  const std::size_t bytes = static_cast<std::size_t>(staged.tile * row_bytes);
  dispatch_word(plan.element_bytes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) <= 8) {
      launch("gather", stream, blocks, kThreads, bytes,
             shares_index(plan) ? gather_along_rows_kernel<T, true>
                                : gather_along_rows_kernel<T, false>,
             plan, staged);
    }
  });
  return true;
}

bool gather_whole_rows(void* stream, const IndexingPlan& plan) {
  const StridedPlan<3>& positions = plan.positions;
  const auto& inner = positions.strides[0];
  const int per_vector = 16 / plan.element_bytes;
  if (per_vector == 1 || inner[0] != 1 || inner[1] != 1 || inner[2] != 0 ||
      positions.sizes[0] < per_vector || positions.numel >= std::int64_t{1} << 31 ||
      !is_dense(positions) || !is_aligned(plan.direct)) {
    return false;
  }
  const auto n = static_cast<std::uint32_t>(positions.numel);
  dispatch_word(plan.element_bytes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) <= 8) {
      constexpr int V = 16 / static_cast<int>(sizeof(T));
      launch("gather", stream, blocks_for((n + V - 1) / V), kThreads, 0,
             gather_whole_rows_kernel<T, V>, plan, OffsetCalculator<3>(positions), n);
    }
  });
  return true;
}

}  // namespace gantry::kernels::cuda
