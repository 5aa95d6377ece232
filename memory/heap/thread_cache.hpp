// A per-thread cache of freed blocks, without lock and without driver call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/asymmetric_fence.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/heap/pool_set.hpp"
#include "memory/policy/size_policy.hpp"
#include "memory/stats/stats_delta.hpp"

namespace gantry::memory {

/// Blocks up to this size may be kept in magazines.
inline constexpr std::size_t kMagazineBlockLimit = std::size_t{32} << 10;
/// Bytes that one thread keeps at most.
inline constexpr std::size_t kMagazineBytes = std::size_t{4} << 20;

/// One thread's cached blocks of one pool and stream, by size.
struct Magazines {
  static constexpr std::size_t kDepth = 8;
  /// Two cache lines, most of the time one of them.
  struct alignas(64) Magazine {
    std::uint32_t count = 0;
    std::uint32_t depth = kDepth;
    std::size_t bytes = 0;  ///< of each block, so that they need not be loaded;
                            ///< 0 if there are none
    std::array<HeapBlock*, kDepth> blocks;

    void clear() {
      count = 0;
      bytes = 0;
    }
  };
  /// The magazine of one larger block: the last one that the thread freed, until the thread's next
  /// call of the heap. More of them would keep too much memory from other threads.
  static constexpr std::size_t kLarge = 0;

  Pool* pool = nullptr;
  HeapState* heap = nullptr;
  std::int64_t bound = 0;  ///< blocks of this size or more are not cached
  /// The stream's free blocks in each arena of the pool, once the thread freed a block there.
  std::array<StreamBlocks*, 2> streams{};
  const StreamClock* clock = nullptr;
  std::uint64_t stream_id = 0;
  StatsLog log;
  StatsDelta account;  ///< counts from before the first entry of `log`
  std::array<Magazine, kMagazineBlockLimit / kBlockGrain + 1> by_grains;

  Magazines() { by_grains[kLarge].depth = 1; }
  /// Moves the counts to the pool and the heap, whose lock is held.
  void flush_counts() noexcept {
    if (account.is_used) [[unlikely]] {
      flush_account();
    }
    pool->live_blocks += log.move_to(heap->account);
  }
  /// True if a free of the block belongs here.
  [[nodiscard]] bool serves(const HeapBlock& block) const {
    return streams[0] == block.stream || streams[1] == block.stream;
  }
  /// Large and small blocks share their code: branches on random sizes are mispredicted.
  [[nodiscard]] Magazine& of(std::size_t bytes) { return by_grains[kept(bytes) / kBlockGrain]; }
  /// The bytes of a block that count towards kMagazineBytes.
  [[nodiscard]] static std::size_t kept(std::size_t bytes) {
    return bytes & (std::size_t{0} - static_cast<std::size_t>(bytes <= kMagazineBlockLimit));
  }

 private:
  void flush_account() noexcept;
};

// Note [Magazines without locks]
// A thread uses its own cache without a lock. Rarely another thread empties it, to find memory or
// to read statistics. The owner stores to busy_ and then loads gate_. The other thread stores to
// gate_ and then loads busy_. At least one of them must see the other's store, which takes a full
// barrier on both sides. The rare side pays for both (AsymmetricFence).

/// The magazines of one thread.
class ThreadCache {
 public:
  /// The calling thread's cache. nullptr if the thread is ending, if there is no memory for a
  /// cache, and in a process that was forked after CUDA was used.
  [[nodiscard]] static ThreadCache* current() noexcept {
    ThreadCache* cache = current_;
    return cache != nullptr ? cache : make();
  }

  /// As current(), but nullptr too if the thread has no cache yet.
  [[nodiscard]] static ThreadCache* find_current() noexcept { return current_; }

  /// How a request goes about it. A direct one makes no call, so that its
  /// caller needs no stack; it leaves alone what is rare.
  enum class Way : std::uint8_t { direct, general };
  enum class Outcome : std::uint8_t {
    hit,
    miss,     ///< there is no block, or no room
    unknown,  ///< the general way finds out, if this was the direct one
  };
  /// The magazines of the stream's blocks of the pool; nullptr if there are none.
  [[nodiscard]] Magazines* find(const Pool& pool, std::uint64_t stream_id) noexcept;
  /// The magazines that the thread used last; nullptr if there are none.
  [[nodiscard]] Magazines* last() const noexcept { return last_; }
  /// The magazines for a block, which may be new. nullptr if it may be in none.
  [[nodiscard]] Magazines* find_or_open(const HeapBlock& block) noexcept;
  /// Takes a block of exactly `bytes`, a multiple of kBlockGrain, that this
  /// thread freed, and calls `hand_out(HeapBlock&)`. A hit sets `block`.
  template <class HandOut>
  [[nodiscard]] Outcome take(Way way, Magazines& table, std::size_t bytes, std::size_t requested,
                             HeapBlock*& block, HandOut&& hand_out) noexcept;
  /// Calls `before_it_is_free()` and keeps a freed block that no other stream
  /// uses, in magazines that serve it.
  template <class Before>
  [[nodiscard]] Outcome put(Way way, Magazines& table, HeapBlock& block,
                            Before&& before_it_is_free) noexcept;

