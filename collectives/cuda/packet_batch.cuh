// Shapes of the kernels that work in packets.
#pragma once

#include <cstdint>

#include "collectives/cuda/block.cuh"

namespace gantry::protocol::cuda {

// Packets that a thread waits for at once, for up to so many ranks, and for more.
inline constexpr int kFewRanks = 4;
inline constexpr int kManyRanks = 8;

// Small blocks are there sooner.
constexpr int packet_threads(std::int64_t words_per_block) {
  return words_per_block <= 128 ? 128 : kThreads;
}

}  // namespace gantry::protocol::cuda
