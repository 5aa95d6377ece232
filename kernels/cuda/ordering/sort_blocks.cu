// Sorting of short fibres: one block holds a fibre.
#include <cub/block/block_radix_sort.cuh>

#include "kernels/cuda/launch.cuh"
#include "kernels/ordering/ordered_key.hpp"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::cuda {

namespace {

// The largest grid; blocks take several fibres.
constexpr std::int64_t kMostSortBlocks = std::int64_t{1} << 24;

template <class U, int kBlock, int kItems>
__global__ void __launch_bounds__(kBlock)
    sort_blocks_kernel(const __grid_constant__ SortPlan plan, KeyOrder<U> order, int bits,
                       SortCandidates candidates) {
  using Sort = cub::BlockRadixSort<U, kBlock, kItems, std::uint16_t>;
  __shared__ union {
    typename Sort::TempStorage sort;
    U keys[kBlock * kItems];
  } shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int length = static_cast<int>(plan.fibres.length);
  for (std::int64_t fibre = blockIdx.x; fibre < plan.fibres.count; fibre += gridDim.x) {
    const U* in = sort_input<U>(plan, fibre);
    const U* ready = static_cast<const U*>(candidates.keys) + fibre * length;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int at = item * kBlock + thread;
      // Behind the elements: the largest key, which a stable sort keeps there.
      U key = static_cast<U>(~U(0));
      if (at < length) {
        key = candidates.keys != nullptr
                  ? ready[at]
                  : order.key(in[static_cast<std::int64_t>(at) * plan.fibres.in.stride]);
      }
      shared.keys[at] = key;
    }
    __syncthreads();
    U keys[kItems];
    std::uint16_t places[kItems];
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      keys[item] = shared.keys[thread * kItems + item];
      places[item] = static_cast<std::uint16_t>(thread * kItems + item);
    }
    __syncthreads();
    Sort(shared.sort).SortBlockedToStriped(keys, places, 0, bits);
    const std::int64_t first = first_rank(plan, fibre);
    const SortOutput<U> out = sort_output<U>(plan, fibre);
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const int rank = item * kBlock + thread;
      const std::int64_t at = rank - first;
      if (rank < length && at >= 0 && at < plan.count) {
        const std::int64_t position =
            candidates.keys != nullptr
                ? static_cast<std::int64_t>(candidates.positions[fibre * length + places[item]])
                : places[item];
        const U value = order.is_exact(keys[item]) ? order.element(keys[item])
                                                   : in[position * plan.fibres.in.stride];
        out.write(at, value, position);
      }
    }
    __syncthreads();
  }
}

template <class U, int kBlock, int kItems>
void launch_blocks(void* stream, const SortPlan& plan, const SortCandidates& candidates) {
  const auto order = make_key_order<U>(plan.fibres.dtype, plan.largest_first);
  const std::int64_t blocks =
      plan.fibres.count < kMostSortBlocks ? plan.fibres.count : kMostSortBlocks;
  launch("sort_blocks", stream, static_cast<unsigned>(blocks), kBlock, 0,
         sort_blocks_kernel<U, kBlock, kItems>, plan, order, order.bits(), candidates);
}

}  // namespace

void sort_in_blocks(void* stream, const SortPlan& plan, const SortCandidates& candidates) {
  static_assert(kBlockSort == 256 * 8);
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    if (plan.fibres.length <= 32 * 4) {
      launch_blocks<U, 32, 4>(stream, plan, candidates);
    } else if (plan.fibres.length <= 128 * 4) {
      launch_blocks<U, 128, 4>(stream, plan, candidates);
    } else {
      launch_blocks<U, 256, 8>(stream, plan, candidates);
    }
  });
}

}  // namespace gantry::kernels::cuda
