// The sizes by which the host transport divides arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "collectives/host/staging.hpp"
#include "collectives/partition.hpp"

namespace gantry {

// Bytes of one area of a staging. Two stagings with two areas each take 32 MiB per rank.
inline constexpr std::int64_t kHostStagingBytes = std::int64_t{8} << 20;

// The most bytes that ranks of a group of `ranks` send with an entry, where a second message would
// cost more.
constexpr std::int64_t small_limit(int ranks) {
  constexpr std::int64_t kMostSmallBytes = std::int64_t{32} << 10;
  constexpr std::int64_t kAllSmallBytes = std::int64_t{512} << 10;
  constexpr std::int64_t kLeastSmallBytes = std::int64_t{1} << 10;
  return std::clamp(kAllSmallBytes / ranks, kLeastSmallBytes, kMostSmallBytes);
}

// Bytes of a slice that one chunk of a direct operation moves.
constexpr std::int64_t direct_chunk_bytes(int ranks) {
  constexpr std::int64_t kGrain = 64;
  return std::min(kChunkBytes, kHostStagingBytes / ranks / kGrain * kGrain);
}

// Elements of the array that one chunk of a two-shot moves.
constexpr std::int64_t two_shot_chunk_elements(int ranks, std::int64_t width) {
  const std::int64_t grain = ranks * kPartGrain;
  return kHostStagingBytes / width / grain * grain;
}

}  // namespace gantry
