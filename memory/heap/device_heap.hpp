// The heap of one device.
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
#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/heap/deferred_frees.hpp"
#include "memory/heap/thread_cache.hpp"
#include "memory/source/arena.hpp"
#include "streams/capture.hpp"

namespace gantry::memory {

/// A set of blocks that is never mixed with another pool's.
struct Pool {
  explicit Pool(bool captures) : serves_captures(captures) {}

  DeviceHeap* heap = nullptr;
  std::uint64_t id = 0;  ///< 0: the common pool
  MemPoolOptions options;
  std::atomic<bool> released{false};  ///< its physical memory; written under the heap's lock
  std::vector<std::unique_ptr<Arena>> arenas;
  Arena* small = nullptr;  ///< of `arenas`, for small blocks; may be `large`
  Arena* large = nullptr;
  DeferredFrees deferred;
  std::int64_t live_blocks = 0;  ///< without the changes that magazines still hold
  bool destroyed = false;        ///< reused once it has no live blocks
  std::mutex physical_mutex;     ///< held by release and restore; taken before the heap's lock
  const bool serves_captures;    ///< one after the other; see Note [Memory of captures]
  std::shared_ptr<const Capture> capture{};

  /// True if a graph may use addresses of free blocks, so that their memory must stay there.
  [[nodiscard]] bool is_pinned() const { return capture != nullptr && capture->is_needed(); }
  /// True if recovery of other pools may take memory of free blocks.
  [[nodiscard]] bool serves_others() const {
    return serves_captures ? !is_pinned() : options.use_on_oom;
  }
};

/// As record_trace, for an event of a block.
void record_block(TraceAction action, const HeapBlock& block, std::uint32_t call_site) noexcept;

/// Source of a heap's memory: chunks mapped into address ranges, or driver allocations.
enum class HeapBacking : std::uint8_t { vmm, segments };

/// The heap of one device: pools of blocks over one store of physical memory.
///
/// Magazines (memory/heap/thread_cache.hpp) stand in front of it; calls that miss them take the
/// lock. A hit makes no driver call. See Note [Reuse of free blocks] and Note [Out-of-memory
/// recovery].
/// Thread safety: every member may be called from any thread. The lock is not held while waiting
/// for devices, nor while the driver allocates or releases memory.
class DeviceHeap {
 public:
  DeviceHeap(int device, const AllocConfig& config, HeapBacking backing);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  [[nodiscard]] int device() const { return state_.device; }
  [[nodiscard]] HeapBacking backing() const { return backing_; }
  [[nodiscard]] Pool& common_pool() { return *common_pool_; }

  /// A block with at least `bytes` > 0 from align_up(data, alignment) on. `alignment` is a power of
  /// two from kBlockGrain on. Throws: OutOfMemoryError.
  [[nodiscard]] HeapBlock& allocate(std::size_t bytes, const Stream& stream, Pool& pool,
                                    std::size_t alignment = kBlockGrain);
  void deallocate(HeapBlock& block) noexcept;
  /// Records that `stream` uses the block: all work submitted before its free, or only the work
  /// submitted so far.
  void record_use(HeapBlock& block, const Stream& stream, bool until_free);
  /// Waits for blocks that streams still use, then releases all unused memory to the driver.
  void empty_cache();
  /// Releases all memory that no stream uses to the driver. Waits for nothing. True if streams
  /// still use freed memory.
  bool release_unused();
  /// Throws the OutOfMemoryError of a direct allocation of `bytes` for `purpose`.
  [[noreturn]] void report_out_of_memory(std::size_t bytes, std::string_view purpose);

  /// Limits the memory held to a share of the device's.
  void set_fraction(double fraction);
  [[nodiscard]] Stats stats();
  void reset_peak_stats();
  [[nodiscard]] HeldSegments segments();

  /// A new pool, or a destroyed one without live blocks.
  [[nodiscard]] Pool& make_pool(const MemPoolOptions& options);
  /// Releases the pool's unused memory. Live blocks stay valid; the object waits for their frees.
  void destroy_pool(Pool& pool);
  /// The pool of a capture in progress; made at its first use. Throws: std::bad_alloc.
  [[nodiscard]] Pool& pool_of(const std::shared_ptr<const Capture>& capture);
  [[nodiscard]] std::int64_t live_blocks(Pool& pool);
  /// See MemPool::release_physical and MemPool::restore_physical.
  void release_physical(Pool& pool);
  void restore_physical(Pool& pool);
  [[nodiscard]] bool has_physical(const Pool& pool) const;

  /// As deallocate, for a block that other processes still use: it stays allocated until
  /// free_from_limbo(). False if it was free already.
  [[nodiscard]] bool put_in_limbo(HeapBlock& block) noexcept;
  void free_from_limbo(HeapBlock& block) noexcept;
  [[nodiscard]] HeapLock lock() const { return HeapLock(state_.mutex); }

