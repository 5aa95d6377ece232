// The first pass of Note [Compaction] on the GPU. A dense mask has a warp for each tile, with 128
// bytes of each thread in flight, and no barrier. The last block sums the counts of a few tiles:
// two launches less. Note [Merge in the last block].
#include <cub/device/device_scan.cuh>

#include "kernels/cuda/indexing/selection_words.cuh"
#include "kernels/cuda/reductions/last_block.cuh"
#include "kernels/input.hpp"

namespace gantry::kernels::cuda {

namespace {

// The sum over the lanes of a warp, in lane 0.
__device__ inline int warp_sum(int value) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) value += __shfl_down_sync(0xffffffffu, value, half);
  return value;
}

// Writes kWarpWords words of bits from word `first` of the mask. Every lane of a warp calls.
// Returns the number of set bits, whose sum over the lanes counts.
template <class W, bool kLinear>
__device__ int write_words(const CompactionPlan& plan, std::int64_t first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  bool is_set[kWarpWords];
#pragma unroll(kLinear ? kWarpWords : 1)
  for (int w = 0; w < kWarpWords; ++w) {
    const std::int64_t i = (first + w) * 32 + lane;
    is_set[w] = i < plan.numel && is_selected<W, kLinear>(plan, i);
  }
  std::uint32_t own = 0;
#pragma unroll
  for (int w = 0; w < kWarpWords; ++w) {
    const std::uint32_t word = __ballot_sync(0xffffffffu, is_set[w]);
    if (lane == w) own = word;
  }
  if (lane < kWarpWords && first + lane < bit_word_count(plan)) bit_words(plan)[first + lane] = own;
  return __popc(own);
}

// Most tiles of which the last block sums the counts.
constexpr int kOwnSums = 16;
constexpr std::int64_t kMostLastBlockTiles = kThreads * kOwnSums;

// Replaces each count by the sum of the counts up to it, if the calling block is the last one.
// Every thread calls.
__device__ __noinline__ void sum_in_last_block(std::int64_t* sums, std::int64_t tiles,
                                               const MergeCounters& counters) {
  __shared__ int warp_totals[kWarps];
  if (tiles > kMostLastBlockTiles || !is_last_block(counters, 0, gridDim.x)) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first = static_cast<int>(threadIdx.x) * kOwnSums;
  const int count = static_cast<int>(tiles);
  int own[kOwnSums];
  int total = 0;
#pragma unroll
  for (int k = 0; k < kOwnSums; ++k) {
    own[k] = first + k < count ? static_cast<int>(__ldcg(sums + first + k)) : 0;
  }
#pragma unroll
  for (int k = 0; k < kOwnSums; ++k) own[k] = total += own[k];
  int before = total;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int earlier = __shfl_up_sync(0xffffffffu, before, distance);
    if (lane >= distance) before += earlier;
  }
  if (lane == 31) warp_totals[warp] = before;
  before -= total;
  __syncthreads();
  for (int w = 0; w < warp; ++w) before += warp_totals[w];
#pragma unroll
  for (int k = 0; k < kOwnSums; ++k) {
    if (first + k < count) sums[first + k] = before + own[k];
  }
}

// The first pass of any mask, with a block for each tile.
template <class W, bool kLinear>
__global__ void __launch_bounds__(kThreads)
    read_mask_kernel(const __grid_constant__ CompactionPlan plan, std::int64_t tiles,
                     const __grid_constant__ MergeCounters counters) {
  __shared__ int warp_counts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int count =
        warp_sum(write_words<W, kLinear>(plan, tile * kTileWords + warp * kWarpWords));
    if (threadIdx.x % 32 == 0) warp_counts[warp] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
      int total = 0;
      for (int w = 0; w < kWarps; ++w) total += warp_counts[w];
      plan.sums[tile] = total;
    }
    __syncthreads();
  }
  sum_in_last_block(plan.sums, tiles, counters);
}

// Elements of an access to a dense mask.
template <class W>
constexpr int kMaskPack = sizeof(W) == 1 ? 16 : 4;

// True if the mask is dense and its packs are aligned.
template <class W>
bool has_dense_packs(const CompactionPlan& plan) {
  return (plan.mask_index.ndim == 0 ||
          (plan.mask_index.ndim == 1 && plan.mask_index.strides[0] == 1)) &&
         reinterpret_cast<std::uintptr_t>(plan.mask) % alignof(StoredPack<W, kMaskPack<W>>) == 0;
}

