// Note [Rows of a shared index]
// All rows have the same sorted indices. Neighbouring threads take neighbouring indices of the
// sorted order, so their destinations are side by side, but their sources are not. A block
// therefore loads a few rows of sources side by side into shared memory. A thread finds the run of
// its index once, and makes the writes of the run to all rows of the block.
#include "kernels/cuda/indexing/index_rows.hpp"

#include <algorithm>

#include "kernels/cuda/indexing/index_fault.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ordering/block_radix.cuh"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::cuda {

namespace {

// The sort of a short index: elements and the most threads of its block.
constexpr int kSortItems = 17;
constexpr int kSortThreads = 512;
// Shared memory of a block without leave.
constexpr std::int64_t kPlainBytes = 48 << 10;
// Shared memory of the rows of a block, unless one row has more.
constexpr std::int64_t kRowsBytes = 32 << 10;
constexpr int kMostRows = 64;
// Fewer rows leave the GPU idle.
constexpr std::int64_t kFewestRows = 32;
// Blocks that keep a GPU busy.
constexpr std::int64_t kManyBlocks = 1024;
// Sources of a run that a thread keeps the places of, and rows whose elements are in flight.
constexpr int kKept = 4;
constexpr int kBatch = 4;

struct IndexRows {
  std::int64_t direct_stride;  // between rows
  std::int64_t indexed_stride;
  std::int64_t rows;
  std::int32_t length;  // of a row of sources
  std::int32_t tile;    // rows of a block
  std::int32_t wide;    // threads side by side along the indices
};

__global__ void __launch_bounds__(kSortThreads)
    sort_short_index_kernel(const __grid_constant__ IndexingPlan plan, int bits,
                            std::uint32_t* keys, std::uint32_t* places) {
  extern __shared__ __align__(16) unsigned char short_index_memory[];
  const int threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x);
  const int count = static_cast<int>(plan.fibre_length);
  auto* const words = reinterpret_cast<std::uint32_t*>(short_index_memory);
  std::uint32_t* const counters = words + kSortItems * threads;
#pragma unroll 4
  for (int i = 0; i < kSortItems; ++i) {
    const int at = i * threads + thread;
    std::uint32_t key = 0xffff;
    if (at < count) {
      const std::int64_t position =
          checked_position(plan, load_index(plan, at * plan.indices_stride));
      key = static_cast<std::uint32_t>(position < 0 ? plan.index_size : position);
    }
    words[at] = key << 16 | static_cast<std::uint32_t>(at);
  }
  __syncthreads();
  sort_words<kSortItems>(words, counters, 16, 16 + bits);
  for (int at = thread; at < count; at += threads) {
    keys[at] = words[at] >> 16;
    places[at] = words[at] & 0xffff;
  }
}

