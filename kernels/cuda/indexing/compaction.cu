// Note [Compaction] on the GPU: a block for each tile. Each thread has kGroups groups of kGroup
// neighbouring elements, and the lanes of a warp neighbouring groups. The second pass lists the
// selected elements of a tile in shared memory, by rank: neighbouring threads then handle
// neighbouring ranks, and each of them has several accesses in flight.
#include <cub/device/device_scan.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/impl/compact.inl"

namespace gantry::kernels::cuda {

namespace {

constexpr int kWarps = kThreads / 32;
constexpr int kGroup = 4;
constexpr int kGroups = static_cast<int>(kCompactionTile) / kThreads / kGroup;
static_assert(kGroups == 4);  // counts of groups are the bytes of a word
// Selected elements of a thread whose accesses are in flight together.
constexpr int kBatch = 8;

// The position in a tile of the calling thread's first element in group `g`.
__device__ int first_of_group(int g) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return ((warp * kGroups + g) * 32 + lane) * kGroup;
}

// True if the mask is dense and groups of its elements are aligned.
template <class W>
bool has_dense_groups(const CompactionPlan& plan) {
  return (plan.mask_index.ndim == 0 ||
          (plan.mask_index.ndim == 1 && plan.mask_index.strides[0] == 1)) &&
         reinterpret_cast<std::uintptr_t>(plan.mask) % alignof(StoredPack<W, kGroup>) == 0;
}

// Bit kGroup * g + v tells whether element v of the calling thread's group g is selected.
template <class W, bool kLinear>
__device__ unsigned selected_bits(const CompactionPlan& plan, std::int64_t tile, bool is_dense) {
  const std::int64_t begin = tile * kCompactionTile;
  unsigned bits = 0;
  if (is_dense && begin + kCompactionTile <= plan.numel) {
    const auto* groups =
        reinterpret_cast<const StoredPack<W, kGroup>*>(static_cast<const W*>(plan.mask) + begin);
    StoredPack<W, kGroup> loaded[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) loaded[g] = groups[first_of_group(g) / kGroup];
    const W value_bits = static_cast<W>(plan.value_bits);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int v = 0; v < kGroup; ++v)
        bits |= ((loaded[g].values[v] & value_bits) != 0 ? 1u : 0u) << (kGroup * g + v);
    }
    return bits;
  }
#pragma unroll(kLinear ? kGroups : 1)
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll(kLinear ? kGroup : 1)
    for (int v = 0; v < kGroup; ++v) {
      const std::int64_t i = begin + first_of_group(g) + v;
      if (i < plan.numel && is_selected<W, kLinear>(plan, i)) bits |= 1u << (kGroup * g + v);
    }
  }
  return bits;
}

// Writes the number of selected elements of each tile to plan.sums.
template <class W, bool kLinear>
__global__ void __launch_bounds__(kThreads)
    count_tiles_kernel(const __grid_constant__ CompactionPlan plan, std::int64_t tiles,
                       bool is_dense) {
  __shared__ int warp_counts[kWarps];
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    int count = __popc(selected_bits<W, kLinear>(plan, tile, is_dense));
    for (int half = 16; half > 0; half /= 2) {
      count += __shfl_down_sync(0xffffffffu, count, half);
    }
    if (threadIdx.x % 32 == 0) warp_counts[threadIdx.x / 32] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
      int total = 0;
      for (int warp = 0; warp < kWarps; ++warp) total += warp_counts[warp];
      plan.sums[tile] = total;
    }
    __syncthreads();
  }
}

// Lists the positions in `tile` of its selected elements. Every thread calls; returns their number.
template <class W, bool kLinear>
__device__ int list_selected(const CompactionPlan& plan, std::int64_t tile, bool is_dense,
                             std::uint16_t (&list)[kCompactionTile]) {
  __shared__ int warp_counts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned bits = selected_bits<W, kLinear>(plan, tile, is_dense);
  unsigned counts = 0;  // of each group, at most 128 in a warp
#pragma unroll
  for (int g = 0; g < kGroups; ++g) counts |= __popc(bits >> (kGroup * g) & 15u) << (8 * g);
  unsigned sums = counts;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const unsigned before = __shfl_up_sync(0xffffffffu, sums, distance);
    if (lane >= distance) sums += before;
  }
  const unsigned totals = __shfl_sync(0xffffffffu, sums, 31);
  sums -= counts;
  if (lane == 0) {
    int total = 0;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) total += static_cast<int>(totals >> (8 * g) & 255u);
    warp_counts[warp] = total;
  }
  __syncthreads();
  int begin = 0;
  int total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) begin = total;
    total += warp_counts[w];
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    int rank = begin + static_cast<int>(sums >> (8 * g) & 255u);
#pragma unroll
    for (int v = 0; v < kGroup; ++v) {
      if ((bits >> (kGroup * g + v) & 1u) != 0) {
        list[rank++] = static_cast<std::uint16_t>(first_of_group(g) + v);
      }
    }
    begin += static_cast<int>(totals >> (8 * g) & 255u);
  }
  __syncthreads();
  return total;
}

