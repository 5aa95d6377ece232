// What memory must offer so that other processes can share it, and what sharing offers to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <gantry/device/driver.hpp>
#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

/// One physical piece of an extent.
struct ChunkSpan {
  NativeChunk chunk = NativeChunk::none;
  std::size_t bytes = 0;
};

/// The memory in which a block lies: whole chunks, or one segment of the driver.
struct BlockExtent {
  /// The same for all blocks in the same memory, never used twice in a process.
  std::uint64_t extent_id = 0;
  std::vector<ChunkSpan> chunks;              ///< in address order; empty for a segment
  std::size_t offset = 0;                     ///< of the block in the extent, in bytes
  std::optional<NativeMemoryHandle> segment;  ///< its name, if it has no chunks
  std::size_t bytes = 0;                      ///< of the whole extent
};

/// An allocator whose blocks can be exported; export_ipc() finds it by a cast of Block::allocator.
///
/// An implementation calls ipc_defer_free() when a pinned block is freed. It must hold no lock then
/// that one of these functions takes.
/// Thread safety: all calls from any thread, also from threads of this layer.
class ExportSource {
 public:
  virtual ~ExportSource() = default;

  /// The extent of a live block. Its physical memory stays where it is until unpin(); pins count.
  /// Throws: InvalidArgument if the block is not live.
  [[nodiscard]] virtual BlockExtent pin(const Block& block) = 0;
  virtual void unpin(const Block& block) noexcept = 0;
  /// Takes back a block that was in limbo, after its unpin(): nobody else uses it any more. Calls
  /// nothing of this layer.
  virtual void reclaim(Block& block) noexcept = 0;
};

/// Called instead of freeing `block`. True: others still use it, and its source gets it back by
/// reclaim(). False: nobody does, its pins are gone, and the caller frees it as usual.
[[nodiscard]] bool ipc_defer_free(Block& block) noexcept;

/// Reclaims all blocks in limbo whose users are gone or have given them back; the number of bytes.
/// Costs no driver call but those of reclaim().
std::size_t ipc_sweep() noexcept;

}  // namespace gantry::memory