template <class Update>
__global__ void __launch_bounds__(kThreads)
    index_rows_kernel(const __grid_constant__ IndexingPlan plan,
                      const __grid_constant__ IndexRows rows, const std::uint32_t* keys,
                      const std::uint32_t* places) {
  using T = typename Update::Element;
  extern __shared__ __align__(16) unsigned char index_rows_memory[];
  T* const sources = reinterpret_cast<T*>(index_rows_memory);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * rows.tile;
  const int own_rows =
      static_cast<int>(rows.rows - first < rows.tile ? rows.rows - first : rows.tile);
  const int length = rows.length;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % rows.wide;
  const int group = thread / rows.wide;
  const int groups = kThreads / rows.wide;
  const T* const direct = static_cast<const T*>(plan.direct) + first * rows.direct_stride;
  for (int row = group; row < own_rows; row += groups) {
    const T* const from = direct + row * rows.direct_stride;
    T* const to = sources + row * length;
    for (int k = column; k < length; k += kBatch * rows.wide) {
      T batch[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (k + b * rows.wide < length) batch[b] = from[k + b * rows.wide];
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (k + b * rows.wide < length) to[k + b * rows.wide] = batch[b];
      }
    }
  }
  __syncthreads();
  for (int j = column; j < length; j += rows.wide) {
    const std::uint32_t key = keys[j];
    if (key == static_cast<std::uint32_t>(plan.index_size)) continue;
    if (j > 0 && keys[j - 1] == key) continue;
    int end = j + 1;
    while (end < length && keys[end] == key) ++end;
    int kept[kKept];
#pragma unroll
    for (int k = 0; k < kKept; ++k) kept[k] = j + k < end ? static_cast<int>(places[j + k]) : 0;
    T* const indexed = static_cast<T*>(plan.indexed) + first * rows.indexed_stride + key;
    for (int row = group; row < own_rows; row += kBatch * groups) {
      T values[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (row + b * groups < own_rows) {
          values[b] = indexed[(row + b * groups) * rows.indexed_stride];
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (row + b * groups >= own_rows) break;
        const T* const from = sources + (row + b * groups) * length;
#pragma unroll
        for (int k = 0; k < kKept; ++k) {
          if (j + k < end) values[b] = Update::apply(values[b], from[kept[k]]);
        }
        for (int k = j + kKept; k < end; ++k) {
          values[b] = Update::apply(values[b], from[places[k]]);
        }
        indexed[(row + b * groups) * rows.indexed_stride] = values[b];
      }
    }
  }
}

// As many rows as fit, but fewer if their blocks would leave the GPU idle.
int tile_of(const IndexingPlan& plan) {
  const std::int64_t row_bytes = plan.fibre_length * plan.element_bytes;
  const std::int64_t fitting = std::max<std::int64_t>(1, kRowsBytes / row_bytes);
  const std::int64_t wanted = std::max<std::int64_t>(1, plan.fibres.numel / kManyBlocks);
  return static_cast<int>(std::min<std::int64_t>({fitting, wanted, kMostRows}));
}

}  // namespace

bool is_short_index(const IndexingPlan& plan) {
  return plan.fibre_length <= kSortItems * kSortThreads && plan.index_size <= 0xffff;
}

void sort_short_index(void* stream, const IndexingPlan& plan, std::uint32_t* keys,
                      std::uint32_t* places) {
  constexpr std::int64_t kWarpItems = 32 * kSortItems;
  const int threads = static_cast<int>((plan.fibre_length + kWarpItems - 1) / kWarpItems) * 32;
  int bits = 1;
  while (plan.index_size >> bits != 0) ++bits;
  const int words = kSortItems * threads + counter_words(threads);
  const std::size_t bytes = static_cast<std::size_t>(words) * sizeof(std::uint32_t);
  if (static_cast<std::int64_t>(bytes) > kPlainBytes) {
    const cudaError_t status =
        cudaFuncSetAttribute(sort_short_index_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes));
    if (status != cudaSuccess) {
      (void)cudaGetLastError();
      throw_launch_error(plan.op, stream, status);
    }
  }
  launch("sort_index", stream, 1, static_cast<unsigned>(threads), bytes, sort_short_index_kernel,
         plan, bits, keys, places);
}

bool has_index_rows(const IndexingPlan& plan) {
  return plan.fibres.ndim == 1 && plan.direct_stride == 1 && plan.index_stride == 1 &&
         plan.element_bytes <= 8 && plan.index_size < UINT32_MAX &&
         plan.fibre_length * plan.element_bytes <= kPlainBytes &&
         plan.fibres.numel >= kFewestRows && plan.fibres.numel < (std::int64_t{1} << 31);
}

void index_rows(void* stream, const IndexingPlan& plan, ScatterMode mode, const std::uint32_t* keys,
                const std::uint32_t* places) {
  IndexRows rows = {};
  rows.direct_stride = plan.fibres.strides[0][0];
  rows.indexed_stride = plan.fibres.strides[0][1];
  rows.rows = plan.fibres.numel;
  rows.length = static_cast<std::int32_t>(plan.fibre_length);
  rows.tile = tile_of(plan);
  rows.wide = 32;
  while (rows.wide < kThreads && rows.wide < rows.length) rows.wide *= 2;
  const auto blocks = static_cast<unsigned>((rows.rows + rows.tile - 1) / rows.tile);
  const auto bytes = static_cast<std::size_t>(rows.tile * plan.fibre_length * plan.element_bytes);
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    using Update = typename decltype(tag)::type;
    if constexpr (sizeof(typename Update::Element) <= 8) {
      launch("index_rows", stream, blocks, kThreads, bytes, index_rows_kernel<Update>, plan, rows,
             keys, places);
    }
  });
}

}  // namespace gantry::kernels::cuda
