// The requests of a program to its allocator, without their times and reasons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gantry::replay {

/// One request: `bytes` for `block`, or the end of `block`.
struct AllocationOp {
  std::uint64_t bytes = 0;  ///< what was asked for; 0: the block is freed
  std::uint32_t block = 0;
  std::uint16_t stream = 0;
  std::uint16_t thread = 0;

  [[nodiscard]] bool is_allocation() const { return bytes != 0; }
  friend bool operator==(const AllocationOp&, const AllocationOp&) = default;
};
static_assert(sizeof(AllocationOp) == 16, "dumps hold this layout");

/// Allocations and frees in the order in which they were made. Blocks are numbered from 0 in the
/// order of their allocation; each is allocated once and freed at most once, on its own stream.
/// Streams and threads are numbered by first appearance; stream 0 is the default stream.
struct AllocationSequence {
  std::string name;
  std::vector<AllocationOp> ops;
  std::uint32_t blocks = 0;
  std::uint16_t streams = 1;
  std::uint16_t threads = 1;
  /// Frees in the log of blocks that it never saw allocated; they are not part of the sequence.
  std::uint64_t unmatched_frees = 0;
  /// Last lines of the log that are incomplete, as of a program that was killed; left out.
  std::uint64_t incomplete_lines = 0;

  /// Adds an allocation and returns the number of its block. Throws: InvalidArgument for 0 bytes.
  std::uint32_t allocate(std::uint64_t bytes, std::uint16_t stream = 0, std::uint16_t thread = 0);
  /// Adds the free of a live block.
  void free(std::uint32_t block, std::uint16_t stream = 0, std::uint16_t thread = 0);

  friend bool operator==(const AllocationSequence&, const AllocationSequence&) = default;
};

/// The least needs of a sequence, whatever the allocator. Bytes as they were asked for.
struct SequenceFacts {
  std::uint64_t allocations = 0;
  std::uint64_t peak_live_bytes = 0;
  std::uint64_t smallest_bytes = 0;
  std::uint64_t largest_bytes = 0;
  std::uint32_t live_blocks_at_end = 0;
};

[[nodiscard]] SequenceFacts facts_of(const AllocationSequence& sequence);

/// Writes the sequence as bytes that other programs can replay. docs/reference/gantry-replay.md has
/// the layout.
/// Throws: Error if the file cannot be written.
void write_dump(const AllocationSequence& sequence, const std::string& path);

/// True if `bytes` begin as dumps do.
[[nodiscard]] bool is_dump(const std::string& bytes);

/// Reads what write_dump wrote. Throws: InvalidArgument for anything else, also for a sequence that
/// breaks the rules above.
[[nodiscard]] AllocationSequence read_dump(const std::string& bytes, const std::string& name);

}  // namespace gantry::replay