// Four bits: which bytes of a word are not zero.
__device__ inline unsigned nonzero_bytes(std::uint32_t word) {
  const std::uint32_t high = (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u;
  // The products of the four bits have different places; those from bit 21 are in order.
  return (high >> 7) * 0x00204081u >> 21 & 15u;
}

// Writes the bits of a whole tile of bytes. Every lane of a warp calls. Returns as write_words().
__device__ inline int write_dense_tile(const CompactionPlan& plan, std::int64_t tile,
                                       std::uint8_t) {
  constexpr int kAccesses = static_cast<int>(kCompactionTile) / 32 / 16;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* packs = reinterpret_cast<const StoredPack<std::uint32_t, 4>*>(
                          static_cast<const std::uint8_t*>(plan.mask) + tile * kCompactionTile) +
                      lane;
  auto* halves = reinterpret_cast<std::uint16_t*>(bit_words(plan) + tile * kTileWords) + lane;
  const auto value_bits = static_cast<std::uint32_t>(plan.value_bits) * 0x01010101u;
  StoredPack<std::uint32_t, 4> loaded[kAccesses];
#pragma unroll
  for (int k = 0; k < kAccesses; ++k) loaded[k] = packs[k * 32];
  int count = 0;
#pragma unroll
  for (int k = 0; k < kAccesses; ++k) {
    unsigned bits = 0;
#pragma unroll
    for (int v = 0; v < 4; ++v) bits |= nonzero_bytes(loaded[k].values[v] & value_bits) << (4 * v);
    halves[k * 32] = static_cast<std::uint16_t>(bits);
    count += __popc(bits);
  }
  return count;
}

// The same for wider elements. Each access of a warp makes four words, of eight lanes each. Lanes
// exchange the parts of the words of four accesses.
template <class W>
__device__ int write_dense_tile(const CompactionPlan& plan, std::int64_t tile, W) {
  constexpr int kAccesses = 4;
  const unsigned lane = threadIdx.x % 32;
  const auto* packs = reinterpret_cast<const StoredPack<W, 4>*>(static_cast<const W*>(plan.mask) +
                                                                tile * kCompactionTile) +
                      lane;
  std::uint32_t* words = bit_words(plan) + tile * kTileWords;
  const W value_bits = static_cast<W>(plan.value_bits);
  const bool is_high = (lane & 4) != 0;
  const bool is_odd = (lane & 2) != 0;
  int count = 0;
#pragma unroll 2
  for (int first = 0; first < kTileWords / 4; first += kAccesses) {
    StoredPack<W, 4> loaded[kAccesses];
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) loaded[k] = packs[(first + k) * 32];
    std::uint32_t parts[kAccesses];
#pragma unroll
    for (int k = 0; k < kAccesses; ++k) {
      unsigned bits = 0;
#pragma unroll
      for (int v = 0; v < 4; ++v) bits |= ((loaded[k].values[v] & value_bits) != 0 ? 1u : 0u) << v;
      parts[k] = bits << (4 * (lane % 8));
    }
    // A lane keeps two of the accesses, then one.
    std::uint32_t kept[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t sent = is_high ? parts[k] : parts[k + 2];
      kept[k] = (is_high ? parts[k + 2] : parts[k]) | __shfl_xor_sync(0xffffffffu, sent, 4);
    }
    std::uint32_t word =
        (is_odd ? kept[1] : kept[0]) | __shfl_xor_sync(0xffffffffu, is_odd ? kept[0] : kept[1], 2);
    word |= __shfl_xor_sync(0xffffffffu, word, 1);
    if (lane % 2 == 0) {
      words[(first + static_cast<int>(lane % 8 / 2)) * 4 + static_cast<int>(lane / 8)] = word;
      count += __popc(word);
    }
  }
  return count;
}

// The first pass of a dense mask, with a warp for each tile.
template <class W>
__global__ void __launch_bounds__(kThreads)
    read_dense_mask_kernel(const __grid_constant__ CompactionPlan plan, std::int64_t tiles,
                           const __grid_constant__ MergeCounters counters) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp; tile < tiles;
       tile += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    int count = 0;
    if ((tile + 1) * kCompactionTile <= plan.numel) {
      count = write_dense_tile(plan, tile, W{});
    } else {
#pragma unroll 1
      for (int w = 0; w < kTileWords; w += kWarpWords)
        count += write_words<W, true>(plan, tile * kTileWords + w);
    }
    count = warp_sum(count);
    if (threadIdx.x % 32 == 0) plan.sums[tile] = count;
  }
  sum_in_last_block(plan.sums, tiles, counters);
}

std::size_t check_scan(void* stream, const CompactionPlan& plan, void* scratch, std::size_t bytes) {
  const cudaError_t status = cub::DeviceScan::InclusiveSum(scratch, bytes, plan.sums, plan.sums,
                                                           compaction_tiles(plan.numel),
                                                           static_cast<cudaStream_t>(stream));
  if (status == cudaSuccess) return bytes;
  (void)cudaGetLastError();
  throw_launch_error("read_mask", stream, status);
}

}  // namespace

bool sums_in_last_block(const CompactionPlan& plan) {
  return compaction_tiles(plan.numel) <= kMostLastBlockTiles;
}

std::size_t read_mask_bytes(const CompactionPlan& plan) {
  return sums_in_last_block(plan) ? 0 : check_scan(nullptr, plan, nullptr, 0);
}

void read_mask(void* stream, const CompactionPlan& plan, const MergeCounters& counters,
               void* scratch) {
  const std::int64_t tiles = compaction_tiles(plan.numel);
  dispatch_word(plan.mask_bytes, [&](auto tag) {
    using W = typename decltype(tag)::type;
    if (has_dense_packs<W>(plan)) {
      launch("read_mask", stream, blocks_of((tiles + kWarps - 1) / kWarps, kMaxBlocks), kThreads, 0,
             read_dense_mask_kernel<W>, plan, tiles, counters);
      return;
    }
    dispatch_linear(plan, [&](auto linear) {
      launch("read_mask", stream, blocks_of(tiles, kMaxBlocks), kThreads, 0,
             read_mask_kernel<W, decltype(linear)::kLinear>, plan, tiles, counters);
    });
  });
  if (!sums_in_last_block(plan)) check_scan(stream, plan, scratch, read_mask_bytes(plan));
}

}  // namespace gantry::kernels::cuda
