// A per-thread cache of freed blocks, without lock and without driver call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/heap/asymmetric_fence.hpp"
#include "memory/heap/heap_block.hpp"
#include "memory/heap/pool_set.hpp"
#include "memory/heap/size_policy.hpp"
#include "memory/heap/stats_delta.hpp"

namespace gantry::memory {

/// Blocks up to this size may be kept in magazines.
inline constexpr std::size_t kMagazineBlockLimit = std::size_t{32} << 10;
/// Bytes that one thread keeps at most.
inline constexpr std::size_t kMagazineBytes = std::size_t{4} << 20;

/// One thread's cached blocks of one pool and stream, by size.
struct Magazines {
  static constexpr std::size_t kDepth = 8;
  struct Magazine {
    std::uint32_t count = 0;
    std::uint32_t depth = kDepth;
    std::size_t bytes = 0;  ///< of each block, so that they need not be loaded; 0 if there are none
    std::array<HeapBlock*, kDepth> blocks;

    void clear() {
      count = 0;
      bytes = 0;
    }
  };
  /// The magazine of one larger block: the last one that the thread freed, until the thread's next
  /// call of the heap. More of them would keep too much memory from other threads.
  static constexpr std::size_t kLarge = kMagazineBlockLimit / kBlockGrain + 1;

  Pool* pool = nullptr;
  HeapState* heap = nullptr;
  std::size_t bound = 0;  ///< blocks of this size or more are not cached
  /// The stream's free blocks in each arena of the pool, once the thread freed a block there.
  std::array<StreamBlocks*, 2> streams{};
  const StreamClock* clock = nullptr;
  std::uint64_t stream_id = 0;
  StatsLog log;
  StatsDelta account;  ///< counts from before the first entry of `log`
  std::array<Magazine, kLarge + 1> by_grains;

  Magazines() { by_grains[kLarge].depth = 1; }
  /// Moves the counts to the pool and the heap, whose lock is held.
  void flush_counts() noexcept {
    if (account.is_used) [[unlikely]] {
      flush_account();
    }
    pool->live_blocks += log.move_to(heap->account);
  }
  /// Large and small blocks share their code: branches on random sizes are mispredicted.
  [[nodiscard]] Magazine& of(std::size_t bytes) {
    return by_grains[std::min(bytes / kBlockGrain, kLarge)];
  }
  /// The bytes of a block that count towards kMagazineBytes.
  [[nodiscard]] static std::size_t kept(std::size_t bytes) {
    return bytes & (std::size_t{0} - static_cast<std::size_t>(bytes <= kMagazineBlockLimit));
  }

 private:
  void flush_account() noexcept;
};

// Note [Magazines without locks]
// A thread uses its own cache without a lock. Rarely another thread empties it, to find memory or
// to read statistics. The owner stores to busy_ and then loads claimed_. The other thread stores to
// claimed_ and then loads busy_. At least one of them must see the other's store, which takes a
// full barrier on both sides. The rare side pays for both (AsymmetricFence).

/// The magazines of one thread.
class ThreadCache {
 public:
  /// The calling thread's cache. nullptr if the thread is ending, if there is no memory for a
  /// cache, and in a process that was forked after CUDA was used.
  [[nodiscard]] static ThreadCache* current() noexcept {
    ThreadCache* cache = current_;
    return cache != nullptr ? cache : make();
  }

  /// Takes a block of exactly `bytes`, a multiple of kBlockGrain, that this thread freed on that
  /// stream, and calls `hand_out(HeapBlock&)`; nullptr if there is none.
  template <class HandOut>
  [[nodiscard]] HeapBlock* take(const Pool& pool, std::uint64_t stream_id, std::size_t bytes,
                                std::size_t requested, HandOut&& hand_out) noexcept;
  /// Calls `before_it_is_free()` and keeps a freed block that no other stream uses. False, and
  /// nothing happened, if there is no room.
  template <class Before>
  [[nodiscard]] bool put(HeapBlock& block, Before&& before_it_is_free) noexcept;
  /// Moves the counts of this thread to `heap`, whose lock is held, and frees its large blocks.
  void flush_own(const HeapState& heap) noexcept {
    for (Magazines* table : tables_) {
      if (table->heap != &heap) continue;
      table->flush_counts();
      if (Magazines::Magazine& large = table->by_grains[Magazines::kLarge]; large.count != 0) {
        large.clear();
        HeapBlock& block = *large.blocks[0];
        __builtin_prefetch(block.previous);
        block.arena->free.insert(block);
      }
    }
  }
  /// Moves the counts of all threads to `heap`, whose lock is held. Returns the bytes that they
  /// cache.
  static std::size_t flush_counts(HeapState& heap) noexcept;
  /// Likewise, and frees the blocks that they cache.
  static void flush_blocks(HeapState& heap) noexcept;

