// The bits of a mask's selection on the GPU: Note [Compaction].
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/impl/compact.inl"

namespace gantry::kernels::cuda {

namespace {

constexpr int kWarps = kThreads / 32;
// Bits are read and written in words of 32.
constexpr int kTileWords = static_cast<int>(kCompactionTile) / 32;
constexpr int kWarpWords = kTileWords / kWarps;

// The words of 32 bits of a mask's selection, an even number.
__device__ std::uint32_t* bit_words(const CompactionPlan& plan) {
  return reinterpret_cast<std::uint32_t*>(plan.bits);
}
__device__ std::int64_t bit_word_count(const CompactionPlan& plan) {
  return selection_words(plan.numel) * 2;
}

// Blocks for `units` of work, each of them for a block.
inline unsigned blocks_of(std::int64_t units, std::int64_t most) {
  return static_cast<unsigned>(units < most ? units : most);
}

}  // namespace

}  // namespace gantry::kernels::cuda
