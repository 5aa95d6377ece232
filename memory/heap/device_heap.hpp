// All memory that this process holds on one device.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/heap/pending_blocks.hpp"
#include "memory/heap/thread_cache.hpp"
#include "memory/source/arena.hpp"
#include "streams/capture.hpp"

namespace gantry::memory {

/// How a pool treats memory.
struct PoolOptions {
  bool use_on_oom = false;  ///< others may take its free memory rather than run out
  bool no_split = false;    ///< blocks are not cut
};

/// Blocks that are never mixed with another pool's.
struct Pool {
  explicit Pool(bool captures) : serves_captures(captures) {}

  DeviceHeap* heap = nullptr;
  std::uint64_t id = 0;  ///< 0: the common pool
  PoolOptions options;
  std::atomic<bool> parked{false};  ///< written under the heap's lock
  std::unique_ptr<Arena> small;
  std::unique_ptr<Arena> large;
  PendingBlocks pending;
  std::int64_t live_blocks = 0;  ///< without what the accounts of magazines still hold
  bool abandoned = false;        ///< nobody's; used again once it has no live blocks
  std::mutex parking;            ///< one at a time parks or unparks; taken before the heap's lock
  const bool serves_captures;    ///< one after the other; see Note [Memory of captures]
  std::shared_ptr<const Capture> capture{};

  /// True if a graph may use addresses of free blocks: their memory stays where it is.
  [[nodiscard]] bool is_pinned() const { return capture != nullptr && capture->is_needed(); }
  /// True if memory of free blocks may be taken for others.
  [[nodiscard]] bool serves_others() const {
    return serves_captures ? !is_pinned() : options.use_on_oom;
  }
};

/// As record_trace, for what happens to a block.
void record_block(TraceAction action, const HeapBlock& block, std::uint32_t call_site) noexcept;

/// What keeps a heap's memory together: chunks mapped into address ranges, or driver allocations.
enum class HeapBacking : std::uint8_t { vmm, segments };

/// The heap of one device: pools of blocks over one stock of physical memory.
///
/// Magazines (memory/heap/thread_cache.hpp) stand in front of it; what comes here takes the lock. A
/// hit calls the driver not at all. See Note [Who may reuse a free block] and Note [What a shortage
/// costs].
/// Thread safety: every member may be called from any thread; the lock is not held while waiting
/// for devices, nor while the driver makes or takes memory.
class DeviceHeap {
 public:
  DeviceHeap(int device, const AllocConfig& config, HeapBacking backing);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  [[nodiscard]] int device() const { return core_.device; }
  [[nodiscard]] HeapBacking backing() const { return backing_; }
  [[nodiscard]] Pool& common_pool() { return *common_pool_; }

  /// A block of at least `bytes` > 0. Throws: OutOfMemoryError.
  [[nodiscard]] HeapBlock& allocate(std::size_t bytes, const Stream& stream, Pool& pool);
  void deallocate(HeapBlock& block) noexcept;
  /// The block is used by `stream`: by all work submitted before its free, or only by that
  /// submitted so far.
  void record_use(HeapBlock& block, const Stream& stream, bool until_free);
  /// Waits for blocks that streams still use, then gives all unused memory to the driver.
  void empty_cache();
  /// Gives the driver all memory that no stream uses. Waits for nothing; true if streams still use
  /// memory that is free otherwise.
  bool release_unused();
  /// For memory beside this heap: throws the OutOfMemoryError of `bytes` for `purpose`.
  [[noreturn]] void report_out_of_memory(std::size_t bytes, std::string_view purpose);

  /// Limits the memory held to a share of the device's.
  void set_fraction(double fraction);
  [[nodiscard]] Stats stats();
  void reset_peak_stats();
  [[nodiscard]] HeldSegments segments();

  /// A pool of its own; shells of destroyed ones are used again.
  [[nodiscard]] Pool& make_pool(const PoolOptions& options);
  /// Gives the pool's unused memory back. Live blocks stay valid; the shell waits for them.
  void destroy_pool(Pool& pool);
  /// The pool of a capture that is under way; made at its first use. Throws: std::bad_alloc.
  [[nodiscard]] Pool& pool_of(const std::shared_ptr<const Capture>& capture);
  [[nodiscard]] std::int64_t live_blocks(Pool& pool);
  /// Takes the physical memory from a pool / puts it back; see MemPool::park.
  void park(Pool& pool);
  void unpark(Pool& pool);
  [[nodiscard]] bool is_parked(const Pool& pool) const;

  /// As deallocate, for a block that other processes still use: it is kept until reclaim(). False
  /// if it was free already.
  [[nodiscard]] bool put_in_limbo(HeapBlock& block) noexcept;
  void reclaim(HeapBlock& block) noexcept;
  [[nodiscard]] HeapLock lock() const { return HeapLock(core_.mutex); }

