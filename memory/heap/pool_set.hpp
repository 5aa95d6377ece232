// Pools of blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/buffer.hpp>
#include <gantry/memory/mem_pool.hpp>

#include "core/assert.hpp"
#include "memory/arenas/arena.hpp"
#include "memory/blocks/deferred_frees.hpp"
#include "memory/policy/size_policy.hpp"
#include "streams/capture.hpp"

namespace gantry::memory {

class DeviceHeap;

/// Source of blocks: chunks mapped into address ranges, or segments of the driver or of an
/// allocator.
enum class HeapBacking : std::uint8_t { vmm, segments };

/// A copy of a pool's live blocks in page-locked host memory, kept while the pool has no physical
/// memory. DeviceHeap makes it.
struct SavedContents {
  struct Saved {
    std::uintptr_t address;
    std::size_t bytes;
    std::size_t offset;  ///< in `host`
  };

  std::vector<Saved> blocks;  ///< by address
  Buffer host;
};

/// A set of blocks that is never mixed with another pool's.
struct Pool : ArenaOwner {
  Pool(DeviceHeap& of_heap, HeapState& heap_state, bool captures)
      : ArenaOwner(captures), heap(&of_heap), state(&heap_state) {}

  DeviceHeap* const heap;  ///< for the allocator; no part of the heap calls it
  HeapState* const state;  ///< of the heap
  std::vector<std::unique_ptr<Arena>> arenas;
  Arena* small = nullptr;  ///< of `arenas`, for small blocks; may be `large`
  Arena* large = nullptr;
  DeferredFrees deferred;
  std::int64_t live_blocks = 0;  ///< without the changes that magazines still hold
  bool destroyed = false;        ///< reused once it has no live blocks
  std::mutex physical_mutex;     ///< held by release and restore; taken before the heap's lock
  SavedContents saved;           ///< while released; guarded by `physical_mutex`
  HeapBacking backing{};         ///< of its arenas

  /// True if recovery of other pools may take memory of free blocks that no graph uses.
  [[nodiscard]] bool serves_others() const { return serves_captures || options.use_on_oom; }
  /// True if it has no live blocks, and no stream may still use any of its memory.
  [[nodiscard]] bool is_idle() const noexcept {
    return live_blocks == 0 && deferred.empty() &&
           std::ranges::all_of(arenas, [](const auto& arena) { return arena->free.is_complete(); });
  }
  /// True if the host can wait for uses of its free memory.
  [[nodiscard]] bool has_incomplete() const noexcept {
    return deferred.oldest().clock != nullptr || std::ranges::any_of(arenas, [](const auto& arena) {
             return arena->free.incomplete() != nullptr;
           });
  }
  /// Free memory is used by no graph from here on. Only for pools that are not pinned.
  void forget_capture() noexcept {
    if (!serves_captures) return;
    for (const auto& arena : arenas) arena->free.forget_capture();
  }
  /// Throws InvalidArgument if its physical memory is released.
  void check_has_physical() const {
    if (released.load(std::memory_order_relaxed)) [[unlikely]] {
      throw_without_physical();
    }
  }
  /// Forgets the released memory of free blocks: restore_physical() will not map it. A pool without
  /// other released memory then counts as one with physical memory.
  void discard_unused() {
    std::size_t bytes = 0;
    for (const auto& arena : arenas) {
      arena->discard_unused();
      bytes += arena->released_bytes();
    }
    if (bytes == 0) released = false;
  }

 private:
  [[noreturn, gnu::noinline]] static void throw_without_physical() {
    throw InvalidArgument(
        "allocate: expected a pool with physical memory, but got one that released it");
  }
};

/// The pool of an arena, and of a block that has one. Every ArenaOwner is a Pool.
[[nodiscard]] inline Pool& owner_of(const Arena& arena) {
  return static_cast<Pool&>(arena.owner());
}
[[nodiscard]] inline Pool& owner_of(const HeapBlock& block) { return owner_of(*block.arena); }

/// The pools of one heap. They live as long as the heap; make() reuses destroyed ones.
///
/// Call every member with the heap's lock held, except common() and backing().
class PoolSet {
 public:
  PoolSet(DeviceHeap& heap, HeapState& state, HeapBacking backing)
      : heap_(heap), state_(state), backing_(backing) {
    common_ = &make({.use_on_oom = true});
  }
  PoolSet(const PoolSet&) = delete;
  PoolSet& operator=(const PoolSet&) = delete;

  [[nodiscard]] HeapBacking backing() const { return backing_; }
  [[nodiscard]] Pool& common() const { return *common_; }
  /// True if a destroyed pool may have memory that is released and not used.
  [[nodiscard]] bool has_destroyed_released() const noexcept {
    return std::ranges::any_of(pools_, [](const auto& pool) {
      return pool->destroyed && !pool->serves_captures && pool->released;
    });
  }
  /// A new pool, or a destroyed one without live blocks. Throws: std::bad_alloc.
  [[nodiscard]] Pool& make(const MemPoolOptions& options) {
    const HeapBacking backing = options.allocator != nullptr ? HeapBacking::segments : backing_;
    for (const auto& pool : pools_) {
      if (!pool->destroyed || pool->serves_captures || pool->backing != backing) continue;
      if (pool->released) pool->discard_unused();
      if (pool->live_blocks != 0 || pool->released) continue;
      GANTRY_ASSERT(pool->capture == nullptr, "a program gets the pool of a capture");
      pool->destroyed = false;
      pool->options = options;
      pool->saved = {};
      return *pool;
    }
    Pool& pool = add(false, backing);
    pool.options = options;
    return pool;
  }
  /// The pool of a capture; nullptr if it has none yet.
  [[nodiscard]] Pool* find(const std::shared_ptr<const Capture>& capture) const noexcept {
    const auto found = std::ranges::find(
        pools_, capture, [](const auto& pool) -> const auto& { return pool->capture; });
    return found == pools_.end() ? nullptr : found->get();
  }
  /// An idle pool for a capture that has none, or a new one. Throws: std::bad_alloc.
  [[nodiscard]] Pool& assign(const std::shared_ptr<const Capture>& capture) {
    GANTRY_ASSERT(find(capture) == nullptr, "a capture gets a second pool");
    for (const auto& pool : pools_) {
      if (!pool->serves_captures || pool->is_pinned() || !pool->is_idle()) continue;
      pool->forget_capture();
      pool->capture = capture;
      return *pool;
    }
    Pool& made = add(true, backing_);
    made.capture = capture;
    return made;
  }

