// The second pass of Note [Compaction] on the GPU, with a block for each tile. It lists the
// selected elements in shared memory, by rank: neighbouring threads then handle neighbouring ranks,
// and each of them has several accesses in flight.
#include "kernels/cuda/indexing/selection_words.cuh"

namespace gantry::kernels::cuda {

namespace {

// Each thread has kGroups groups of kGroup neighbouring elements, and the lanes of a warp have
// neighbouring groups.
constexpr int kGroup = 4;
constexpr int kGroups = static_cast<int>(kCompactionTile) / kThreads / kGroup;
static_assert(kGroups == 4);  // counts of groups are the bytes of a word
// Selected elements of a thread whose accesses are in flight together.
constexpr int kBatch = 8;
// Most blocks: each has several tiles, and reads the bits of the next one early.
constexpr std::int64_t kMostCompactingBlocks = 4096;

// The warp's words of a tile, one for each of the first lanes; 0 after the end.
__device__ inline std::uint32_t load_word(const CompactionPlan& plan, std::int64_t tile) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t at = tile * kTileWords + warp * kWarpWords + lane;
  return lane < kWarpWords && at < bit_word_count(plan) ? bit_words(plan)[at] : 0;
}

// The position in a tile of the calling thread's first element in group `g`.
__device__ inline int first_of_group(int g) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return ((warp * kGroups + g) * 32 + lane) * kGroup;
}

// Lists the positions of the selected elements of a tile, of which the warp has the words. Every
// thread calls; returns their number.
__device__ inline int list_selected(std::uint32_t word, std::uint16_t (&list)[kCompactionTile]) {
  __shared__ int warp_counts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // Bit kGroup * g + v belongs to element v of the thread's group g.
  unsigned bits = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    const unsigned of_group = __shfl_sync(0xffffffffu, word, g * kGroup + lane / 8);
    bits |= (of_group >> (kGroup * (lane % 8)) & 15u) << (kGroup * g);
  }
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

template <CompactionKind kKind, class T, bool kLinear>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 1 || sizeof(T) == 8 ? 4 : 0)
    compact_kernel(const __grid_constant__ CompactionPlan plan, std::int64_t tiles) {
  constexpr bool kPacks = kKind == CompactionKind::pack;
  constexpr bool kMoves = kPacks || kKind == CompactionKind::unpack;
  __shared__ std::uint16_t list[kCompactionTile];
  std::uint32_t word = load_word(plan, blockIdx.x);
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t first = tile == 0 ? 0 : plan.sums[tile - 1];
    const std::int64_t begin = tile * kCompactionTile;
    const std::uint32_t next_word = load_word(plan, tile + gridDim.x);
    int count = list_selected(word, list);
    word = next_word;
    if (first + count > plan.limit) count = static_cast<int>(plan.limit - first);
    if constexpr (kMoves) {
      T* const unpacked = static_cast<T*>(plan.unpacked);
      const std::int64_t place_stride = kLinear ? plan.places.strides[0] : 0;
      T* const row = kLinear ? unpacked + begin * place_stride : unpacked;
      const auto place_of = [&](int rank) {
        if constexpr (kLinear) return row + list[rank] * place_stride;
        return row + plan.places.offset(begin + list[rank]);
      };
      const std::int64_t step = kThreads * plan.packed_stride;
      const int thread = static_cast<int>(threadIdx.x);
      T* packed = static_cast<T*>(plan.packed) + (first + thread) * plan.packed_stride;
      for (int r = thread; r < count; r += kThreads * kBatch) {
        T values[kBatch];
        T* at = packed;
#pragma unroll(kLinear ? kBatch : 1)
        for (int k = 0; k < kBatch; ++k) {
          const int rank = r + k * kThreads;
          if (rank < count) values[k] = kPacks ? *place_of(rank) : *at;
          if constexpr (!kPacks) at += step;
        }
        at = packed;
#pragma unroll(kLinear ? kBatch : 1)
        for (int k = 0; k < kBatch; ++k) {
          const int rank = r + k * kThreads;
          if (rank < count) *(kPacks ? at : place_of(rank)) = values[k];
          if constexpr (kPacks) at += step;
        }
        packed += kBatch * step;
      }
    } else {
      for (int r = static_cast<int>(threadIdx.x); r < count; r += kThreads)
        compact_element<kKind, T, kLinear>(plan, begin + list[r], first + r);
    }
    __syncthreads();  // the next tile overwrites the list
  }
}

}  // namespace

void compact(const char* op, void* stream, const CompactionPlan& plan) {
  const std::int64_t tiles = compaction_tiles(plan.numel);
  dispatch_compaction(plan, [&](auto kind, auto element) {
    using T = typename decltype(element)::type;
    dispatch_linear(plan, [&](auto linear) {
      launch(op, stream, blocks_of(tiles, kMostCompactingBlocks), kThreads, 0,
             compact_kernel<decltype(kind)::kKind, T, decltype(linear)::kLinear>, plan, tiles);
    });
  });
}

}  // namespace gantry::kernels::cuda