  /// A scope in which all caches are bypassed: threads call their heap instead. Enter it with the
  /// lock of a heap held, and for a short time only.
  class AllCachesPaused {
   public:
    AllCachesPaused() noexcept;
    ~AllCachesPaused();
    AllCachesPaused(const AllCachesPaused&) = delete;
    AllCachesPaused& operator=(const AllCachesPaused&) = delete;
  };

 private:
  friend struct ThreadCacheOwner;

  ThreadCache();
  ~ThreadCache();
  static ThreadCache* make() noexcept;
  static void abandon_in_child();

  [[nodiscard]] bool enter() noexcept {
    busy_.store(true, std::memory_order_relaxed);
    fence_.light();
    if (!claimed_.load(std::memory_order_acquire)) return true;
    leave();
    return false;
  }
  void leave() noexcept { busy_.store(false, std::memory_order_release); }
  void claim() noexcept;
  void unclaim() noexcept { claimed_.store(false, std::memory_order_release); }
  [[nodiscard]] Magazines* find(const Pool& pool, std::uint64_t stream_id) noexcept;
  [[nodiscard]] Magazines* find_or_open(const HeapBlock& block) noexcept;
  [[nodiscard]] Magazines* open(Pool& pool, const StreamClock& clock) noexcept;
  std::size_t empty(HeapState& heap, HeapBlock** blocks) noexcept;
  static std::size_t empty_all(HeapState& heap, HeapBlock** blocks) noexcept;

  static constinit thread_local ThreadCache* current_ [[gnu::tls_model("initial-exec")]];

  std::atomic<bool> busy_{false};
  std::atomic<bool> claimed_{false};
  const AsymmetricFence fence_;
  Magazines* last_ = nullptr;
  std::size_t kept_bytes_ = 0;
  std::vector<Magazines*> tables_;
};

template <class HandOut>
inline HeapBlock* ThreadCache::take(const Pool& pool, std::uint64_t stream_id, std::size_t bytes,
                                    std::size_t requested, HandOut&& hand_out) noexcept {
  Magazines* table = last_;
  if (table == nullptr || table->pool != &pool || table->stream_id != stream_id) {
    table = find(pool, stream_id);
    if (table == nullptr) return nullptr;
    last_ = table;
  }
  if (!enter()) return nullptr;
  HeapBlock* block = nullptr;
  Magazines::Magazine& magazine = table->of(bytes);
  if (magazine.bytes == bytes) {
    block = magazine.blocks[--magazine.count];
    magazine.bytes = magazine.count > 0 ? bytes : 0;
    kept_bytes_ -= Magazines::kept(bytes);
    table->log.count_allocation(bytes, requested, table->account);
    hand_out(*block);
  }
  leave();
  return block;
}

template <class Before>
inline bool ThreadCache::put(HeapBlock& block, Before&& before_it_is_free) noexcept {
  Magazines* table = last_;
  if (table == nullptr ||
      (table->streams[0] != block.stream && table->streams[1] != block.stream)) {
    table = find_or_open(block);
    if (table == nullptr) return false;
    last_ = table;
  }
  if (!enter()) return false;
  const std::size_t bytes = block.bytes;
  Magazines::Magazine& magazine = table->of(bytes);
  // One branch, since random sizes make each condition unpredictable.
  const auto fits = static_cast<bool>(
      static_cast<unsigned>(magazine.count < magazine.depth) &
      static_cast<unsigned>(bytes < table->bound) &
      static_cast<unsigned>(!table->clock->may_be_captured()) &
      static_cast<unsigned>(kept_bytes_ + Magazines::kept(bytes) <= kMagazineBytes));
  if (fits) {
    before_it_is_free();
    block.sequence = table->clock->next_sequence();
    block.use.store(BlockUse::cached, std::memory_order_relaxed);
    magazine.bytes = bytes;
    magazine.blocks[magazine.count++] = &block;
    kept_bytes_ += Magazines::kept(bytes);
    table->log.count_free(bytes, block.requested.load(std::memory_order_relaxed), table->account);
  }
  leave();
  return fits;
}

}  // namespace gantry::memory
