// The way of a freed block until any stream may reuse it.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <gantry/core/log.hpp>

#include "core/assert.hpp"
#include "device/platform/poison.hpp"
#include "memory/blocks/deferred_frees.hpp"
#include "memory/heap/heap_stats.hpp"
#include "memory/heap/pool_set.hpp"
#include "memory/history/history.hpp"

namespace gantry::memory {

// Note [Memory of captures]
// A graph uses the addresses of its capture at every run. So memory for a captured stream comes
// from a pool of that capture, whichever pool the thread has chosen (MemPoolGuard). The pool
// belongs to the capture until Capture::is_needed() is false: then no program can run the graph any
// more. Until then
//   * a block that is freed in the capture is reused in the capture, by the stream that freed it.
//     Other captured streams do not get it, even if they have waited: clocks do not advance in a
//     capture, so the order between its streams is unknown;
//   * a block that is freed later returns to the pool, from which nothing is allocated any more;
//   * neither recovery nor empty_cache() takes memory that the capture has used (see captured in
//     heap_block.hpp). The pool may have more, from an earlier capture.
// Afterwards recovery takes the pool's free memory, and a later capture takes the pool if it is
// idle: it has no live block, and all work on its memory is complete. An order is not enough,
// because the program may launch the later graph on any stream.
//
// A block of another pool may be freed while its stream is captured, or a stream that it was
// recorded on. The capture probably used the block. So it returns to its own pool when the graph no
// longer exists. This requires that gantry has seen the capture; see StreamClock::may_be_captured.
// A block that is freed after the capture returns at once: as in PyTorch, the program keeps the
// tensors that its graphs use.

/// The frees of a heap that are not complete: held by graphs, deferred by streams, or free for one
/// stream only.
///
/// Call every member with the heap's lock held, except captures_of().
class HeapFrees {
 public:
  HeapFrees(PoolSet& pools, HeapStats& stats) : pools_(pools), stats_(stats) {}
  HeapFrees(const HeapFrees&) = delete;
  HeapFrees& operator=(const HeapFrees&) = delete;

  /// The captures in progress of streams that use the block, which the caller is about to free.
  [[nodiscard]] static CaptureList captures_of(const HeapBlock& block) noexcept {
    CaptureList captures;
    const auto add = [&](const StreamClock& clock) {
      if (auto capture = known_capture_of(clock)) {
        HeldBlocks::add_capture(captures, std::move(capture));
      }
    };
    try {
      add(block.stream->clock);
      for (const StreamUse& use : block.uses) add(*use.clock);
    } catch (const std::bad_alloc&) {
      logging::error("a device block that a graph may use is free: the host is out of memory");
    }
    return captures;
  }
  /// Frees a block that is `in_transition`. The caller's own free is in progress, so the block's
  /// streams exist. Graphs of `captures` may use the block.
  void free(HeapBlock& block, CaptureList captures) noexcept {
    GANTRY_ASSERT(block.captures == nullptr, "a live block is held for a graph");
    block.exported.store(false, std::memory_order_relaxed);
    if (!captures.empty() && hold(block, std::move(captures))) [[unlikely]] {
      DeferredFrees::freeze_uses(block);
      block.change(BlockUse::in_transition, BlockUse::pending);
      stats_.count_deferred(block, true);
      return;
    }
    if (!block.uses.empty()) {
      DeferredFrees::freeze_uses(block);
      DeferredFrees::cover_uses(block);
    }
    if (block.uses.empty() || !owner_of(block).deferred.enqueue(block)) {
      insert(block);
    } else {
      stats_.count_deferred(block, true);
    }
  }
  /// Likewise, but the block stays in limbo until free_from_limbo().
  void put_in_limbo(HeapBlock& block, CaptureList captures) noexcept {
    DeferredFrees::freeze_uses(block);
    stats_.count_deferred(block, true);
    block.change(BlockUse::in_transition, BlockUse::limbo);
    static_cast<void>(hold(block, std::move(captures)));
    stats_.count_limbo(block, true);
  }
  void free_from_limbo(HeapBlock& block) noexcept {
    GANTRY_ASSERT(block.is(BlockUse::limbo), "a block leaves limbo that is not there");
    stats_.count_limbo(block, false);
    release_held();
    if (block.captures != nullptr) {
      block.change(BlockUse::limbo, BlockUse::pending);
      return;
    }
    free_deferred(block);
  }

