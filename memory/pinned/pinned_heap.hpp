// The heap of page-locked host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include <gantry/memory/host_stats.hpp>
#include <gantry/streams/stream.hpp>

#include "memory/blocks/deferred_frees.hpp"
#include "memory/blocks/free_blocks.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/oom/reserve_bound.hpp"
#include "memory/pinned/host_pages.hpp"
#include "memory/policy/size_policy.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

/// One allocation of host memory from the system. Its blocks have no stream of their own; `uses`
/// are the uses by recorded streams.
struct PinnedSegment {
  HostPages pages;
  std::size_t list = 0;  ///< index of its NumaFreeList
};

/// The heap of page-locked host memory, in segments from the system.
///
/// A freed block that streams were recorded on waits for them; see Note [Deferred frees]. If one of
/// the streams was captured, the block waits until the program cannot run the graph again.
/// Thread safety: every member may be called from any thread. The lock is held over no driver call.
class PinnedHeap {
 public:
  /// `nodes`: the NUMA node of each device, in their order; devices of one node share free blocks.
  explicit PinnedHeap(const std::vector<int>& nodes);
  PinnedHeap(const PinnedHeap&) = delete;
  PinnedHeap& operator=(const PinnedHeap&) = delete;

  /// A block whose address is a multiple of `alignment`, a power of two. Throws: OutOfMemoryError.
  [[nodiscard]] HeapBlock& allocate(std::size_t bytes, std::size_t alignment = kBlockGrain);
  void deallocate(HeapBlock& block) noexcept;
  /// Records that `stream` uses the block: all work submitted before its free, or only the work
  /// submitted so far.
  void record_use(HeapBlock& block, const Stream& stream, bool until_free);
  /// Waits for deferred frees, then releases segments without a live block to the system.
  void empty_cache();

  [[nodiscard]] HostStats stats();
  void reset_peak_stats();
  void reset_accumulated_stats();
  /// Asserts what holds for free blocks and deferred frees, and that their bytes sum up. No other
  /// thread may call meanwhile.
  void verify();

 private:
  struct NumaFreeList {
    NumaFreeList(int at, BlockSlab& slab) : node(at), free(slab, nullptr, false) {}

    const int node;
    FreeBlocks free;
  };
  enum class NumaScope : std::uint8_t { own_node, all_nodes };
  struct Request {
    std::size_t bytes;      ///< that the caller asked for
    std::size_t alignment;  ///< a power of two from kBlockGrain on
    std::size_t list;       ///< index of the NumaFreeList

    /// Size of a block that holds an aligned block wherever it begins.
    [[nodiscard]] std::size_t size() const {
      return block_bytes(add_saturated(bytes, alignment - kBlockGrain));
    }
  };

  [[nodiscard]] std::size_t list_of_current_device() const;
  /// Promotes completed frees, then takes the best fit; nullptr if there is none.
  [[nodiscard]] HeapBlock* try_take(const Request& request, NumaScope scope);
  [[nodiscard]] HeapBlock* grow(const Request& request, std::size_t segment_bytes);
  [[nodiscard]] std::size_t segment_bytes_for(std::size_t size);
  void poll();
  void wait_for_all();
  /// Keeps the bound of Note [Reserved memory] for a segment of `least` bytes: releases unused
  /// segments if the devices have no work. Returns the size of the segment, up to `wanted` bytes.
  [[nodiscard]] std::size_t keep_bound(std::size_t size, std::size_t least, std::size_t wanted);
  /// Releases segments without a live block, until they are `bytes`.
  void release_unused_segments(std::size_t bytes);

  // With the lock held.
  HeapBlock& allocate_from(HeapBlock& block, const Request& request) noexcept;
  HeapBlock& split(HeapBlock& block, std::size_t bytes) noexcept;
  bool promote_completed() noexcept;
  void finish_free(HeapBlock& block) noexcept;
  void insert_free(HeapBlock& block) noexcept;
  [[nodiscard]] FreeBlocks& list_of(const HeapBlock& block) noexcept;

  const std::vector<std::size_t> list_of_device_;
  std::mutex mutex_;
  BlockSlab slab_;
  std::deque<NumaFreeList> free_lists_;  ///< all of their blocks are common
  DeferredFrees deferred_;
  HeldBlocks held_;
  HostStats stats_;
  ReserveBound bound_;
};

}  // namespace gantry::memory
