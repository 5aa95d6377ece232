// The source of a heap's blocks: memory that grows and shrinks, split into blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "memory/heap/free_blocks.hpp"
#include "memory/heap/heap_state.hpp"
#include "memory/source/exportable.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {

struct Pool;

/// Memory that is about to grow for one request, with the free blocks that become part of it. They
/// are `in_transition`; Arena::finish_growth() or Arena::cancel_growth() ends it.
struct Growth {
  HeapBlock* left = nullptr;
  HeapBlock* hole = nullptr;
  HeapBlock* right = nullptr;
  std::size_t bytes = 0;    ///< of new memory
  bool at_the_end = false;  ///< of the hole, not at its beginning
  bool coarse = false;      ///< of coarse chunks
};

/// A source of blocks for one pool: for its small blocks, its large ones, or all.
///
/// Members that take the lock release it while they call the driver. Blocks that they work on are
/// `in_transition` or `mapping` meanwhile, so no other thread touches them.
class Arena {
 public:
  /// `counts_splits`: free pieces of split memory are of no use elsewhere, so statistics count
  /// them.
  Arena(HeapState& state, Pool& pool, bool small, bool counts_splits)
      : splits_{&state.stats.inactive_split, &state.stats.inactive_split_bytes, small},
        free(state.slab, counts_splits ? &splits_ : nullptr),
        state_(state),
        pool_(pool),
        small_(small),
        splits_freely_(!counts_splits) {}
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The first step of growing by a block of at least `bytes` that work of `stream` may use at
  /// once. None if there are no addresses for it, or if `coarse` is of no use now.
  /// Throws: CudaError, std::bad_alloc; nothing has changed then.
  [[nodiscard]] virtual std::optional<Growth> begin_growth(std::size_t bytes,
                                                           const StreamBlocks& stream,
                                                           bool coarse) = 0;
  /// The second step: the new block, `in_transition`. nullptr if limit or device do not allow it,
  /// with everything as before begin_growth(). Throws: CudaError, likewise.
  [[nodiscard]] virtual HeapBlock* finish_growth(HeapLock& lock, const Growth& growth) = 0;
  /// Ends a growth without memory.
  virtual void cancel_growth(const Growth& growth) noexcept = 0;
  /// True if memory taken from free blocks by reclaim() serves finish_growth().
  [[nodiscard]] virtual bool grows_by_chunks() const = 0;
  /// Takes memory from common free blocks until `bytes` of it have no block. Returns the bytes
  /// taken. Throws: CudaError.
  virtual std::size_t reclaim(HeapLock& lock, std::size_t bytes) = 0;
  /// True if a free block of `have` bytes may serve `want` bytes.
  [[nodiscard]] virtual bool may_serve(std::size_t have, std::size_t want) const = 0;
  /// True if a block of `have` bytes is split when `want` bytes of it are taken.
  [[nodiscard]] virtual bool may_split(std::size_t have, std::size_t want) const = 0;
  /// As FreeBlocks::take, but only a block that may serve the request.
  [[nodiscard]] HeapBlock* take(std::size_t bytes, StreamBlocks& stream) noexcept {
    return accept(free.take(bytes, stream), bytes);
  }
  /// `block`, which is `in_transition` or nullptr, if it may serve `bytes`; else it is free again.
  [[nodiscard]] HeapBlock* accept(HeapBlock* block, std::size_t bytes) noexcept {
    if (block == nullptr) return nullptr;
    if (!splits_freely() && !may_serve(block->bytes, bytes)) {
      free.insert(*block);
      return nullptr;
    }
    return block;
  }

  /// Throws NotSupported if this memory cannot leave its addresses; InvalidArgument if another
  /// process shares it.
  virtual void check_can_release_physical() const = 0;
  /// Takes the physical memory from all addresses, also from live blocks, whose contents are lost.
  /// No work may be in flight. Memory that was released before stays so. Throws: CudaError.
  virtual void release_physical(HeapLock& lock) = 0;
  /// Maps memory at the released addresses again. False if there is not enough.
  [[nodiscard]] virtual bool restore_physical(HeapLock& lock) = 0;
  /// While released: whole chunks of free blocks lose their claim to be restored.
  virtual void discard_unused() = 0;
  /// Bytes that restore_physical() has to map.
  [[nodiscard]] virtual std::size_t released_bytes() const = 0;

  /// The memory of a live block, for other processes; it stays where it is until unpin().
  [[nodiscard]] virtual BlockExtent pin(HeapLock& lock, const HeapBlock& block) = 0;
  virtual void unpin(const HeapBlock& block) noexcept = 0;

  /// Adds the ranges without gap, with their blocks in address order. Call with the lock held.
  virtual void describe(HeldSegments& held) const = 0;

  /// True if it serves small blocks only.
  [[nodiscard]] bool is_small() const { return small_; }
  /// True if every free block may serve any request that fits, and is split to its size.
  [[nodiscard]] bool splits_freely() const { return splits_freely_; }
  [[nodiscard]] Pool& owner() const { return pool_; }

 private:
  SplitCounter splits_;

 public:
  FreeBlocks free;

 protected:
  /// Counts segments that were added or removed.
  void count_segments(std::size_t before, std::size_t after);
  /// Adds a segment without blocks / the next block of the last segment.
  void describe_segment(const void* base, std::uint32_t call_site, HeldSegments& held) const;
  static void describe_block(const HeapBlock& block, HeldSegments& held);
  /// The caller's stack, for an event of a segment; 0 while no history is recorded.
  [[nodiscard]] static std::uint32_t segment_call_site(TraceAction action) noexcept;
  /// A number for pinned memory that is unique in this process.
  [[nodiscard]] static std::uint64_t new_extent_id();

  HeapState& state_;

 private:
  Pool& pool_;
  const bool small_;
  const bool splits_freely_;
};

}  // namespace gantry::memory
