// Copies by the lanes of a warp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gantry::protocol::cuda {

// 16-byte words that a thread has in flight: they may be a microsecond away.
inline constexpr int kCopyInFlight = 8;
inline constexpr int kPieceBytes = 32 * kCopyInFlight * 16;

template <class Word>
__device__ void copy_words(std::byte* to, const std::byte* from, int bytes, int lane) {
  const int words = bytes / static_cast<int>(sizeof(Word));
  auto* out = reinterpret_cast<Word*>(to);
  const auto* in = reinterpret_cast<const Word*>(from);
#pragma unroll 1
  for (int i = lane; i < words; i += 32 * kCopyInFlight) {
    Word loaded[kCopyInFlight];
#pragma unroll
    for (int k = 0; k < kCopyInFlight; ++k) {
      if (i + k * 32 < words) loaded[k] = in[i + k * 32];
    }
#pragma unroll
    for (int k = 0; k < kCopyInFlight; ++k) {
      if (i + k * 32 < words) out[i + k * 32] = loaded[k];
    }
  }
  const int tail = words * static_cast<int>(sizeof(Word)) + lane;
  if (tail < bytes) to[tail] = from[tail];
}

// Copies at most kPieceBytes by a warp. Not inlined, so that all registers are its own.
inline __device__ __noinline__ void copy_piece(std::byte* to, const std::byte* from, int bytes,
                                               int lane) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (bits % 16 == 0) {
    copy_words<uint4>(to, from, bytes, lane);
  } else if (bits % 4 == 0) {
    copy_words<std::uint32_t>(to, from, bytes, lane);
  } else if (bits % 2 == 0) {
    copy_words<std::uint16_t>(to, from, bytes, lane);
  } else {
    copy_words<std::uint8_t>(to, from, bytes, lane);
  }
}

}  // namespace gantry::protocol::cuda
