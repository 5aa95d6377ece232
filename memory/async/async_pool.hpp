// The memory of one device under the backend "async".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/stats.hpp>

#include "memory/async/pool_frees.hpp"
#include "memory/blocks/deferred_frees.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "memory/oom/reserve_bound.hpp"
#include "memory/oom/transfers.hpp"
#include "memory/policy/backend.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

// Note [Frees of recorded blocks]
// The driver reuses memory when the stream on which it was freed reaches the free. A block that
// other streams use is freed on a stream of the pool, which first waits for all of them. On the
// block's own stream such a wait would delay the program's later work. A free is deferred (Note
// [Deferred frees]) if it cannot be ordered now, because a stream is captured or the driver fails.
// Each allocation makes the pool's stream wait for the uses of deferred blocks, as far as that is
// possible, and then frees these blocks.

// Note [External streams of blocks]
// An external stream may be destroyed once the free has returned. So the free takes a sequence
// number of its clock. A deferred free waits for that number and never calls the stream. No event
// can be recorded on a captured or destroyed stream, or on another thread's per-thread default
// stream. Blocks of such streams are kept until the device is synchronized: by out-of-memory
// recovery, or by empty_cache(), while no stream is captured.

// Note [Frees in captures]
// A captured stream gets no memory here: the driver would make the allocation a node of the graph,
// and tensors outlive graphs. (AsyncAllocator has another source for captures.) A block that is
// freed while one of its streams is captured was probably used by the capture. So its free waits
// until the program cannot run the graph again. No call here touches a captured stream, nor
// synchronizes with a device while one is captured; see Note [Waits for frees].

/// The memory of one device under the backend "async": the driver's pool, and deferred frees.
///
/// The first entry of a block's `uses` is the stream that it was allocated on.
/// Thread safety: every member may be called from any thread; no lock is held over driver calls.
class AsyncPool final : public MemoryNeighbour {
 public:
  /// `release_elsewhere()` releases memory that the owner caches apart from this pool, once the
  /// streams that use it are done, and `reserved_elsewhere()` returns its size.
  /// Throws: NotSupported if the device has no memory pools.
  AsyncPool(int device, double fraction, std::function<void()> release_elsewhere,
            std::function<std::size_t()> reserved_elsewhere);
  ~AsyncPool() override;
  AsyncPool(const AsyncPool&) = delete;
  AsyncPool& operator=(const AsyncPool&) = delete;

  /// A block for work of `stream`, which is not captured, with room for `padding` bytes more.
  /// Throws: OutOfMemoryError.
  [[nodiscard]] HeapBlock& allocate(std::size_t bytes, const Stream& stream,
                                    std::size_t padding = 0);
  void deallocate(HeapBlock& block) noexcept;
  void record_stream(HeapBlock& block, const Stream& stream);
  /// Waits for the frees, then releases unused memory.
  void empty_cache();
  /// Trims the driver's pool to the bound of Note [Reserved memory].
  void keep_bound();
  /// Makes sure that the host can wait for the frees in a capture that is about to begin.
  void prepare_for_capture() noexcept;
  /// Waits until a stream has reached its frees, and releases memory that is unused then.
  [[nodiscard]] bool release_after_wait(HostWait wait) override;
  /// Releases unused memory, for a driver that is short of it. Waits for nothing.
  [[nodiscard]] DriverRelease release_for_driver() noexcept;

  [[nodiscard]] Stats stats();
  void reset_peak_stats();
  void set_fraction(double fraction);
  /// Asserts what holds between two calls; no other thread may call meanwhile.
  void verify();

 private:
  /// A descriptor that `stream` uses. Throws: std::bad_alloc.
  [[nodiscard]] HeapBlock& make_block(const Stream& stream);
  void recycle(HeapBlock& block) noexcept;
  [[nodiscard]] void* allocate_slow(std::size_t bytes, NativeStream stream);
  [[nodiscard]] void* try_to_find(std::size_t bytes, NativeStream stream);
  [[nodiscard]] void* ask_driver(std::size_t bytes, NativeStream stream);
  [[nodiscard]] void* ask_driver_once(std::size_t bytes, NativeStream stream) const;
  /// Counts a pending request of `bytes` against the limit; false if the limit does not allow it.
  [[nodiscard]] bool ask_program(std::size_t bytes) const;
  [[nodiscard]] bool reserve_budget(std::size_t bytes);
  void cancel_reservation(std::size_t bytes) noexcept;
  [[noreturn]] void throw_oom(std::size_t bytes);
  void note_captures(HeapBlock& block) noexcept;
  /// Frees a block that only its own stream uses, on that stream. False if the stream is captured
  /// or no longer exists, or the driver fails.
  [[nodiscard]] bool free_on_own_stream(HeapBlock& block) noexcept;
  /// Frees a block with frozen uses on the pool's stream, behind waits for all uses. False if a use
  /// cannot be ordered now.
  [[nodiscard]] bool free_behind_uses(HeapBlock& block) noexcept;
  /// Frees a block on the pool's stream, which is ordered after all its uses. False if the driver
  /// fails.
  [[nodiscard]] bool free_completed(HeapBlock& block) noexcept;
  void note_freed(HeapBlock& block) noexcept;
  /// True if the use is complete, or the pool's stream has waited for it.
  [[nodiscard]] bool is_ordered(const StreamUse& use) const;
  /// Makes the pool's stream wait for a use with a number. False if that is not possible now: the
  /// stream is captured, or no event covers the number. Throws: CudaError.
  [[nodiscard]] bool order(const StreamUse& use);
  /// Puts a freed block in the queues; the lock is held.
  void enqueue(HeapBlock& block) noexcept;
  /// Frees the deferred blocks behind whose uses the pool's stream can be ordered.
  void free_deferred() noexcept;
  /// Waits for streams behind which the pool's stream cannot be ordered, then frees the blocks that
  /// waited for them. False if there are none. Throws: CudaError.
  bool wait_for_deferred();
  /// Waits a moment for the frees of recorded blocks if the pool would exceed its bound by `bytes`.
  void await_frees(std::size_t bytes);

  const int device_;
  const std::size_t total_;
  const std::function<void()> release_elsewhere_;
  const std::function<std::size_t()> reserved_elsewhere_;
  std::atomic<std::size_t> limit_;
  PoolFrees& frees_;

  std::mutex mutex_;
  BlockSlab slab_;
  HeldBlocks held_;
  DeferredFrees deferred_{frees_.order()};
  HeapBlock* completed_ = nullptr;  ///< blocks whose uses are ordered; linked through next_in_bin
  Stats stats_;
  std::size_t reserved_ = 0;  ///< of pending requests, which the statistics do not have yet
  ReserveBound bound_;
  Transfers transfers_;  ///< threads that free deferred blocks, and requests
};

}  // namespace gantry::memory