  /// True if route() is for that heap and stream.
  [[nodiscard]] bool has_route(const DeviceHeap* heap, std::uint64_t stream_id) const noexcept {
    return route_heap_ == heap && route_stream_ == stream_id;
  }
  /// The magazines that set_route() chose.
  [[nodiscard]] Magazines& route() const noexcept { return *route_; }
  /// Makes the magazines of the pool and the stream the route(), if any. Until forget_route(),
  /// allocations on that stream that name no pool take that pool.
  void set_route(const Pool& pool, std::uint64_t stream_id) noexcept;
  /// To be called when the thread selects another pool.
  void forget_route() noexcept { route_stream_ = kNoStream; }
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
  /// Moves the counts of all threads to `heap`, whose lock is held. Returns the
  /// bytes that they cache.
  static std::size_t flush_counts(HeapState& heap) noexcept;
  /// Likewise, and frees the blocks that they cache.
  static void flush_blocks(HeapState& heap) noexcept;

  /// A scope in which all caches are bypassed: threads call their heap instead.
  /// Enter it with the lock of a heap held, and for a short time only.
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

  // False if another thread works on the cache, or for a direct way that would need a fence.
  [[nodiscard]] bool enter(Way way = Way::general) noexcept {
    busy_.store(true, std::memory_order_relaxed);
    AsymmetricFence::light();
    if (gate_.load(std::memory_order_acquire) == 0) [[likely]] {
      return true;
    }
    if (way == Way::general) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if ((gate_.load(std::memory_order_acquire) & kClaimed) == 0) return true;
    }
    leave();
    return false;
  }
  void leave() noexcept { busy_.store(false, std::memory_order_release); }
  // As enter(), also false if the log is full; the general way makes room there.
  [[nodiscard]] bool enter(Way way, Magazines& table) noexcept {
    if (!enter(way)) return false;
    if (way == Way::general) {
      table.log.make_room(table.account);
    } else if (table.log.is_full()) [[unlikely]] {
      leave();
      return false;
    }
    return true;
  }
  [[nodiscard]] Magazines* open(Pool& pool, const StreamClock& clock) noexcept;
  std::size_t empty(HeapState& heap, HeapBlock** blocks) noexcept;
  static std::size_t empty_all(HeapState& heap, HeapBlock** blocks) noexcept;

  static constexpr std::uint64_t kNoStream = ~std::uint64_t{0};
  static constexpr std::uint8_t kClaimed = 1;
  static constexpr std::uint8_t kFenced = 2;  // for good: AsymmetricFence is not free

  static constinit thread_local ThreadCache* current_ [[gnu::tls_model("initial-exec")]];

  std::atomic<bool> busy_{false};
  std::atomic<std::uint8_t> gate_;  // kClaimed, kFenced
  Magazines* last_ = nullptr;
  Magazines* route_ = nullptr;
  const DeviceHeap* route_heap_ = nullptr;
  std::uint64_t route_stream_ = kNoStream;
  std::size_t kept_bytes_ = 0;
  std::vector<Magazines*> tables_;
};

template <class HandOut>
inline ThreadCache::Outcome ThreadCache::take(Way way, Magazines& table, std::size_t bytes,
                                              std::size_t requested, HeapBlock*& block,
                                              HandOut&& hand_out) noexcept {
  if (!enter(way, table)) return Outcome::unknown;
  Magazines::Magazine& magazine = table.of(bytes);
  const bool is_hit = magazine.bytes == bytes;
  if (is_hit) [[likely]] {
    block = magazine.blocks[--magazine.count];
    magazine.bytes = magazine.count > 0 ? bytes : 0;
    kept_bytes_ -= Magazines::kept(bytes);
    table.log.count_allocation(bytes, requested, table.account);
    hand_out(*block);
  }
  leave();
  return is_hit ? Outcome::hit : Outcome::miss;
}

template <class Before>
inline ThreadCache::Outcome ThreadCache::put(Way way, Magazines& table, HeapBlock& block,
                                             Before&& before_it_is_free) noexcept {
  if (!enter(way, table)) return Outcome::unknown;
  const std::size_t bytes = block.bytes;
  const std::size_t kept = Magazines::kept(bytes);
  Magazines::Magazine& magazine = table.of(bytes);
  // One branch on the sign, since random sizes make each condition unpredictable.
  const std::int64_t fits = (std::int64_t{magazine.count} - std::int64_t{magazine.depth}) &
                            (static_cast<std::int64_t>(bytes) - table.bound) &
                            static_cast<std::int64_t>(kept_bytes_ + kept - (kMagazineBytes + 1));
  const bool is_kept = fits < 0 && !table.clock->may_be_captured();
  if (is_kept) {
    before_it_is_free();
    block.sequence = table.clock->next_sequence();
    block.change(BlockUse::live, BlockUse::cached);
    magazine.bytes = bytes;
    magazine.blocks[magazine.count++] = &block;
    kept_bytes_ += kept;
    table.log.count_free(bytes, block.requested.load(std::memory_order_relaxed));
  }
  leave();
  return is_kept ? Outcome::hit : Outcome::miss;
}

}  // namespace gantry::memory
