// Note [Compaction] on the GPU: a block for each tile, kItems elements for each of its threads. A
// warp handles consecutive elements, and its lanes neighbouring ones, so that reads and writes of a
// warp are together.
#include <cub/device/device_scan.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/impl/compact.inl"

namespace gantry::kernels::cuda {

namespace {

constexpr int kWarps = kThreads / 32;
constexpr int kItems = static_cast<int>(kCompactionTile) / kThreads;

// The row-major index of the calling thread's first element in `tile`; the others follow in steps
// of 32.
__device__ std::int64_t first_of_thread(std::int64_t tile) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return tile * kCompactionTile + warp * 32 * kItems + lane;
}

// Writes the number of selected elements of each tile to plan.sums.
template <class W, bool kLinear>
__global__ void __launch_bounds__(kThreads)
    count_tiles_kernel(const __grid_constant__ CompactionPlan plan, std::int64_t tiles) {
  __shared__ int warp_counts[kWarps];
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t first = first_of_thread(tile);
    int count = 0;
#pragma unroll(kLinear ? kItems : 1)
    for (int item = 0; item < kItems; ++item) {
      const std::int64_t i = first + item * 32;
      if (i < plan.numel && is_selected<W, kLinear>(plan, i)) ++count;
    }
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

template <class W, CompactionKind kKind, class T, bool kLinear>
__global__ void __launch_bounds__(kThreads)
    compact_kernel(const __grid_constant__ CompactionPlan plan, std::int64_t tiles) {
  __shared__ int warp_counts[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned lane = threadIdx.x % 32;
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t first = first_of_thread(tile);
    unsigned selected[kItems];  // the lanes that select, for each item
    int count = 0;
#pragma unroll(kLinear ? kItems : 1)
    for (int item = 0; item < kItems; ++item) {
      const std::int64_t i = first + item * 32;
      selected[item] =
          __ballot_sync(0xffffffffu, i < plan.numel && is_selected<W, kLinear>(plan, i));
      count += __popc(selected[item]);
    }
    if (lane == 0) warp_counts[warp] = count;
    __syncthreads();
    std::int64_t rank = tile == 0 ? 0 : plan.sums[tile - 1];
    for (int before = 0; before < warp; ++before) rank += warp_counts[before];
#pragma unroll(kLinear ? kItems : 1)
    for (int item = 0; item < kItems; ++item) {
      if ((selected[item] >> lane & 1) != 0) {
        const int before = __popc(selected[item] & ((1u << lane) - 1));
        compact_element<kKind, T, kLinear>(plan, first + item * 32, rank + before);
      }
      rank += __popc(selected[item]);
    }
    __syncthreads();
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
             count_tiles_kernel<W, decltype(linear)::kLinear>, plan, tiles);
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
             compact_kernel<W, decltype(kind)::kKind, T, decltype(linear)::kLinear>, plan, tiles);
    });
  });
}

}  // namespace gantry::kernels::cuda