  /// Completes the frees that are known to be complete; if it `polls`, after a query how far the
  /// streams are. True if blocks became free, or free for more streams.
  bool promote_completed(bool polls = false) noexcept {
    bool any = release_held();
    const auto promote = [&](HeapBlock& block) {
      stats_.count_deferred(block, false);
      insert_completed(block);
      any = true;
    };
    for (const auto& pool : pools_) {
      if (pool->is_pinned()) continue;
      do {
        if (polls) pool->deferred.poll();
      } while (pool->deferred.promote_completed(promote) && polls);
      for (const auto& arena : pool->arenas) {
        any |= polls ? arena->free.poll() : arena->free.promote_completed();
      }
    }
    return any;
  }
  void poll() noexcept { promote_completed(true); }
  /// Waits for the oldest use, of `only` if it is not nullptr, without the lock. False if there is
  /// none for which the host can `wait`. Throws: CudaError.
  bool wait_for_oldest(HeapLock& lock, const Pool* only = nullptr,
                       HostWait wait = HostWait::anyhow) {
    const StreamUse use = oldest_use(only, wait);
    if (use.clock == nullptr) return false;
    wait_unlocked(lock, [&] { static_cast<void>(use.clock->try_wait_for(use.sequence, wait)); });
    return true;
  }
  /// Likewise for all uses that exist now. Later ones are left out, since waiting for them might
  /// never end.
  void wait_for_all(HeapLock& lock) {
    std::vector<StreamUse> uses;
    for (const auto& pool : pools_) {
      if (pool->is_pinned()) continue;
      pool->deferred.list_last(uses);
      for (const auto& arena : pool->arenas) arena->free.list_last(uses);
    }
    wait_unlocked(lock, [&uses] { wait_for(uses); });
  }
  /// Asserts what holds for the blocks that wait for the end of graphs.
  void verify() const noexcept { held_.verify(); }

 private:
  /// The oldest pending use whose end frees a block, or opens it to more streams. `clock` is
  /// nullptr if the host can wait for no use.
  [[nodiscard]] StreamUse oldest_use(const Pool* only, HostWait wait) const noexcept {
    const auto is_meant = [only](const Pool& pool) {
      return (only == nullptr || only == &pool) && !pool.is_pinned();
    };
    for (const auto& pool : pools_) {
      if (!is_meant(*pool)) continue;
      if (const StreamUse use = pool->deferred.oldest(wait); use.clock != nullptr) return use;
    }
    for (const auto& pool : pools_) {
      if (!is_meant(*pool)) continue;
      for (const auto& arena : pool->arenas) {
        if (StreamBlocks* stream = arena->free.incomplete(wait)) {
          return {&stream->clock, stream->earliest};
        }
      }
    }
    return {};
  }
  template <class Wait>
  void wait_unlocked(HeapLock& lock, Wait&& wait) {
    {
      const Unlocked unlocked(lock);
      wait();
    }
    promote_completed();
  }
  /// After the caller's free, which froze the uses. An external stream may be destroyed by now.
  void free_deferred(HeapBlock& block) noexcept {
    GANTRY_ASSERT(block.captures == nullptr, "a block becomes free that a graph may use");
    stats_.count_deferred(block, false);
    block.exported.store(false, std::memory_order_relaxed);
    DeferredFrees::cover_uses(block);
    if (owner_of(block).deferred.enqueue(block)) {
      stats_.count_deferred(block, true);
    } else {
      insert_completed(block);
    }
  }
  /// False if no graph may use the block. A capture's own pool keeps its blocks.
  [[nodiscard]] bool hold(HeapBlock& block, CaptureList captures) noexcept {
    GANTRY_ASSERT(block.captures == nullptr, "a block is held for two frees");
    std::erase(captures, owner_of(block).capture);
    if (captures.empty()) return false;
    try {
      block.captures = std::make_unique<CaptureList>(std::move(captures));
    } catch (const std::bad_alloc&) {
      logging::error("a device block that a graph may use is lost: the host is out of memory");
      return true;
    }
    return held_.hold(block);
  }
  /// Frees the blocks whose graphs no longer exist, except those that other processes still use.
  bool release_held() noexcept {
    bool any = false;
    held_.release([&](HeapBlock& block) {
      if (block.is(BlockUse::limbo)) return;
      free_deferred(block);
      any = true;
    });
    return any;
  }
  /// The end of a free; the caller inserts the block.
  static void complete(HeapBlock& block) noexcept {
    block.uses.clear();
    if (!recording_history()) return;
    record_block(TraceAction::free_completed, block,
                 block.call_site.load(std::memory_order_relaxed));
  }
  /// Makes a block free for its own stream, which exists.
  void insert(HeapBlock& block) noexcept {
    complete(block);
    StreamClock& clock = block.stream->clock;
    const bool is_pinned = owner_of(block).is_pinned();
    // Submitted before the sequence number is read, so work that waits for the number runs after
    // it. A graph writes to its blocks, free or not.
    if (!is_pinned) poison(block.data, block.bytes, clock.native());
    // Only the graph uses a block that is freed in its own capture.
    block.sequence = is_pinned && clock.may_be_captured() ? 0 : clock.record_sequence();
    block.arena->free.insert(block);
  }
  /// Makes a block free whose deferred uses are complete. It has the sequence number of its free.
  /// If its stream waited for a use since then, it has the number of this wait: the stream's later
  /// work does not use the block.
  void insert_completed(HeapBlock& block) noexcept {
    complete(block);
    StreamClock& clock = block.stream->clock;
    if (poisons_device_memory() && !clock.is_external() && !owner_of(block).is_pinned()) {
      poison(block.data, block.bytes, clock.native());
      block.sequence = clock.record_sequence();
    }
    block.arena->free.insert(block);
  }

  PoolSet& pools_;
  HeapStats& stats_;
  HeldBlocks held_;
};

}  // namespace gantry::memory