  /// Takes chunks or segments from free blocks: of `only` if it is not nullptr, else of all pools
  /// that allow it, the common pool first. Returns the bytes taken. Throws: CudaError.
  std::size_t reclaim(HeapLock& lock, std::size_t bytes, const Pool* only = nullptr) {
    std::size_t taken = 0;
    // By index: another thread may add a pool while an arena has released the lock.
    for (std::size_t i = 0; i < pools_.size() && taken < bytes; ++i) {
      Pool& pool = *pools_[i];
      const bool is_asked = only != nullptr ? only == &pool : pool.serves_others();
      if (pool.released || !is_asked) continue;
      if (!pool.is_pinned()) pool.forget_capture();
      for (const auto& arena : pool.arenas) {
        if (taken < bytes) taken += arena->reclaim(lock, bytes - taken);
      }
    }
    return taken;
  }
  /// Likewise, and releases unmapped chunks of as many bytes to the driver.
  void release(HeapLock& lock, std::size_t bytes = kEverything, const Pool* only = nullptr) {
    reclaim(lock, bytes, only);
    state_.release_unmapped(lock, bytes);
  }
  /// True if reclaim() can release memory to the driver, which may wait for the device.
  [[nodiscard]] bool has_releasable() const {
    return std::ranges::any_of(pools_, [](const auto& pool) {
      if (!pool->is_pinned()) pool->forget_capture();
      return !pool->released && pool->serves_others() &&
             std::ranges::any_of(pool->arenas,
                                 [](const auto& arena) { return arena->has_releasable(); });
    });
  }
  /// Bytes of the largest free block with memory.
  [[nodiscard]] std::size_t largest_free() const noexcept {
    std::size_t largest = 0;
    for (const auto& pool : pools_) {
      if (pool->released || pool->is_pinned()) continue;
      for (const auto& arena : pool->arenas) largest = std::max(largest, arena->free.largest());
    }
    return largest;
  }
  /// Asserts that pools and captures know each other, and what holds for deferred frees. Counts of
  /// magazines are flushed.
  void verify() const noexcept {
    for (std::size_t id = 0; id < pools_.size(); ++id) {
      const Pool& pool = *pools_[id];
      GANTRY_ASSERT(pool.id == id, "a pool has the number of another one");
      GANTRY_ASSERT(
          pool.capture == nullptr || (pool.serves_captures && find(pool.capture) == &pool),
          "a capture has a pool that is not the only one for it");
      GANTRY_ASSERT(pool.released || pool.saved.blocks.empty(),
                    "a pool with its memory has a backup of it");
      [[maybe_unused]] std::int64_t live = 0;
      HeldSegments held;
      for (const auto& arena : pool.arenas) {
        GANTRY_ASSERT(&owner_of(*arena) == &pool, "an arena belongs to another pool");
        arena->describe(held);
      }
      for (const SegmentInfo& segment : held.segments) {
        live += std::ranges::count(segment.blocks, BlockState::active_allocated, &BlockInfo::state);
      }
      GANTRY_ASSERT(live == pool.live_blocks, "a pool does not know how many blocks are live");
      pool.deferred.verify();
    }
  }

  [[nodiscard]] auto begin() const noexcept { return pools_.begin(); }
  [[nodiscard]] auto end() const noexcept { return pools_.end(); }

 private:
  [[nodiscard]] Pool& add(bool serves_captures, HeapBacking backing) {
    auto pool = std::make_unique<Pool>(heap_, state_, serves_captures);
    pool->id = pools_.size();
    pool->backing = backing;
    // With chunks, one arena serves small and large blocks: a second one would leave more chunks
    // partly used. A segment is released only as a whole, so a long-lived small block would keep a
    // large segment. Small blocks have segments of their own.
    if (backing == HeapBacking::vmm) {
      pool->arenas.push_back(make_vmm_arena(state_, *pool));
    } else {
      pool->arenas.push_back(make_segment_arena(state_, *pool, false));
      pool->arenas.push_back(make_segment_arena(state_, *pool, true));
    }
    GANTRY_ASSERT(pool->arenas.size() <= 2, "a pool has more arenas than its magazines know");
    pool->large = pool->arenas.front().get();
    pool->small = pool->arenas.back().get();
    pools_.push_back(std::move(pool));
    return *pools_.back();
  }

  DeviceHeap& heap_;
  HeapState& state_;
  const HeapBacking backing_;
  std::vector<std::unique_ptr<Pool>> pools_;  ///< by id
  Pool* common_ = nullptr;
};

}  // namespace gantry::memory