  // For ThreadCache; the lock is held.
  void add(Magazines& table) noexcept {
    if (table.account.is_used) [[unlikely]] {
      append(*table.pool, table.account);
    }
    table.pool->live_blocks += table.log.move_to(state_.account);
  }
  /// Blocks from this size on are not cached by threads, because they are counted one by one.
  [[nodiscard]] std::size_t kept_bound() const { return state_.config.max_split_bytes; }
  template <class Empty>
  void free_cached(Empty&& empty) noexcept {
    const HeapLock lock(state_.mutex);
    HeapBlock* blocks = nullptr;
    empty(&blocks);
    insert_cached(blocks);
  }

 private:
  struct Request {
    Pool& pool;
    Arena& arena;
    std::size_t bytes;
    StreamBlocks& stream;
  };

  void make_arenas(Pool& pool);
  [[nodiscard]] Pool& add_pool(bool serves_captures);
  void flush_own(ThreadCache& cache) noexcept;
  [[nodiscard]] HeapBlock* take_free(Arena& arena, std::size_t bytes,
                                     StreamBlocks& stream) noexcept;
  [[nodiscard]] HeapBlock* accept(Arena& arena, std::size_t bytes, HeapBlock* block) noexcept;
  void split(Pool& pool, HeapBlock& block, std::size_t bytes) noexcept;
  [[nodiscard]] HeapBlock& split_head(Pool& pool, HeapBlock& block, std::size_t alignment) noexcept;
  void append(Pool& pool, StatsDelta& account) noexcept;
  void apply_delta(StatsDelta& delta) noexcept;
  void update_stats() noexcept;
  void count_deferred(const HeapBlock& block, bool begins) noexcept;
  [[nodiscard]] bool begin_free(HeapBlock& block) noexcept;
  void finish_free(HeapBlock& block) noexcept;
  void finish_deferred_free(HeapBlock& block) noexcept;
  void insert_free(HeapBlock& block) noexcept;
  void insert_completed(HeapBlock& block) noexcept;

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

  void insert_cached(HeapBlock* blocks) noexcept;

  // Out-of-memory recovery; see device_heap_recovery.cpp.
  enum class Reclaim : std::uint8_t { nothing, own_pool, all_pools };
  [[nodiscard]] HeapBlock& allocate_slow(HeapLock& lock, const Request& request);
  [[nodiscard]] HeapBlock* take_any(const Request& request) noexcept;
  [[nodiscard]] HeapBlock* take_with_wait(const Request& request);
  [[nodiscard]] HeapBlock* grow(HeapLock& lock, const Request& request, Reclaim missing);
  [[nodiscard]] HeapBlock* reclaim_and_grow(HeapLock& lock, const Request& request);
  [[nodiscard]] HeapBlock* wait_and_take(HeapLock& lock, const Request& request);
  [[nodiscard]] bool wait_for_transfers(HeapLock& lock, std::uint64_t before);
  void flush_magazines() noexcept;
  bool promote_completed() noexcept;
  void poll() noexcept;
  bool wait_for_oldest(HeapLock& lock, const Pool* only = nullptr);
  void wait_for_all(HeapLock& lock);
  void collect_garbage(HeapLock& lock);
  std::size_t reclaim(HeapLock& lock, std::size_t bytes, const Pool* only);
  void release_unmapped(HeapLock& lock, std::size_t bytes);
  [[noreturn]] void report_out_of_memory(HeapLock& lock, const Request& request);
  [[nodiscard]] std::vector<std::pair<std::string, std::int64_t>> top_call_sites();
  [[noreturn]] void report_out_of_memory(HeapLock& lock, std::size_t bytes, std::uint64_t stream,
                                         std::string_view purpose);
  [[noreturn]] void throw_oom(OomReport report, std::string_view purpose = {}) const;
  static void release_arenas(HeapLock& lock, Pool& pool);
  void restore_physical(HeapLock& lock, Pool& pool);
  static void discard_unused(Pool& pool);
  static void check_has_physical(const Pool& pool) {
    if (pool.released.load(std::memory_order_relaxed)) [[unlikely]] {
      throw_without_physical();
    }
  }
  [[noreturn]] static void throw_without_physical();
  [[nodiscard]] static bool has_incomplete(const Pool& pool) noexcept;
  /// Bytes of the largest free block with memory.
  [[nodiscard]] std::size_t largest_free() const noexcept;
  [[nodiscard]] OomReport oom_report();

  HeapState state_;
  const HeapBacking backing_;
  std::vector<std::unique_ptr<Pool>> pools_;
  Pool* common_pool_ = nullptr;
  std::vector<HeldBlock> held_;
  /// Freed blocks that streams or processes still use: large ones, small ones.
  std::array<StatsDelta::Amount, 2> deferred_{};
  PoolStat requested_;  ///< requested bytes of live blocks
  std::int64_t limbo_bytes_ = 0;
  std::int64_t stream_waits_ = 0;
};

}  // namespace gantry::memory
