// The page-locked host memory of this process: segments, their free parts, and what waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include <gantry/memory/host_stats.hpp>
#include <gantry/streams/stream.hpp>

#include "memory/heap/heap_block.hpp"
#include "memory/heap/tlsf_index.hpp"
#include "memory/source/host_pages.hpp"
#include "streams/capture.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

/// One piece of host memory from the system.
struct PinnedSegment {
  HostPages pages;
  std::size_t shelf = 0;  ///< the free parts of which NUMA node
};

/// A part of a segment; `uses` names the streams that it was recorded on.
struct PinnedBlock : HeapBlock {
  PinnedSegment* segment = nullptr;
  PinnedBlock* next_waiting = nullptr;
  std::vector<std::shared_ptr<const Capture>> captures;  ///< whose graphs may use it
};

/// Note [Deferred release]
/// A freed block that streams were recorded on waits until each has done the work submitted before
/// the free. The block stands in the queue of one of these streams at a time; a queue is in the
/// order of the stream's sequence numbers, so only its head is checked, and a slow stream holds
/// back its own blocks only. Most completions are known without asking the driver. A block that a
/// captured stream was recorded on waits until nothing can run the graph any more.
///
/// Thread safety: every member may be called from any thread. The lock is held over no driver call.
class PinnedHeap {
 public:
  /// `nodes`: the NUMA node of each device, in their order; devices of one node share free blocks.
  explicit PinnedHeap(const std::vector<int>& nodes);
  PinnedHeap(const PinnedHeap&) = delete;
  PinnedHeap& operator=(const PinnedHeap&) = delete;

  /// Throws: OutOfMemoryError.
  [[nodiscard]] PinnedBlock& allocate(std::size_t bytes);
  void deallocate(PinnedBlock& block) noexcept;
  void record_stream(PinnedBlock& block, const Stream& stream);
  /// The stream's work submitted up to now uses the block, no later one.
  void record_use(PinnedBlock& block, const Stream& stream);
  /// Waits for what waits for streams, then gives back segments without a live block.
  void empty_cache();

  [[nodiscard]] HostStats stats();
  void reset_peak_stats();

 private:
  struct Shelf {
    int node = -1;
    TlsfIndex free;
  };
  struct Queue {
    StreamClock* clock = nullptr;
    PinnedBlock* head = nullptr;
    PinnedBlock* tail = nullptr;
  };
  enum class Reach : std::uint8_t { own_node, everywhere };

  void note(PinnedBlock& block, const Stream& stream, StreamClock& clock, std::uint64_t sequence);
  [[nodiscard]] std::size_t shelf_of_current_device() const;
  /// Settles, then looks for a fit; nullptr if there is none.
  [[nodiscard]] PinnedBlock* try_take(std::size_t bytes, std::size_t shelf, Reach reach);
  [[nodiscard]] PinnedBlock* grow(std::size_t bytes, std::size_t shelf, std::size_t segment_bytes);
  [[nodiscard]] std::size_t segment_bytes_for(std::size_t size);
  void poll();
  void wait();
  void give_back_segments();

  // With the lock held.
  PinnedBlock& blank();
  void give_blank(PinnedBlock& block) noexcept;
  PinnedBlock& hand_out(PinnedBlock& block, std::size_t size, std::size_t bytes, PinnedBlock& rest);
  void settle() noexcept;
  void release(PinnedBlock& block) noexcept;
  void insert(PinnedBlock& block) noexcept;
  /// Keeps the block while a graph may use it; false if none may.
  bool hold(PinnedBlock& block) noexcept;
  void release_held() noexcept;
  /// Puts the block behind a use that is not reached; false if there is none left.
  bool enqueue(PinnedBlock& block) noexcept;

  const std::vector<std::size_t> shelf_of_device_;
  std::mutex mutex_;
  std::deque<Shelf> shelves_;
  std::deque<PinnedBlock> blocks_;
  PinnedBlock* spare_ = nullptr;  ///< linked through next_waiting
  std::vector<Queue> queues_;
  PinnedBlock* held_ = nullptr;  ///< linked through next_waiting
  HostStats stats_;
};

}  // namespace gantry::memory
