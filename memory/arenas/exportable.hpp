// The interface between allocators and the layer that shares their blocks with other processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/memory/allocator.hpp>

#include "memory/arenas/chunk_store.hpp"

namespace gantry::memory {

/// The physical memory that holds a block: whole chunks, or one segment of the driver.
struct BlockExtent {
  /// The same for all blocks in the same memory, never used twice in a process.
  std::uint64_t extent_id = 0;
  std::vector<Chunk> chunks;                  ///< in address order; empty for a segment
  std::size_t offset = 0;                     ///< of the block in the extent, in bytes
  std::optional<NativeMemoryHandle> segment;  ///< the driver's name for a segment
  std::size_t bytes = 0;                      ///< of the whole extent
  std::byte* range = nullptr;                 ///< the addresses that chunks are mapped in
  std::size_t range_bytes = 0;
};

/// Returns an `extent_id` that this process has not used.
[[nodiscard]] std::uint64_t new_extent_id() noexcept;

/// An allocator whose blocks can be exported. export_ipc() finds it by a cast of Block::allocator.
///
/// An implementation calls defer_exported_free() when a pinned block is freed. It then holds no
/// lock that a function of this class takes. Thread safety: every member may be called from any
/// thread, also from background threads.
class ExportableAllocator {
 public:
  virtual ~ExportableAllocator() = default;

  /// Returns the extent of a live block. Its physical memory stays in place until unpin(); pins
  /// are counted. Throws: InvalidArgument if the block is not live.
  [[nodiscard]] virtual BlockExtent pin(const Block& block) = 0;
  virtual void unpin(const Block& block) noexcept = 0;
  /// Frees a block that was in limbo, after its unpin(): no process uses it any more. Does not call
  /// the ExportTracker.
  virtual void free_from_limbo(Block& block) noexcept = 0;
};

/// The interface of the layer that exports blocks.
class ExportTracker {
 public:
  /// Called at the free of `block`. True: other processes use it, and the tracker calls
  /// free_from_limbo() later. False: it is unpinned, and the caller frees it.
  [[nodiscard]] virtual bool defer_free(Block& block) noexcept = 0;
  /// Returns the bytes of `device` in limbo by the process (pid) that uses them.
  [[nodiscard]] virtual std::map<int, std::size_t> limbo_by_consumer(int device) const = 0;

 protected:
  ~ExportTracker() = default;
};

/// The tracker of this process, set before its first pin(). It lives as long as the process.
extern constinit std::atomic<ExportTracker*> export_tracker;

/// Calls ExportTracker::defer_free; false without a tracker.
[[nodiscard]] inline bool defer_exported_free(Block& block) noexcept {
  ExportTracker* tracker = export_tracker;
  return tracker != nullptr && tracker->defer_free(block);
}
/// Calls ExportTracker::limbo_by_consumer; empty without a tracker.
[[nodiscard]] inline std::map<int, std::size_t> limbo_by_consumer(int device) {
  const ExportTracker* tracker = export_tracker;
  return tracker != nullptr ? tracker->limbo_by_consumer(device) : std::map<int, std::size_t>();
}

}  // namespace gantry::memory
