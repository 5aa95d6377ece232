// The heap of one device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/arenas/heap_state.hpp"
#include "memory/heap/heap_frees.hpp"
#include "memory/heap/heap_stats.hpp"
#include "memory/heap/oom_recovery.hpp"
#include "memory/heap/pool_set.hpp"
#include "memory/heap/thread_cache.hpp"
#include "memory/policy/backend.hpp"

namespace gantry::memory {

// Note [Parts of a heap]
// A DeviceHeap owns its parts. Each part calls only those above it:
//
//   HeapState     the lock; chunks, descriptors and counters behind it
//   PoolSet       the pools: arenas with free blocks, and deferred frees
//   HeapStats     numbers, reports and snapshots of the pools
//   HeapFrees     blocks that graphs hold, streams use, or one stream only may reuse
//   OomRecovery   the steps of a request that no free block serves
//   DeviceHeap    allocate and deallocate, and memory of whole pools; takes the lock
//
// HeapState::mutex guards all state of all parts, with three exceptions:
//   * `chunks` has a lock of its own;
//   * threads read Pool::released without a lock;
//   * magazines belong to their threads (Note [Magazines without locks]).
// DeviceHeap takes the lock; the other parts are called with it. A member with a parameter
// HeapLock& may release the lock meanwhile, to wait for streams or to call the driver. Its caller
// must expect that pools and blocks have changed. Locks are taken in this order:
// Pool::physical_mutex, HeapState::mutex, the registry of thread caches, locks of stream clocks or
// of the chunk store.

/// The heap of one device: pools of blocks over one store of physical memory.
///
/// Magazines (memory/heap/thread_cache.hpp) stand in front of it; calls that miss them take the
/// lock. A hit makes no driver call. See Note [Reuse of free blocks] and Note [Parts of a heap].
/// Thread safety: every member may be called from any thread. The lock is not held while waiting
/// for devices, nor while the driver allocates or releases memory.
class DeviceHeap {
 public:
  DeviceHeap(int device, const AllocConfig& config, HeapBacking backing);
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  [[nodiscard]] int device() const { return state_.device; }
  [[nodiscard]] HeapBacking backing() const { return pools_.backing(); }
  [[nodiscard]] Pool& common_pool() { return pools_.common(); }

  /// A block with at least `bytes` > 0 from align_up(data, alignment) on. `alignment` is a power of
  /// two from kBlockGrain on. Throws: OutOfMemoryError.
  [[nodiscard]] HeapBlock& allocate(std::size_t bytes, const Stream& stream, Pool& pool,
                                    std::size_t alignment = kBlockGrain);
  void deallocate(HeapBlock& block) noexcept;
  /// Records that `stream` uses the block: all work submitted before its free, or only the work
  /// submitted so far.
  void record_use(HeapBlock& block, const Stream& stream, bool until_free);
  /// Makes `stream` the block's own stream, without a look at the former one. The block stays with
  /// a captured stream, and `stream` uses it.
  void set_stream(HeapBlock& block, const Stream& stream);
  /// As deallocate(), for a block that other processes still use: its memory is in limbo, which
  /// lasts until free_from_limbo(). False if it was free already.
  [[nodiscard]] bool put_in_limbo(HeapBlock& block) noexcept;
  void free_from_limbo(HeapBlock& block) noexcept {
    locked([&] { frees_.free_from_limbo(block); });
  }
  [[nodiscard]] HeapLock lock() const { return HeapLock(state_.mutex); }

  /// Waits for blocks that streams still use, then releases all unused memory to the driver, also
  /// that of layers above.
  void empty_cache();
  /// Likewise, without the layers above.
  void release_after_waits();
  /// Releases all memory that no stream uses to the driver. Waits for nothing. True if streams
  /// still use freed memory.
  bool release_unused();
  /// As release_unused(), for a driver that is short of memory: see Note [Memory of the driver].
  /// Releases nothing if the calling thread works on a heap.
  DriverRelease release_for_driver() noexcept;
  /// Finds out which streams have completed their work, so that their free blocks serve others.
  void find_completed() noexcept {
    locked([&] { poll(); });
  }
  /// Throws the OutOfMemoryError of a direct allocation of `bytes` for `purpose`.
  [[noreturn]] void report_out_of_memory(std::size_t bytes, std::string_view purpose) {
    HeapLock lock(state_.mutex);
    recovery_.report(lock, bytes, 0, purpose);
  }

  /// See OomRecovery::set_neighbour.
  void set_neighbour(MemoryNeighbour* neighbour) noexcept {
    locked([&] { recovery_.set_neighbour(neighbour); });
  }
  /// See OomRecovery::set_clock.
  void set_recovery_clock(RecoveryClock* clock) noexcept {
    locked([&] { recovery_.set_clock(clock); });
  }

  /// Limits the memory held to a share of the device's.
  void set_fraction(double fraction) {
    locked([&] { state_.fraction = fraction; });
  }
  [[nodiscard]] double fraction() const {
    return locked([&] { return state_.fraction; });
  }
  /// Bytes that it holds.
  [[nodiscard]] std::size_t reserved() const {
    return locked([&] { return state_.reserved(); });
  }
  [[nodiscard]] Stats stats() {
    return locked([&] { return stats_.collect(pools_); });
  }
  void reset_peak_stats() {
    locked([&] { stats_.reset_peaks(); });
  }
  [[nodiscard]] HeldSegments segments() {
    return locked([&] { return stats_.segments(pools_); });
  }
  /// Asserts what holds for all parts between two calls; no other thread may call meanwhile.
  void verify();

  /// A new pool, or a destroyed one without live blocks.
  [[nodiscard]] Pool& make_pool(const MemPoolOptions& options);
  /// Releases the pool's unused memory. Live blocks stay valid; the object waits for their frees.
  void destroy_pool(Pool& pool);
  /// The pool of a capture in progress; made at its first use. Throws: std::bad_alloc.
  [[nodiscard]] Pool& pool_of(const std::shared_ptr<const Capture>& capture);
  [[nodiscard]] std::int64_t live_blocks(Pool& pool);
  /// See MemPool::release_physical and MemPool::restore_physical. Calls for one pool run one after
  /// the other.
  void release_physical(Pool& pool, PoolBackup backup);
  void restore_physical(Pool& pool);
  [[nodiscard]] bool has_physical(const Pool& pool) const {
    return locked([&] { return !pool.released; });
  }

 private:
  /// Calls `function` with the lock held, and returns its result.
  template <class Function>
  auto locked(Function function) const -> decltype(function()) {
    const HeapLock lock(state_.mutex);
    return function();
  }
  void restore_physical(HeapLock& lock, Pool& pool);
  [[nodiscard]] static StreamClock& clock_of_user(const Stream& stream);
  [[nodiscard]] bool begin_free(HeapBlock& block) noexcept;
  [[nodiscard]] bool has_incomplete() const noexcept;
  void poll() noexcept;

  HeapState state_;
  PoolSet pools_;
  HeapStats stats_{state_};
  HeapFrees frees_{pools_, stats_};
  OomRecovery recovery_{state_, pools_, stats_, frees_};
};

}  // namespace gantry::memory
