// A per-thread cache of freed blocks, without lock and without driver call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/blocks/heap_block.hpp"
#include "memory/heap/asymmetric_fence.hpp"
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
    std::size_t bytes = 0;  ///< of each block, so that they need not be loaded; 0 if there are none
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
// gate_ and then loads busy_. At least one of them must see the other's store, which takes a
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

  /// As current(), but nullptr too if the thread has no cache yet.
  [[nodiscard]] static ThreadCache* find_current() noexcept { return current_; }

  /// Takes a block of exactly `bytes`, a multiple of kBlockGrain, that this thread freed on that
  /// stream, and calls `hand_out(HeapBlock&)`; nullptr if there is none.
  template <class HandOut>
  [[nodiscard]] HeapBlock* take(const Pool& pool, std::uint64_t stream_id, std::size_t bytes,
                                std::size_t requested, HandOut&& hand_out) noexcept;
  /// Calls `before_it_is_free()` and keeps a freed block that no other stream uses. False, and
  /// nothing happened, if there is no room.
  template <class Before>
  [[nodiscard]] bool put(HeapBlock& block, Before&& before_it_is_free) noexcept;

  /// What the direct ways of a request found out.
  enum class Outcome : std::uint8_t {
    hit,
    miss,     ///< take() or put() would find no block or no room
    unknown,  ///< take() or put() finds it out
  };
  /// True if route() is for that heap and stream.
  [[nodiscard]] bool has_route(const DeviceHeap* heap, std::uint64_t stream_id) const noexcept {
    return route_heap_ == heap && route_stream_ == stream_id;
  }
  /// The magazines that set_route() chose.
  [[nodiscard]] Magazines& route() const noexcept { return *route_; }
  /// Makes those of the pool and the stream the route(), if there are any. Until forget_route(),
  /// allocations on that stream that name no pool take that pool.
  void set_route(const Pool& pool, std::uint64_t stream_id) noexcept;
  /// To be called when the thread selects another pool.
  void forget_route() noexcept { route_stream_ = kNoStream; }
  /// As take() and put(), without any call, so that a caller needs no stack. `block` is set by a
  /// hit.
  template <class HandOut>
  [[nodiscard]] Outcome take_directly(Magazines& table, std::size_t bytes, std::size_t requested,
                                      HeapBlock*& block, HandOut&& hand_out) noexcept;
  template <class Before>
  [[nodiscard]] Outcome put_directly(HeapBlock& block, Before&& before_it_is_free) noexcept;
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

  // False if another thread works on the cache.
  [[nodiscard]] bool enter() noexcept {
    busy_.store(true, std::memory_order_relaxed);
    AsymmetricFence::light();
    if (gate_.load(std::memory_order_relaxed) != 0) [[unlikely]] {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    if ((gate_.load(std::memory_order_acquire) & kClaimed) == 0) return true;
    leave();
    return false;
  }
  // As enter(), also false if it takes a fence.
  [[nodiscard]] bool enter_directly() noexcept {
    busy_.store(true, std::memory_order_relaxed);
    AsymmetricFence::light();
    if (gate_.load(std::memory_order_acquire) == 0) return true;
    leave();
    return false;
  }
  void leave() noexcept { busy_.store(false, std::memory_order_release); }
  void claim() noexcept;
  void unclaim() noexcept;
  [[nodiscard]] Magazines* find(const Pool& pool, std::uint64_t stream_id) noexcept;
  [[nodiscard]] Magazines* find_or_open(const HeapBlock& block) noexcept;
  [[nodiscard]] Magazines* open(Pool& pool, const StreamClock& clock) noexcept;
  template <class HandOut>
  [[nodiscard]] bool take_from(Magazines& table, std::size_t bytes, std::size_t requested,
                               HeapBlock*& block, HandOut&& hand_out) noexcept;
  template <class Before>
  [[nodiscard]] bool put_into(Magazines& table, HeapBlock& block,
                              Before&& before_it_is_free) noexcept;
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

// The caller has entered the cache, and the log has room.
template <class HandOut>
inline bool ThreadCache::take_from(Magazines& table, std::size_t bytes, std::size_t requested,
                                   HeapBlock*& block, HandOut&& hand_out) noexcept {
  Magazines::Magazine& magazine = table.of(bytes);
  if (magazine.bytes != bytes) return false;
  block = magazine.blocks[--magazine.count];
  magazine.bytes = magazine.count > 0 ? bytes : 0;
  kept_bytes_ -= Magazines::kept(bytes);
  table.log.count_allocation(bytes, requested, table.account);
  hand_out(*block);
  return true;
}

// Likewise.
template <class Before>
inline bool ThreadCache::put_into(Magazines& table, HeapBlock& block,
                                  Before&& before_it_is_free) noexcept {
  const std::size_t bytes = block.bytes;
  const std::size_t kept = Magazines::kept(bytes);
  Magazines::Magazine& magazine = table.of(bytes);
  // One branch on the sign, since random sizes make each condition unpredictable.
  const std::int64_t fits = (std::int64_t{magazine.count} - std::int64_t{magazine.depth}) &
                            (static_cast<std::int64_t>(bytes) - table.bound) &
                            static_cast<std::int64_t>(kept_bytes_ + kept - (kMagazineBytes + 1));
  if (fits >= 0 || table.clock->may_be_captured()) return false;
  before_it_is_free();
  block.sequence = table.clock->next_sequence();
  block.change(BlockUse::live, BlockUse::cached);
  magazine.bytes = bytes;
  magazine.blocks[magazine.count++] = &block;
  kept_bytes_ += kept;
  table.log.count_free(bytes, block.requested.load(std::memory_order_relaxed));
  return true;
}

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
  table->log.make_room(table->account);
  HeapBlock* block = nullptr;
  static_cast<void>(take_from(*table, bytes, requested, block, hand_out));
  leave();
  return block;
}

template <class Before>
inline bool ThreadCache::put(HeapBlock& block, Before&& before_it_is_free) noexcept {
  Magazines* table = last_;
  if (table == nullptr || !table->serves(block)) {
    table = find_or_open(block);
    if (table == nullptr) return false;
    last_ = table;
  }
  if (!enter()) return false;
  table->log.make_room(table->account);
  const bool is_kept = put_into(*table, block, before_it_is_free);
  leave();
  return is_kept;
}

template <class HandOut>
inline ThreadCache::Outcome ThreadCache::take_directly(Magazines& table, std::size_t bytes,
                                                       std::size_t requested, HeapBlock*& block,
                                                       HandOut&& hand_out) noexcept {
  if (!enter_directly()) return Outcome::unknown;
  if (table.log.is_full()) [[unlikely]] {
    leave();
    return Outcome::unknown;
  }
  const bool is_hit = take_from(table, bytes, requested, block, hand_out);
  leave();
  return is_hit ? Outcome::hit : Outcome::miss;
}

template <class Before>
inline ThreadCache::Outcome ThreadCache::put_directly(HeapBlock& block,
                                                      Before&& before_it_is_free) noexcept {
  Magazines* const table = last_;
  if (table == nullptr || !table->serves(block) || !enter_directly()) return Outcome::unknown;
  if (table->log.is_full()) [[unlikely]] {
    leave();
    return Outcome::unknown;
  }
  const bool is_kept = put_into(*table, block, before_it_is_free);
  leave();
  return is_kept ? Outcome::hit : Outcome::miss;
}

}  // namespace gantry::memory
