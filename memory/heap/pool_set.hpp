// Pools of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <gantry/memory/buffer.hpp>
#include <gantry/memory/mem_pool.hpp>

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
/// memory. PoolMemory makes it.
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
  [[nodiscard]] bool is_idle() const noexcept;
  /// True if the host can wait for uses of its free memory.
  [[nodiscard]] bool has_incomplete() const noexcept;
  /// Free memory is used by no graph from here on. Only for pools that are not pinned.
  void forget_capture() noexcept;
  /// Throws InvalidArgument if its physical memory is released.
  void check_has_physical() const {
    if (released.load(std::memory_order_relaxed)) [[unlikely]] {
      throw_without_physical();
    }
  }
  /// Forgets the released memory of free blocks: restore_physical() will not map it. A pool without
  /// other released memory then counts as one with physical memory.
  void discard_unused();

 private:
  [[noreturn]] static void throw_without_physical();
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
  PoolSet(DeviceHeap& heap, HeapState& state, HeapBacking backing);
  PoolSet(const PoolSet&) = delete;
  PoolSet& operator=(const PoolSet&) = delete;

  [[nodiscard]] HeapBacking backing() const { return backing_; }
  [[nodiscard]] Pool& common() const { return *common_; }
  /// True if a destroyed pool may have memory that is released and not used.
  [[nodiscard]] bool has_destroyed_released() const noexcept;
  /// A new pool, or a destroyed one without live blocks. Throws: std::bad_alloc.
  [[nodiscard]] Pool& make(const MemPoolOptions& options);
  /// The pool of a capture; nullptr if it has none yet.
  [[nodiscard]] Pool* find(const std::shared_ptr<const Capture>& capture) const noexcept;
  /// An idle pool for a capture that has none, or a new one. Throws: std::bad_alloc.
  [[nodiscard]] Pool& assign(const std::shared_ptr<const Capture>& capture);

  /// Takes chunks or segments from free blocks: of `only` if it is not nullptr, else of all pools
  /// that allow it, the common pool first. Returns the bytes taken. Throws: CudaError.
  std::size_t reclaim(HeapLock& lock, std::size_t bytes, const Pool* only = nullptr);
  /// Likewise, and releases unmapped chunks of as many bytes to the driver.
  void release(HeapLock& lock, std::size_t bytes = kEverything, const Pool* only = nullptr) {
    reclaim(lock, bytes, only);
    state_.release_unmapped(lock, bytes);
  }
  /// True if reclaim() can release memory to the driver, which may wait for the device.
  [[nodiscard]] bool has_releasable() const;
  /// Bytes of the largest free block with memory.
  [[nodiscard]] std::size_t largest_free() const noexcept;
  /// Asserts that pools and captures know each other, and what holds for deferred frees. Counts of
  /// magazines are flushed.
  void verify() const noexcept;

  [[nodiscard]] auto begin() const noexcept { return pools_.begin(); }
  [[nodiscard]] auto end() const noexcept { return pools_.end(); }

 private:
  [[nodiscard]] Pool& add(bool serves_captures, HeapBacking backing);
  void make_arenas(Pool& pool, HeapBacking backing) const;

  DeviceHeap& heap_;
  HeapState& state_;
  const HeapBacking backing_;
  std::vector<std::unique_ptr<Pool>> pools_;  ///< by id
  Pool* common_ = nullptr;
};

}  // namespace gantry::memory
