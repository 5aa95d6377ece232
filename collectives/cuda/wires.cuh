// Shapes of the kernels that work over wires.
#pragma once

#include <cstdint>

#include "collectives/algorithms/wires.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

// Ranks whose units a thread waits for at once. More, in larger groups, would be more code, whose
// way to the multiprocessors takes longer than another round.
inline constexpr int kTwoRanks = 2;
inline constexpr int kMoreRanks = 4;
// Packets that are only moved are little code, and if they are of all ranks at once, nothing has to
// wait for entries; lines would not fit into registers.
inline constexpr int kManyRanks = 8;

// Threads of each of `blocks` blocks that share `units` units of `Wire`, or of what one rank gets
// of them: small blocks are there sooner.
template <template <class> class Wire>
constexpr int wire_threads(std::int64_t units, int blocks) {
  using Shape = Wire<CudaBlock<0>>;
  constexpr int kUnitThreads = (Shape::kUnitWords + Shape::kHeld - 1) / Shape::kHeld;
  constexpr int kGrain = 128;
  const std::int64_t wanted = (units + blocks - 1) / blocks * kUnitThreads;
  return wanted >= kThreads
             ? kThreads
             : static_cast<int>((wanted + kGrain - 1) / kGrain + (wanted == 0)) * kGrain;
}

}  // namespace gantry::protocol::cuda
