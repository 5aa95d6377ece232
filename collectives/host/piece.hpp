#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "collectives/host/entry.hpp"

namespace gantry {

// A large message between two ranks goes in pieces. Each is a frame and data behind it, as one
// range of page-locked memory.
inline constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;
// Where the data begin, for the copy engine.
inline constexpr std::size_t kPieceDataAt = 128;
static_assert(sizeof(HostFrame) <= kPieceDataAt);

// The range of a piece with `bytes` of data in `memory`.
inline std::span<std::byte> piece_range(std::byte* memory, std::size_t bytes) {
  return {memory + kPieceDataAt - sizeof(HostFrame), sizeof(HostFrame) + bytes};
}

inline void write_piece_frame(std::byte* memory, const Descriptor& what) {
  const HostFrame frame{.what = what, .kind = HostFrame::Kind::piece};
  std::memcpy(memory + kPieceDataAt - sizeof frame, &frame, sizeof frame);
}

inline HostFrame read_frame(std::span<const std::byte> range) {
  HostFrame frame;
  std::memcpy(&frame, range.data(), sizeof frame);
  return frame;
}

// Bytes of the piece that begins at `begin`.
inline std::size_t piece_bytes(std::int64_t bytes, std::int64_t begin) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(bytes - begin, 0, kPieceBytes));
}

}  // namespace gantry
