// The caching allocator of one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

#include <gantry/core/error.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/block_pool.hpp"
#include "memory/config.hpp"

namespace gantry::memory {

/// All memory that this process holds on one device: segments from the driver, cut into blocks.
///
/// A hit calls the driver not at all. A block belongs to one stream for good; see
/// Note [Poison in stream order] and Note [What a shortage costs].
/// Thread safety: every member may be called from any thread; one lock, not held while waiting for
/// other streams.
class DeviceHeap {
 public:
  DeviceHeap(int device, const AllocConfig& config);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  /// A block of at least `bytes` > 0. Throws: OutOfMemoryError.
  [[nodiscard]] BlockNode& allocate(std::size_t bytes, NativeStream stream);
  void deallocate(BlockNode& node) noexcept;
  void record_stream(BlockNode& node, NativeStream stream);
  /// Waits for blocks that other streams use, then gives every unused segment to the driver.
  void empty_cache();

  /// Limits the memory held to a share of the device's.
  void set_fraction(double fraction);
  [[nodiscard]] Stats stats() const;
  void reset_peak_stats();

  /// A segment's name for other processes, and where a block lies in it.
  struct Export {
    NativeMemoryHandle segment;
    std::size_t offset = 0;
  };
  /// Exports the segment of a live block. Throws: InvalidArgument if it is not live.
  [[nodiscard]] Export export_block(const BlockNode& node);
  /// Address of the segment that was exported under this name, nullptr if there is none now.
  [[nodiscard]] void* find_exported(const NativeMemoryHandle& segment) const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] BlockPool& pool(bool small) { return small ? small_ : large_; }
  [[nodiscard]] BlockNode* take_free(std::size_t bytes, NativeStream stream) noexcept;
  void cut(BlockNode& node, std::size_t bytes) noexcept;
  void count_allocation(const BlockNode& node) noexcept;
  void release(BlockNode& node) noexcept;
  BlockNode& join_neighbours(BlockNode& node) noexcept;
  void count_split(const BlockNode& node, bool appears) noexcept;

  [[nodiscard]] BlockNode& find_memory(Lock& lock, std::size_t bytes, NativeStream stream);
  [[nodiscard]] BlockNode* new_segment(std::size_t bytes, NativeStream stream);
  void poll_pending();
  void wait_for_pending(Lock& lock);
  template <class Condition>
  void release_segments(BlockPool& pool, Condition&& condition);
  void release_segment(BlockNode& node);
  void release_oversize();
  void collect_garbage();
  void release_all();
  [[nodiscard]] std::size_t limit() const;
  [[noreturn]] void report_out_of_memory(Lock& lock, std::size_t bytes);

  const int device_;
  const AllocConfig config_;

  mutable std::mutex mutex_;
  double fraction_;
  std::uint64_t clock_ = 0;  ///< allocations so far
  BlockNodes nodes_;
  BlockPool small_;
  BlockPool large_;
  std::list<Segment> segments_;
  PendingFrees pending_;
  Stats stats_;
};

}  // namespace gantry::memory
