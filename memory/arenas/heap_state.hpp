// The state that the sources and all parts of a device's heap share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include <gantry/device/properties.hpp>
#include <gantry/memory/stats.hpp>

#include "core/adaptive_mutex.hpp"
#include "core/assert.hpp"
#include "memory/arenas/chunk_store.hpp"
#include "memory/blocks/heap_block.hpp"
#include "memory/oom/transfers.hpp"
#include "memory/policy/config.hpp"
#include "memory/policy/size_policy.hpp"
#include "memory/stats/counters.hpp"
#include "memory/stats/stats_delta.hpp"

namespace gantry::memory {

using HeapLock = std::unique_lock<AdaptiveMutex>;

/// The lock of a heap, and the memory and the counters behind it. The lock guards everything but
/// `chunks`, which has its own; see Note [Parts of a heap].
struct HeapState {
  HeapState(int device_index, const AllocConfig& configuration)
      : device(device_index),
        config(configuration),
        chunks(device_index),
        fraction(configuration.fraction) {}

  const int device;
  const AllocConfig config;
  mutable AdaptiveMutex mutex;
  StatsDelta account;  ///< changes that `stats` does not have yet
  BlockSlab slab;
  ChunkStore chunks;
  Stats stats;
  double fraction;
  std::size_t segment_bytes = 0;  ///< from the driver or requested from it, not in chunks
  std::int64_t segments_made = 0;
  std::int64_t segments_freed = 0;
  std::size_t reclaimed_bytes = 0;  ///< taken from free blocks to be used elsewhere
  Transfers transfers;

  /// A scope without the lock in which this thread moves memory between driver, chunk store and
  /// blocks; see Note [Memory in transition]. Scopes nest: an allocator of the program may call
  /// gantry.
  class ChunkTransfer {
   public:
    ChunkTransfer(HeapState& state, HeapLock& lock)
        : state_(state), lock_(lock), outer_(std::exchange(innermost, this)) {
      GANTRY_ASSERT(lock_.owns_lock() && lock_.mutex() == &state_.mutex,
                    "a transfer begins without the lock of its heap");
      state_.transfers.begin();
      lock_.unlock();
    }
    ~ChunkTransfer() {
      lock_.lock();
      GANTRY_ASSERT(innermost == this, "a transfer ends before one that it encloses");
      innermost = outer_;
      state_.transfers.end();
      state_.transfers.complete();
    }
    ChunkTransfer(const ChunkTransfer&) = delete;
    ChunkTransfer& operator=(const ChunkTransfer&) = delete;

    /// True while the calling thread is in a scope.
    [[nodiscard]] static bool is_in_progress() noexcept { return innermost != nullptr; }
    /// Scopes of `state` that the calling thread is in.
    [[nodiscard]] static int count_of_thread(const HeapState& state) noexcept {
      int count = 0;
      for (const ChunkTransfer* one = innermost; one != nullptr; one = one->outer_) {
        if (&one->state_ == &state) ++count;
      }
      return count;
    }

   private:
    static constinit thread_local ChunkTransfer* innermost;

    HeapState& state_;
    HeapLock& lock_;
    ChunkTransfer* const outer_;
  };

  void count_allocation(const HeapBlock& block, std::size_t requested) noexcept {
    account.count_allocation(is_small(block.bytes), block.bytes, requested);
    if (block.bytes >= config.max_split_bytes) increase(stats.oversize_allocations, 1);
  }
  void count_free(const HeapBlock& block) noexcept {
    account.count_free(is_small(block.bytes), block.bytes,
                       block.requested.load(std::memory_order_relaxed));
    if (block.bytes >= config.max_split_bytes) decrease(stats.oversize_allocations, 1);
  }
  /// Bytes that this process may hold on the device.
  [[nodiscard]] std::size_t limit() const {
    const std::size_t total = device_properties(Device::cuda(device)).total_memory;
    if (fraction >= 1) return total;
    return static_cast<std::size_t>(fraction * static_cast<double>(total));
  }
  /// Bytes that it holds.
  [[nodiscard]] std::size_t reserved() const { return chunks.held() + segment_bytes; }
  /// Releases unmapped chunks of at least `bytes` to the driver, without the lock meanwhile.
  void release_unmapped(HeapLock& lock, std::size_t bytes) {
    const ChunkTransfer transfer(*this, lock);
    chunks.release_unmapped(bytes);
    MappingCallbacks::instance().released.for_each([](ReleaseCallback callback) { callback(); });
  }
};

}  // namespace gantry::memory
