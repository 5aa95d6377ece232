// Launch parameters of the LL and LL128 kernels.
#pragma once

#include <cstdint>

#include "collectives/algorithms/ll.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

// Ranks whose units a thread waits for at once. In larger groups, more ranks would need more code,
// which takes longer to fetch than another round of waiting.
inline constexpr int kTwoRanks = 2;
inline constexpr int kMoreRanks = 4;
// LL packets that are only moved need little code. If a thread waits for all ranks at once, it need
// not wait for entries. LL128 lines of as many ranks would not fit into registers.
inline constexpr int kManyRanks = 8;

// Threads of each block, for `units` units of `Proto` in `blocks` blocks. Small blocks start
// sooner.
template <template <class> class Proto>
constexpr int ll_threads(std::int64_t units, int blocks) {
  using Shape = Proto<CudaBlock<0>>;
  constexpr int kUnitThreads = (Shape::kUnitWords + Shape::kHeld - 1) / Shape::kHeld;
  constexpr int kGrain = 128;
  const std::int64_t wanted = (units + blocks - 1) / blocks * kUnitThreads;
  return wanted >= kThreads
             ? kThreads
             : static_cast<int>((wanted + kGrain - 1) / kGrain + (wanted == 0)) * kGrain;
}

}  // namespace gantry::protocol::cuda
