// The heap of page-locked host memory.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/host_stats.hpp>
#include <gantry/streams/stream.hpp>

#include "core/assert.hpp"
#include "core/text/byte_count.hpp"
#include "device/host_pages.hpp"
#include "device/platform/poison.hpp"
#include "memory/blocks/deferred_frees.hpp"
#include "memory/blocks/free_blocks.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/oom/reserve_bound.hpp"
#include "memory/pinned/host_placement.hpp"
#include "memory/policy/config.hpp"
#include "memory/policy/size_policy.hpp"
#include "memory/stats/counters.hpp"
#include "streams/capture.hpp"
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
  explicit PinnedHeap(const std::vector<int>& nodes) : list_of_device_(lists_of(nodes)) {
    for (std::size_t device = 0; device < nodes.size(); ++device) {
      if (list_of_device_[device] == free_lists_.size())
        free_lists_.emplace_back(nodes[device], slab_);
    }
    if (free_lists_.empty()) free_lists_.emplace_back(-1, slab_);
  }

  /// A block whose address is a multiple of `alignment`, a power of two. Throws: OutOfMemoryError.
  [[nodiscard]] HeapBlock& allocate(std::size_t bytes, std::size_t alignment = kBlockGrain) {
    const Request request{bytes, std::max(alignment, kBlockGrain), list_of_current_device()};
    const std::size_t size = request.size();
    if (HeapBlock* block = try_take(request, NumaScope::own_node)) return *block;
    poll();
    if (HeapBlock* block = try_take(request, NumaScope::own_node)) return *block;
    const std::size_t least = round_up(size, kPage);
    const std::size_t wanted = keep_bound(size, least, segment_bytes_for(size));
    if (HeapBlock* block = grow(request, wanted)) return *block;
    if (HeapBlock* block = try_take(request, NumaScope::all_nodes)) return *block;
    if (wanted > least) {
      if (HeapBlock* block = grow(request, least)) return *block;
    }
    wait_for_all();
    if (HeapBlock* block = try_take(request, NumaScope::all_nodes)) return *block;
    release_unused_segments(kEverything);
    if (HeapBlock* block = grow(request, least)) return *block;
    OomReport report;
    report.requested = signed_bytes(size);
    {
      const std::lock_guard lock(mutex_);
      report.allocated = stats_.active_bytes.current;
      report.reserved = stats_.allocated_bytes.current;
    }
    throw OutOfMemoryError(
        fmt::format("Page-locked host memory is exhausted. Tried to allocate {}.",
                    format_bytes(signed_bytes(bytes))),
        report, "cpu");
  }
  void deallocate(HeapBlock& block) noexcept {
    {
      const std::lock_guard lock(mutex_);
      if (!block.is(BlockUse::live)) return;
      block.change(BlockUse::live,
                   block.uses.empty() ? BlockUse::in_transition : BlockUse::pending);
      if (block.uses.empty()) return insert_free(block);
    }
    // Events are recorded, so the driver is called without the lock.
    DeferredFrees::freeze_uses(block);
    DeferredFrees::cover_uses(block);
    const std::lock_guard lock(mutex_);
    if (!held_.hold(block)) finish_free(block);
  }
  /// Records that `stream` uses the block: all work submitted before its free, or only the work
  /// submitted so far.
  void record_use(HeapBlock& block, const Stream& stream, bool until_free) {
    StreamClock& clock = StreamClock::of(stream);
    const std::uint64_t sequence = until_free ? 0 : clock.record_sequence();
    std::shared_ptr<const Capture> capture =
        is_captured(stream.native()) ? capture_of(stream) : nullptr;
    const std::lock_guard lock(mutex_);
    if (!block.is(BlockUse::live)) return;
    if (capture != nullptr) HeldBlocks::add_capture(block, std::move(capture));
    deferred_.add_use(block, clock, sequence);
  }
  /// Waits for deferred frees, then releases segments without a live block to the system.
  void empty_cache() {
    wait_for_all();
    {
      const std::lock_guard lock(mutex_);
      bound_.reset();
    }
    release_unused_segments(kEverything);
  }

  [[nodiscard]] HostStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak_stats() {
    const std::lock_guard lock(mutex_);
    reset_peaks(stats_);
  }
  void reset_accumulated_stats() {
    const std::lock_guard lock(mutex_);
    reset_accumulated(stats_);
  }
  /// Asserts what holds for free blocks and deferred frees, and that their bytes sum up. No other
  /// thread may call meanwhile.
  void verify() {
    const std::lock_guard lock(mutex_);
    std::int64_t free = 0;
    for (const NumaFreeList& numa : free_lists_) {
      numa.free.verify();
      numa.free.for_each_common(0, [&free](const HeapBlock& block) {
        free += static_cast<std::int64_t>(block.bytes);
        GANTRY_ASSERT(block.next == nullptr || !block.next->is(BlockUse::free),
                      "two free neighbours are not joined");
        return true;
      });
    }
    deferred_.verify();
    held_.verify();
    GANTRY_ASSERT(free + stats_.active_bytes.current == stats_.allocated_bytes.current,
                  "segments have other bytes than their free and active blocks");
  }

 private:
  struct NumaFreeList {
    NumaFreeList(int at, BlockSlab& slab) : node(at), free(slab, {}, false) {}

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

  static constexpr std::size_t kLeastSegment = std::size_t{1} << 20;
  static constexpr std::size_t kMostGrowth = std::size_t{64} << 20;
  static constexpr std::size_t kPage = 4096;

  /// The free list of each device: one list per different node.
  [[nodiscard]] static std::vector<std::size_t> lists_of(const std::vector<int>& nodes) {
    std::vector<int> different;
    std::vector<std::size_t> lists;
    for (const int node : nodes) {
      const auto found = std::find(different.begin(), different.end(), node);
      lists.push_back(static_cast<std::size_t>(found - different.begin()));
      if (found == different.end()) different.push_back(node);
    }
    return lists;
  }
  [[nodiscard]] static std::int64_t us_since(std::chrono::steady_clock::time_point begin) {
    const auto passed = std::chrono::steady_clock::now() - begin;
    return std::chrono::duration_cast<std::chrono::microseconds>(passed).count();
  }

  [[nodiscard]] std::size_t list_of_current_device() const {
    if (free_lists_.size() == 1) return 0;
    return list_of_device_[static_cast<std::size_t>(driver().current_device())];
  }
  /// Promotes completed frees, then takes the best fit; nullptr if there is none.
  [[nodiscard, gnu::noinline]] HeapBlock* try_take(const Request& request, NumaScope scope) {
    const std::size_t size = request.size();
    const std::lock_guard lock(mutex_);
    promote_completed();
    HeapBlock* found = free_lists_[request.list].free.find_common(size);
    if (scope == NumaScope::all_nodes) {
      for (auto other = free_lists_.begin(); found == nullptr && other != free_lists_.end();
           ++other) {
        found = other->free.find_common(size);
      }
    }
    if (found == nullptr) return nullptr;
    slab_.reserve(2);
    list_of(*found).remove(*found);
    return &allocate_from(*found, request);
  }
  /// A block of a new segment; nullptr if the system has no memory.
  [[nodiscard, gnu::noinline]] HeapBlock* grow(const Request& request, std::size_t segment_bytes) {
    auto segment = std::make_unique<PinnedSegment>();
    const auto begin = std::chrono::steady_clock::now();
    segment->pages = allocate_host_pages(
        segment_bytes,
        host_placement(free_lists_[request.list].node, free_lists_.size() > 1, segment_bytes));
    if (segment->pages.data == nullptr) return nullptr;
    const std::int64_t us = us_since(begin);
    segment->list = request.list;
    std::unique_lock lock(mutex_);
    try {
      slab_.reserve(3);
    } catch (...) {
      lock.unlock();
      release_host_pages(segment->pages);
      throw;
    }
    HeapBlock& block = slab_.take();
    increase(stats_.allocations, 1);
    increase(stats_.allocated_bytes, segment->pages.bytes);
    ++stats_.num_host_alloc;
    add(stats_.host_alloc_time, us);
    block.data = segment->pages.data;
    block.bytes = segment->pages.bytes;
    block.previous = nullptr;
    block.segment = segment.release();
    poison_now(block.data, block.bytes);
    return &allocate_from(block, request);
  }
  /// Segments grow with the memory that is held.
  [[nodiscard]] std::size_t segment_bytes_for(std::size_t size) {
    const std::lock_guard lock(mutex_);
    const auto held = static_cast<std::size_t>(stats_.allocated_bytes.current);
    const std::size_t reserve = alloc_config().pinned_reserve_bytes;
    if (held == 0 && reserve > size) return round_up(reserve, kLeastSegment);
    const std::size_t step = std::clamp(std::bit_floor(held + 1), kLeastSegment, kMostGrowth);
    return size > step / 2 ? round_up(size, kLeastSegment) : step;
  }
  /// Completes all frees whose uses are complete.
  [[gnu::noinline]] void poll() {
    std::vector<StreamUse> uses;
    for (bool any = true; any;) {
      uses.clear();
      {
        const std::lock_guard lock(mutex_);
        deferred_.list_first(uses);
      }
      for (const StreamUse& use : uses) use.clock->poll(use.sequence);
      const std::lock_guard lock(mutex_);
      any = promote_completed();
    }
  }
  /// Waits for the uses of deferred frees that exist now. Frees that other threads add meanwhile
  /// are left out, since waiting for them might never end.
  [[gnu::noinline]] void wait_for_all() {
    std::vector<StreamUse> uses;
    {
      const std::lock_guard lock(mutex_);
      deferred_.list_last(uses);
    }
    wait_for(uses);
    const std::lock_guard lock(mutex_);
    promote_completed();
  }
  /// Keeps the bound of Note [Reserved memory] for a segment of `least` bytes: releases unused
  /// segments if the devices have no work. Returns the size of the segment, up to `wanted` bytes.
  [[nodiscard, gnu::noinline]] std::size_t keep_bound(std::size_t size, std::size_t least,
                                                      std::size_t wanted) {
    std::size_t held = 0;
    std::size_t excess = 0;
    {
      const std::lock_guard lock(mutex_);
      held = static_cast<std::size_t>(stats_.allocated_bytes.current);
      bound_.note_use(add_saturated(static_cast<std::size_t>(stats_.active_bytes.current), size));
      if (held == 0 || bound_.excess(add_saturated(held, wanted)) == 0) return wanted;
      excess = bound_.excess(add_saturated(held, round_up(size, kLeastSegment)));
      excess -= std::min(excess, kLeastSegment);
    }
    if (excess > 0) {
      std::vector<int> devices(list_of_device_.size());
      std::iota(devices.begin(), devices.end(), 0);
      if (await_idle(devices)) release_unused_segments(excess);
    }
    return std::clamp(round_up(size, kLeastSegment), least, wanted);
  }
  /// Releases segments without a live block, until they are `bytes`.
  [[gnu::noinline]] void release_unused_segments(std::size_t bytes) {
    HeapBlock* list = nullptr;
    {
      const std::lock_guard lock(mutex_);
      std::size_t taken = 0;
      for (NumaFreeList& numa : free_lists_) {
        numa.free.for_each_common(0, [&](HeapBlock& block) {
          if (block.previous != nullptr || block.next != nullptr) return true;
          if (taken >= bytes) return false;
          GANTRY_ASSERT(block.bytes == block.segment->pages.bytes,
                        "a segment without live blocks is not one block");
          taken += block.bytes;
          numa.free.remove(block);
          block.next_in_bin = std::exchange(list, &block);
          return true;
        });
      }
    }
    while (list != nullptr) {
      HeapBlock& block = *list;
      unpoison_now(block.data, block.bytes);
      const auto begin = std::chrono::steady_clock::now();
      try {
        release_host_pages(block.segment->pages);
      } catch (...) {
        poison_now(block.data, block.bytes);
        const std::lock_guard lock(mutex_);
        while (list != nullptr) {
          HeapBlock& kept = *std::exchange(list, list->next_in_bin);
          list_of(kept).insert(kept);
        }
        throw;
      }
      const std::int64_t us = us_since(begin);
      list = block.next_in_bin;
      const std::unique_ptr<PinnedSegment> segment(block.segment);
      const std::lock_guard lock(mutex_);
      decrease(stats_.allocations, 1);
      decrease(stats_.allocated_bytes, segment->pages.bytes);
      ++stats_.num_host_free;
      add(stats_.host_free_time, us);
      slab_.recycle(block);
    }
  }

  // The lock is held from here on.

  /// Allocates the aligned part of `whole`. The parts before and behind it become free. Takes two
  /// descriptors, which are reserved.
  HeapBlock& allocate_from(HeapBlock& whole, const Request& request) noexcept {
    HeapBlock* taken = &whole;
    if (const std::size_t head = padding_of(whole.data, request.alignment); head != 0) {
      taken = &split(whole, head);
      list_of(whole).insert(whole);
    }
    HeapBlock& block = *taken;
    GANTRY_ASSERT(block.bytes >= block_bytes(request.bytes), "a block is smaller than the request");
    if (const std::size_t size = block_bytes(request.bytes); block.bytes - size >= kBlockGrain) {
      list_of(block).insert(split(block, size));
    }
    block.change({BlockUse::in_transition, BlockUse::unused}, BlockUse::live);
    block.requested.store(request.bytes, std::memory_order_relaxed);
    block.uses.clear();
    increase(stats_.active_requests, 1);
    increase(stats_.active_bytes, block.bytes);
    unpoison_now(block.data, request.bytes);
    return block;
  }
  /// Splits `block` after `bytes`; returns its new right neighbour.
  HeapBlock& split(HeapBlock& block, std::size_t bytes) noexcept {
    HeapBlock& remainder = slab_.take();
    split_block(block, bytes, remainder);
    return remainder;
  }
  bool promote_completed() noexcept {
    held_.release([this](HeapBlock& block) { finish_free(block); });
    return deferred_.promote_completed([this](HeapBlock& block) { insert_free(block); });
  }
  void finish_free(HeapBlock& block) noexcept {
    if (!deferred_.enqueue(block)) insert_free(block);
  }
  void insert_free(HeapBlock& block) noexcept {
    decrease(stats_.active_requests, 1);
    decrease(stats_.active_bytes, block.bytes);
    poison_now(block.data, block.bytes);
    list_of(block).insert(block);
  }
  [[nodiscard]] FreeBlocks& list_of(const HeapBlock& block) noexcept {
    GANTRY_ASSERT(block.segment != nullptr, "a pinned block is in no segment");
    return free_lists_[block.segment->list].free;
  }

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
