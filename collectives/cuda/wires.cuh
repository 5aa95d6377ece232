// Shapes of the kernels that work over wires.
#pragma once

#include <cstdint>

#include "collectives/algorithms/wires.inl"
#include "collectives/cuda/block.cuh"
#include "collectives/cuda/launch.cuh"

namespace gantry::protocol::cuda {

// Ranks whose units a thread waits for at once, in groups of up to so many, and in larger ones.
inline constexpr int kFewRanks = 4;
inline constexpr int kManyRanks = 8;

// Threads of a block that has `units` units of `Wire`: small blocks are there sooner.
template <template <class> class Wire>
constexpr int wire_threads(std::int64_t units) {
  using Shape = Wire<CudaBlock<0>>;
  constexpr int kUnitThreads = (Shape::kUnitWords + Shape::kHeld - 1) / Shape::kHeld;
  return units * kUnitThreads <= 128 ? 128 : kThreads;
}

}  // namespace gantry::protocol::cuda
