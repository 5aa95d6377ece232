// Where a heap's blocks come from: blocks of one size class, cut from memory that grows and
// shrinks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "memory/config.hpp"
#include "memory/counters.hpp"
#include "memory/heap/free_blocks.hpp"
#include "memory/heap/heap_mutex.hpp"
#include "memory/heap/usage_account.hpp"
#include "memory/ipc/heap_export.hpp"
#include "memory/source/chunk_store.hpp"
#include "memory/trace/history.hpp"

namespace gantry::memory {

struct Pool;

/// What all arenas of a device share. The mutex protects everything but `chunks`.
struct HeapCore {
  HeapCore(int device_index, const AllocConfig& configuration)
      : device(device_index),
        config(configuration),
        chunks(device_index),
        fraction(configuration.fraction) {}

  const int device;
  const AllocConfig config;
  mutable HeapMutex mutex;
  UsageAccount account;  ///< what `stats` has not heard of yet
  BlockSlab slab;
  ChunkStore chunks;
  Stats stats;
  double fraction;
  std::size_t small_bytes = 0;    ///< from the driver, behind arenas of small blocks
  std::size_t segment_bytes = 0;  ///< from the driver, not in chunks
  std::int64_t segments_made = 0;
  std::int64_t segments_freed = 0;
  std::size_t harvested_bytes = 0;  ///< taken from free blocks to be used elsewhere
  int movers = 0;                   ///< moves that are under way
  std::uint64_t moves = 0;          ///< moves that ended

  /// Memory on its way between driver, stock and blocks, which nobody else finds meanwhile: from
  /// before the lock is let go of until after it is taken again.
  class Move {
   public:
    explicit Move(HeapCore& core) : core_(core) { ++core_.movers; }
    ~Move() {
      --core_.movers;
      ++core_.moves;
      ++own;
    }
    Move(const Move&) = delete;
    Move& operator=(const Move&) = delete;

    static inline thread_local std::uint64_t own = 0;  ///< those of the calling thread

   private:
    HeapCore& core_;
  };

  /// Bytes that this process may hold on the device.
  [[nodiscard]] std::size_t limit() const;
  /// Brings the statistics of reserved memory up to date.
  void refresh_reserved();
};

/// The small blocks of one pool, or the others; see Arena::is_small.
///
/// Members that take the lock let go of it while they call the driver; what they work on is
/// `moving` meanwhile, so nobody else touches it.
class Arena {
 public:
  /// `counts_splits`: pieces of cut memory are of no use elsewhere, so the statistics tell them.
  Arena(HeapCore& core, Pool& pool, bool small, bool counts_splits)
      : splits_{&core.stats.inactive_split, &core.stats.inactive_split_bytes, small},
        free(core.slab, counts_splits ? &splits_ : nullptr),
        core_(core),
        pool_(pool),
        small_(small),
        cuts_freely_(!counts_splits) {}
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// New memory: a `moving` block of at least `bytes` that work of `stream` may use at once, or
  /// nullptr if limit or device do not allow it. Throws: CudaError; nothing has changed then.
  /// `harvest(lock, bytes)` is asked to make chunks spare first; an empty one: new memory only.
  using Harvest = std::function<void(HeapLock& lock, std::size_t bytes)>;
  [[nodiscard]] virtual HeapBlock* grow(HeapLock& lock, std::size_t bytes, StreamBlocks& stream,
                                        const Harvest& harvest) = 0;
  /// Takes memory from common free blocks until `bytes` of it are chunks or segments without a
  /// block; tells how many there were. Throws: CudaError.
  virtual std::size_t harvest(HeapLock& lock, std::size_t bytes) = 0;
  /// True if a free block of `have` bytes may serve `want` bytes.
  [[nodiscard]] virtual bool may_serve(std::size_t have, std::size_t want) const = 0;
  /// True if a block of `have` bytes is cut when `want` bytes of it are taken.
  [[nodiscard]] virtual bool may_cut(std::size_t have, std::size_t want) const = 0;

  /// The memory of a live block, for other processes; it stays where it is until unpin().
  [[nodiscard]] virtual BlockExtent pin(HeapLock& lock, const HeapBlock& block) = 0;
  virtual void unpin(const HeapBlock& block) noexcept = 0;

  /// Adds the ranges without gap, with their blocks in address order. Call with the lock held.
  virtual void describe(HeldSegments& held) const = 0;

  /// True if it is for blocks that are small beside what the driver gives at once.
  [[nodiscard]] bool is_small() const { return small_; }
  /// True if every free block may serve any request that it has room for, and is cut to its size.
  [[nodiscard]] bool cuts_freely() const { return cuts_freely_; }
  [[nodiscard]] Pool& owner() const { return pool_; }

 private:
  SplitCounter splits_;

 public:
  FreeBlocks free;

 protected:
  /// Counts segments that appeared or went.
  void count_segments(std::size_t before, std::size_t after);
  /// Adds a segment without blocks / the next block of the last segment.
  void describe_segment(const void* base, std::uint32_t call_site, HeldSegments& held) const;
  static void describe_block(const HeapBlock& block, HeldSegments& held);
  /// The caller's stack, for an event of a segment; 0 while no history is recorded.
  [[nodiscard]] static std::uint32_t segment_call_site(TraceAction action) noexcept;
  /// A number for pinned memory that no other of this process ever gets.
  [[nodiscard]] static std::uint64_t new_extent_id();

  HeapCore& core_;

 private:
  Pool& pool_;
  const bool small_;
  const bool cuts_freely_;
};

}  // namespace gantry::memory
