// The memory of one device under the backend "async".
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/stats.hpp>

#include "core/assert.hpp"
#include "device/idle_stream.hpp"
#include "device/platform/sync_debug_driver.hpp"
#include "memory/async/pool_frees.hpp"
#include "memory/blocks/deferred_frees.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "memory/oom/oom_report.hpp"
#include "memory/oom/reserve_bound.hpp"
#include "memory/oom/transfers.hpp"
#include "memory/policy/backend.hpp"
#include "memory/policy/size_policy.hpp"
#include "memory/stats/counters.hpp"
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
  /// `captured`: the heaps with memory for captures, apart from this pool.
  /// Throws: NotSupported if the device has no memory pools.
  AsyncPool(int device, double fraction, const HeapAllocator& captured)
      : device_(device),
        total_(device_properties(Device::cuda(device)).total_memory),
        captured_(captured),
        limit_(share_of(total_, fraction)),
        frees_(PoolFrees::of(device)) {
    if (!driver().supports_memory_pools(device)) {
      throw NotSupported(
          fmt::format(
              "GANTRY_ALLOC_CONF: backend:async: cuda:{} has no stream-ordered memory pools; "
              "use backend:vmm or backend:native",
              device),
          Device::cuda(device).str());
    }
    // A stream takes memory of the device. Once the blocks of this pool have it all, none can be
    // made to free them on.
    static_cast<void>(frees_.stream());
  }
  ~AsyncPool() override {
    if (in_bad_fork()) return;
    free_deferred();
    try {
      wait_for_deferred();
    } catch (...) {  // the platform is shutting down
    }
  }

  /// A block for work of `stream`, which is not captured, with room for `padding` bytes more.
  /// Throws: OutOfMemoryError.
  [[nodiscard]] HeapBlock& allocate(std::size_t bytes, const Stream& stream,
                                    std::size_t padding = 0) {
    const std::size_t padded = add_saturated(bytes, padding);
    HeapBlock& block = make_block(stream);
    OomHandlerCalls calls(device_, padded);
    try {
      do {
        block.data = static_cast<std::byte*>(allocate_slow(padded, stream.native()));
      } while (block.data == nullptr && call_program(calls, padded));
    } catch (...) {
      recycle(block);
      throw;
    }
    if (block.data == nullptr) {
      recycle(block);
      throw_oom(padded);
    }
    const std::lock_guard lock(mutex_);
    const std::size_t size = block_bytes(padded);
    block.bytes = size;
    block.requested.store(bytes, std::memory_order_relaxed);
    block.change(BlockUse::unused, BlockUse::live);
    GANTRY_ASSERT(reserved_ >= size, "a request takes bytes that were not reserved");
    reserved_ -= size;
    transfers_.end();
    const bool small = is_small(size);
    increase(stats_.allocation, small, 1);
    increase(stats_.active, small, 1);
    increase(stats_.allocated_bytes, small, size);
    increase(stats_.active_bytes, small, size);
    increase(stats_.requested_bytes, small, bytes);
    return block;
  }
  void deallocate(HeapBlock& block) noexcept;
  void record_stream(HeapBlock& block, const Stream& stream);
  /// Makes `stream` the block's own stream, without a look at the former one. The block stays with
  /// a captured stream, and `stream` uses it.
  void set_stream(HeapBlock& block, const Stream& stream);
  /// Waits for the frees, then releases unused memory.
  void empty_cache() {
    const BlockingIsNeeded needed;
    {
      const std::lock_guard lock(mutex_);
      bound_.reset();
    }
    free_deferred();
    wait_for_deferred();
    frees_.wait_for_all();
    driver().trim_pool(device_, 0);
  }
  /// Trims the driver's pool to the bound of Note [Reserved memory]. The request succeeds also if
  /// the trim fails.
  void keep_bound() {
    const DeviceHeap* const beside = captured_.find_heap(device_);
    const std::size_t elsewhere = beside == nullptr ? 0 : beside->reserved();
    std::size_t most = 0;
    {
      const std::lock_guard lock(mutex_);
      bound_.note_use(static_cast<std::size_t>(stats_.active_bytes.all.current) + reserved_);
      most = add_saturated(bound_.bytes(), kPoolPiece);
      most -= std::min(most, elsewhere);
    }
    try {
      if (driver().pool_memory(device_).reserved > most) driver().trim_pool(device_, most);
    } catch (const CudaError& error) {
      logging::debug(fmt::format("trimming the memory pool of cuda:{}: {}", device_, error.what()));
    }
  }
  /// Makes sure that the host can wait for the frees in a capture that is about to begin.
  void prepare_for_capture() noexcept {
    free_deferred();
    frees_.look();
  }
  /// Waits until a stream has reached its frees, and releases memory that is unused then.
  [[nodiscard]] bool release_after_wait(HostWait wait) override {
    const std::size_t before = driver().pool_memory(device_).reserved;
    free_deferred();
    bool is_more = wait == HostWait::anyhow && wait_for_deferred();
    is_more = frees_.wait_for_some(wait) || is_more;
    // Streams may have reached their frees before this call.
    driver().trim_pool(device_, 0);
    return is_more || driver().pool_memory(device_).reserved < before;
  }
  /// Releases unused memory, for a driver that is short of it. Waits for nothing.
  [[nodiscard]] DriverRelease release_for_driver() noexcept {
    try {
      const std::size_t before = driver().pool_memory(device_).reserved;
      free_deferred();
      frees_.look();
      driver().trim_pool(device_, 0);
      if (driver().pool_memory(device_).reserved < before) return DriverRelease::some;
      return frees_.has_pending() ? DriverRelease::none_yet : DriverRelease::none;
    } catch (const std::exception& error) {
      logging::debug(fmt::format("trimming the memory pool of cuda:{}: {}", device_, error.what()));
      return DriverRelease::none;
    }
  }

  [[nodiscard]] Stats stats() {
    const NativePoolMemory memory = driver().pool_memory(device_);
    Stat reserved;
    reserved.current = signed_bytes(memory.reserved);
    reserved.peak = signed_bytes(std::max(memory.reserved_high, memory.reserved));
    reserved.allocated = reserved.current;
    const std::lock_guard lock(mutex_);
    Stats result = stats_;
    result.reserved_bytes.all = reserved;
    result.reserved_bytes.large_pool = reserved;
    return result;
  }
  void reset_peak_stats() {
    driver().reset_pool_peaks(device_);
    const std::lock_guard lock(mutex_);
    reset_peaks(stats_);
  }
  void set_fraction(double fraction) {
    limit_.store(share_of(total_, fraction), std::memory_order_relaxed);
  }
  /// Asserts what holds between two calls; no other thread may call meanwhile.
  void verify();

 private:
  /// How often a request that other threads disturbed is tried again.
  static constexpr int kRetries = 16;
  /// The driver's pools hold memory in pieces of this size.
  static constexpr std::size_t kPoolPiece = std::size_t{32} << 20;

  [[nodiscard]] static std::size_t share_of(std::size_t total, double fraction) {
    return fraction >= 1 ? total : static_cast<std::size_t>(static_cast<double>(total) * fraction);
  }
  /// A descriptor that `stream` uses. Throws: std::bad_alloc.
  [[nodiscard]] HeapBlock& make_block(const Stream& stream) {
    StreamClock& clock = StreamClock::of(stream);
    const std::lock_guard lock(mutex_);
    slab_.reserve(1);
    HeapBlock& block = slab_.take();
    try {
      deferred_.add_use(block, clock, 0);
    } catch (...) {
      slab_.recycle(block);
      throw;
    }
    return block;
  }
  void recycle(HeapBlock& block) noexcept {
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(!block.is(BlockUse::live), "the descriptor of a live block is recycled");
    block.data = nullptr;
    block.uses.clear();
    block.captures.reset();
    slab_.recycle(block);
  }
  /// Allocates from the driver and reserves the budget for it. nullptr if there is no memory after
  /// all caches were released.
  [[nodiscard]] void* allocate_slow(std::size_t bytes, NativeStream stream) {
    // Past the device's size nothing that is freed helps, and the driver need not see odd numbers.
    if (block_bytes(bytes) > total_) return nullptr;
    for (int retry = 0;; ++retry) {
      std::unique_lock lock(mutex_);
      const std::uint64_t before = transfers_.begin_attempt();
      {
        const Unlocked unlocked(lock);
        if (void* data = try_to_find(bytes, stream)) return data;
      }
      if (retry == kRetries || !transfers_.wait(lock, before)) return nullptr;
    }
  }
  [[nodiscard]] void* try_to_find(std::size_t bytes, NativeStream stream) {
    const std::size_t size = block_bytes(bytes);
    free_deferred();
    if (!reserve_budget(size) && !(wait_for_deferred() && reserve_budget(size))) return nullptr;
    try {
      await_frees(size);
      if (void* data = ask_driver(bytes, stream)) {
        keep_bound();
        return data;
      }
    } catch (...) {
      cancel_reservation(size);
      throw;
    }
    cancel_reservation(size);
    return nullptr;
  }
  /// The steps go from cheap to expensive, as in a heap; see Note [Out-of-memory recovery].
  [[nodiscard]] void* ask_driver(std::size_t bytes, NativeStream stream) {
    if (void* data = ask_driver_once(bytes, stream)) return data;
    {
      const std::lock_guard lock(mutex_);
      ++stats_.num_alloc_retries;
      ++stats_.num_sync_all_streams;
    }
    // One of the callbacks trims the pool.
    if (MemoryPressureCallbacks::instance().run(device_, Waiting::forbidden)) {
      if (void* data = ask_driver_once(bytes, stream)) return data;
    }
    const BlockingIsNeeded needed;
    while (release_after_wait(HostWait::anyhow)) {
      if (void* data = ask_driver_once(bytes, stream)) return data;
    }
    DeviceHeap* const beside = captured_.find_heap(device_);
    if (beside != nullptr && beside->reserved() != 0) beside->release_after_waits();
    return ask_driver_once(bytes, stream);
  }
  /// The legacy default stream takes no work while a stream that synchronizes with it is captured.
  /// So memory for it is allocated on another stream, for which the host waits.
  [[nodiscard]] void* ask_driver_once(std::size_t bytes, NativeStream stream) const {
    if (may_look_at(stream)) return driver().allocate_async(stream, bytes);
    const NativeStream made = driver().create_stream(device_, 0);
    void* data = nullptr;
    try {
      data = driver().allocate_async(made, bytes);
      driver().synchronize_stream(made);
    } catch (...) {
      driver().destroy_stream(made);
      throw;
    }
    driver().destroy_stream(made);
    return data;
  }
  /// True if a function of the program freed memory, or wants another attempt.
  [[nodiscard]] bool call_program(OomHandlerCalls& calls, std::size_t bytes) {
    const std::size_t most = std::min(total_, limit_.load(std::memory_order_relaxed));
    return block_bytes(bytes) <= most && calls.run([this] {
      const auto free = signed_bytes(driver().memory_info(device_).free);
      const std::lock_guard lock(mutex_);
      return free - stats_.allocated_bytes.all.current;
    });
  }
  /// Counts a pending request of `bytes` against the limit; false if the limit does not allow it.
  [[nodiscard]] bool reserve_budget(std::size_t bytes) {
    const std::size_t limit = limit_.load(std::memory_order_relaxed);
    if (bytes > limit) return false;
    const std::lock_guard lock(mutex_);
    const std::size_t used = static_cast<std::size_t>(stats_.active_bytes.all.current) + reserved_;
    if (used > limit - bytes) return false;
    reserved_ += bytes;
    transfers_.begin();
    return true;
  }
  void cancel_reservation(std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(reserved_ >= bytes, "a request returns bytes that were not reserved");
    reserved_ -= bytes;
    transfers_.end();
    transfers_.complete();
  }
  [[noreturn]] void throw_oom(std::size_t bytes) {
    OomReport report = report_of_driver(device_, block_bytes(bytes));
    report.reserved = signed_bytes(driver().pool_memory(device_).reserved);
    report.limit = signed_bytes(limit_.load(std::memory_order_relaxed));
    {
      const std::lock_guard lock(mutex_);
      ++stats_.num_ooms;
      report.allocated = stats_.allocated_bytes.all.current;
    }
    throw_out_of_memory(device_, report, false);
  }
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
  void await_frees(std::size_t bytes) {
    constexpr auto kMoment = std::chrono::milliseconds(1);
    constexpr auto kLook = std::chrono::microseconds(20);
    const std::size_t wanted = add_saturated(driver().pool_memory(device_).reserved, bytes);
    const NativeStream freeing = frees_.stream();
    {
      const std::lock_guard lock(mutex_);
      bound_.note_use(static_cast<std::size_t>(stats_.active_bytes.all.current) + reserved_);
      if (bound_.excess(wanted) == 0) return;
    }
    const auto deadline = std::chrono::steady_clock::now() + kMoment;
    while (!is_idle(freeing) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kLook);
    }
  }

  const int device_;
  const std::size_t total_;
  const HeapAllocator& captured_;
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
