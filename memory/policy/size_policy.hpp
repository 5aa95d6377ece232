// Sizes and alignments of blocks and segments, and when a block is split.
#pragma once

#include <cstddef>
#include <string>

#include <gantry/core/error.hpp>

#include "core/rounding.hpp"

namespace gantry::memory {

/// Every block size is a multiple of this.
inline constexpr std::size_t kBlockGrain = 512;
/// Blocks up to this size live in small segments.
inline constexpr std::size_t kSmallBlockLimit = std::size_t{1} << 20;
/// Size of a segment of small blocks.
inline constexpr std::size_t kSmallSegmentBytes = std::size_t{2} << 20;
/// Requests below this share segments of kLargeSegmentBytes.
inline constexpr std::size_t kSharedSegmentLimit = std::size_t{10} << 20;
inline constexpr std::size_t kLargeSegmentBytes = std::size_t{20} << 20;
/// Segments for larger requests are a multiple of this.
inline constexpr std::size_t kSegmentGrain = std::size_t{2} << 20;

/// Fine chunks let recovery reclaim nearly every free byte between blocks. Coarse chunks keep the
/// number of mappings of large blocks small. See docs/explanation/allocator.md.
inline constexpr std::size_t kFineChunkBytes = std::size_t{2} << 20;
inline constexpr std::size_t kCoarseChunkBytes = std::size_t{32} << 20;
/// Blocks from this size on are made of coarse chunks in any case.
inline constexpr std::size_t kCoarseBlockBytes = std::size_t{512} << 20;

/// A number of bytes that stands for all there are.
inline constexpr std::size_t kEverything = ~std::size_t{0};

/// Size of the block for a request of `bytes` > 0.
[[nodiscard]] constexpr std::size_t block_bytes(std::size_t bytes) {
  return round_up(bytes, kBlockGrain);
}

[[nodiscard]] constexpr bool is_small(std::size_t block_bytes) {
  return block_bytes <= kSmallBlockLimit;
}

/// Size of the segment that is made for a block.
[[nodiscard]] constexpr std::size_t segment_bytes(std::size_t block_bytes) {
  if (is_small(block_bytes)) return kSmallSegmentBytes;
  if (block_bytes < kSharedSegmentLimit) return kLargeSegmentBytes;
  return round_up(block_bytes, kSegmentGrain);
}

/// True if a free block of `have` bytes is split when `want` bytes of it are taken.
[[nodiscard]] constexpr bool should_split(std::size_t have, std::size_t want, bool small,
                                          std::size_t max_split_bytes) {
  const std::size_t remainder = have - want;
  if (small) return remainder >= kBlockGrain;
  return want < max_split_bytes && remainder > kSmallBlockLimit;
}

/// True if `alignment` is a power of two up to `grain`, which is one. It costs one branch.
[[nodiscard]] constexpr bool divides_grain(std::size_t alignment, std::size_t grain) {
  return ((alignment & (alignment - 1)) | ((alignment - 1) / grain)) == 0;
}
/// Throws: InvalidArgument, naming `allocate`, unless `alignment` is a power of two.
inline void check_alignment(std::size_t alignment) {
  // Not std::has_single_bit: without an instruction for it, that is a call.
  if (alignment != 0 && (alignment & (alignment - 1)) == 0) return;
  throw InvalidArgument("allocate: expected an alignment that is a power of two, but got " +
                        std::to_string(alignment));
}

}  // namespace gantry::memory