template <class W, CompactionKind kKind, class T, bool kLinear>
__global__ void __launch_bounds__(kThreads)
    compact_kernel(const __grid_constant__ CompactionPlan plan, std::int64_t tiles, bool is_dense) {
  constexpr bool kPacks = kKind == CompactionKind::pack;
  constexpr bool kMoves = kPacks || kKind == CompactionKind::unpack;
  __shared__ std::uint16_t list[kCompactionTile];
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t first = tile == 0 ? 0 : plan.sums[tile - 1];
    const std::int64_t begin = tile * kCompactionTile;
    int count = list_selected<W, kLinear>(plan, tile, is_dense, list);
    if (first + count > plan.limit) count = static_cast<int>(plan.limit - first);
    if constexpr (kMoves) {
      const auto place_of = [&](int rank) {
        return offset_in<kLinear>(plan.places, begin + list[rank]);
      };
      const auto packed_at = [&](int rank) { return (first + rank) * plan.packed_stride; };
      const auto* from = static_cast<const T*>(kPacks ? plan.unpacked : plan.packed);
      auto* to = static_cast<T*>(kPacks ? plan.packed : plan.unpacked);
      for (int r = static_cast<int>(threadIdx.x); r < count; r += kThreads * kBatch) {
        T values[kBatch];
#pragma unroll(kLinear ? kBatch : 1)
        for (int k = 0; k < kBatch; ++k) {
          const int rank = r + k * kThreads;
          if (rank < count) values[k] = from[kPacks ? place_of(rank) : packed_at(rank)];
        }
#pragma unroll(kLinear ? kBatch : 1)
        for (int k = 0; k < kBatch; ++k) {
          const int rank = r + k * kThreads;
          if (rank < count) to[kPacks ? packed_at(rank) : place_of(rank)] = values[k];
        }
      }
    } else {
      for (int r = static_cast<int>(threadIdx.x); r < count; r += kThreads)
        compact_element<kKind, T, kLinear>(plan, begin + list[r], first + r);
    }
    __syncthreads();  // the next tile overwrites the list
  }
}

unsigned tile_blocks(std::int64_t tiles) {
  return static_cast<unsigned>(tiles < kMaxBlocks ? tiles : kMaxBlocks);
}

void check(void* stream, cudaError_t status) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw_launch_error("count_mask", stream, status);
}

}  // namespace

std::size_t sum_tiles_bytes(const CompactionPlan& plan) {
  std::size_t bytes = 0;
  check(nullptr, cub::DeviceScan::InclusiveSum(nullptr, bytes, plan.sums, plan.sums,
                                               compaction_tiles(plan.numel)));
  return bytes;
}

void sum_tiles(void* stream, const CompactionPlan& plan, void* scratch) {
  const std::int64_t tiles = compaction_tiles(plan.numel);
  dispatch_mask_word(plan.mask_bytes, [&](auto tag) {
    using W = typename decltype(tag)::type;
    dispatch_linear(plan, [&](auto linear) {
      launch("count_mask", stream, tile_blocks(tiles), kThreads, 0,
             count_tiles_kernel<W, decltype(linear)::kLinear>, plan, tiles,
             has_dense_groups<W>(plan));
    });
  });
  std::size_t bytes = sum_tiles_bytes(plan);
  check(stream, cub::DeviceScan::InclusiveSum(scratch, bytes, plan.sums, plan.sums, tiles,
                                              static_cast<cudaStream_t>(stream)));
}

void compact(const char* op, void* stream, const CompactionPlan& plan) {
  const std::int64_t tiles = compaction_tiles(plan.numel);
  dispatch_compaction(plan, [&](auto word, auto kind, auto element) {
    using W = typename decltype(word)::type;
    using T = typename decltype(element)::type;
    dispatch_linear(plan, [&](auto linear) {
      launch(op, stream, tile_blocks(tiles), kThreads, 0,
             compact_kernel<W, decltype(kind)::kKind, T, decltype(linear)::kLinear>, plan, tiles,
             has_dense_groups<W>(plan));
    });
  });
}

}  // namespace gantry::kernels::cuda