  // For ThreadCache; the lock is held.
  void add(Magazines& table) noexcept {
    if (table.account.is_used) [[unlikely]] {
      append(*table.pool, table.account);
    }
    table.pool->live_blocks += table.log.move_to(core_.account);
  }
  /// Blocks from this size on may not stay with threads: they are counted one by one.
  [[nodiscard]] std::size_t kept_bound() const { return core_.config.max_split_bytes; }
  template <class Empty>
  void take_back(Empty&& empty) noexcept {
    const HeapLock lock(core_.mutex);
    HeapBlock* blocks = nullptr;
    empty(&blocks);
    return_cached(blocks);
  }

 private:
  struct Request {
    Pool& pool;
    Arena& arena;
    std::size_t bytes;
    StreamBlocks& stream;
  };

  [[nodiscard]] std::unique_ptr<Arena> make_arena(Pool& pool, bool small);
  [[nodiscard]] Pool& add_pool(bool serves_captures);
  void settle_own(ThreadCache& cache) noexcept;
  [[nodiscard]] HeapBlock* take_free(Arena& arena, std::size_t bytes,
                                     StreamBlocks& stream) noexcept;
  [[nodiscard]] HeapBlock* accept(Arena& arena, std::size_t bytes, HeapBlock* block) noexcept;
  void cut(Pool& pool, HeapBlock& block, std::size_t bytes) noexcept;
  [[nodiscard]] Arena& arena_for(Pool& pool, std::size_t bytes) const noexcept;
  void append(Pool& pool, UsageAccount& account) noexcept;
  void fold(UsageAccount& account) noexcept;
  void count_up() noexcept;
  void count_deferred(const HeapBlock& block, bool begins) noexcept;
  void release(HeapBlock& block, bool now) noexcept;
  [[nodiscard]] bool begin_free(HeapBlock& block) noexcept;
  void finish_free(HeapBlock& block, bool now) noexcept;

  // Captures; see device_heap_captures.cpp.
  using Captures = std::vector<std::shared_ptr<const Capture>>;
  /// A freed block whose address graphs of captures may use.
  struct HeldBlock {
    HeapBlock* block = nullptr;
    Captures captures;
  };
  [[nodiscard]] static Captures captures_that_use(const HeapBlock& block) noexcept;
  void finish_free(HeapBlock& block, Captures captures) noexcept;
  void hold(HeapBlock& block, Captures captures) noexcept;
  [[nodiscard]] bool is_held(const HeapBlock& block) noexcept;
  bool release_held() noexcept;
  [[nodiscard]] bool is_idle(const Pool& pool) const noexcept;
  [[nodiscard]] HeapBlock* take_ordered(const Request& request) noexcept;

  void return_cached(HeapBlock* blocks) noexcept;

  // Shortage; see device_heap_shortage.cpp.
  [[nodiscard]] HeapBlock& find_memory(HeapLock& lock, const Request& request);
  [[nodiscard]] HeapBlock* take_any(const Request& request) noexcept;
  [[nodiscard]] HeapBlock* take_with_wait(const Request& request);
  [[nodiscard]] HeapBlock* harvest_and_grow(HeapLock& lock, const Request& request);
  [[nodiscard]] HeapBlock* wait_and_take(HeapLock& lock, const Request& request);
  [[nodiscard]] bool await_moves(HeapLock& lock, std::uint64_t before);
  void flush_magazines() noexcept;
  bool settle() noexcept;
  void poll() noexcept;
  bool wait_for_oldest(HeapLock& lock, const Pool* only = nullptr);
  void wait_for_all(HeapLock& lock);
  void collect_garbage(HeapLock& lock);
  std::size_t harvest(HeapLock& lock, std::size_t bytes, const Pool* only);
  void release_spare(HeapLock& lock, std::size_t bytes);
  [[noreturn]] void report_out_of_memory(HeapLock& lock, const Request& request);
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> top_call_sites();
  [[noreturn]] void report_out_of_memory(HeapLock& lock, std::size_t bytes, std::uint64_t stream,
                                         std::string_view purpose);
  [[noreturn]] void throw_shortage(MemoryBreakdown told, std::string_view purpose = {}) const;
  void park_arenas(HeapLock& lock, Pool& pool);
  void unpark(HeapLock& lock, Pool& pool);
  void forget_unused(Pool& pool);
  static void check_is_not_parked(const Pool& pool) {
    if (pool.parked.load(std::memory_order_relaxed)) [[unlikely]] {
      refuse_parked();
    }
  }
  [[noreturn]] static void refuse_parked();
  [[nodiscard]] bool pool_waits(const Pool& pool) const noexcept;
  /// The largest free block with memory.
  [[nodiscard]] std::size_t largest_free() const noexcept;
  [[nodiscard]] MemoryBreakdown breakdown();

  HeapCore core_;
  const HeapBacking backing_;
  std::vector<std::unique_ptr<Pool>> pools_;
  Pool* common_pool_ = nullptr;
  std::vector<HeldBlock> held_;
  /// Blocks that were freed and are still used, by streams or processes: large ones, small ones.
  std::array<UsageAccount::Amount, 2> deferred_{};
  PoolStat requested_;  ///< bytes that callers of live blocks asked for
  std::int64_t limbo_bytes_ = 0;
  std::int64_t stream_waits_ = 0;
};

}  // namespace gantry::memory
