#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "collectives/host/entry.hpp"

namespace gantry {

// The size of a chunk. A large message between two ranks is sent in chunks: each is a frame with
// data behind it, in one range of page-locked memory.
inline constexpr std::int64_t kChunkBytes = std::int64_t{1} << 20;
// The offset of the data, aligned for the copy engine.
inline constexpr std::size_t kChunkDataOffset = 256;
static_assert(sizeof(HostFrame) <= kChunkDataOffset);

// Returns the range of a chunk with `bytes` of data in `memory`.
inline std::span<std::byte> chunk_range(std::byte* memory, std::size_t bytes) {
  return {memory + kChunkDataOffset - sizeof(HostFrame), sizeof(HostFrame) + bytes};
}

inline void write_chunk_frame(std::byte* memory, const Descriptor& what) {
  const HostFrame frame{.what = what, .kind = HostFrame::Kind::chunk};
  std::memcpy(memory + kChunkDataOffset - sizeof frame, &frame, sizeof frame);
}

inline HostFrame read_frame(std::span<const std::byte> range) {
  HostFrame frame;
  std::memcpy(&frame, range.data(), sizeof frame);
  return frame;
}

// Returns the size of the chunk that begins at `begin`.
inline std::size_t chunk_bytes(std::int64_t bytes, std::int64_t begin) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(bytes - begin, 0, kChunkBytes));
}

}  // namespace gantry
