// Recovery of a heap that has no free block for a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <gantry/core/error.hpp>

#include "memory/arenas/heap_state.hpp"
#include "memory/heap/heap_frees.hpp"
#include "memory/heap/heap_stats.hpp"
#include "memory/heap/pool_set.hpp"
#include "memory/oom/memory_pressure.hpp"
#include "memory/oom/reserve_bound.hpp"
#include "memory/oom/transfers.hpp"

namespace gantry::memory {

/// The steps by which a heap finds memory for a request that its free blocks do not serve; see Note
/// [Out-of-memory recovery].
///
/// Call every member with the heap's lock held. It is released while the driver works, and while
/// the host waits.
class OomRecovery {
 public:
  OomRecovery(HeapState& state, PoolSet& pools, HeapStats& stats, HeapFrees& frees)
      : state_(state), pools_(pools), stats_(stats), frees_(frees) {}
  OomRecovery(const OomRecovery&) = delete;
  OomRecovery& operator=(const OomRecovery&) = delete;

  /// A block for the request's stream, `in_transition`: of the arena, or at last of its pool's
  /// other one. The request is a copy, so that the caller's fast path keeps its own in registers.
  /// Throws: OutOfMemoryError; CudaError.
  [[nodiscard]] HeapBlock& allocate(HeapLock& lock, Arena& arena, BlockRequest request);
  /// Counts an out-of-memory event of `bytes` for `stream` (0: none) and throws its
  /// OutOfMemoryError, without the lock.
  [[noreturn]] void report(HeapLock& lock, std::size_t bytes, std::uint64_t stream,
                           std::string_view purpose);
  /// Likewise for released memory that cannot be restored, which is no out-of-memory event.
  [[noreturn]] void report_unrestored(HeapLock& lock, std::size_t bytes);
  /// Sets the clock, nullptr for that of the system. It must outlive every request.
  void set_clock(RecoveryClock* clock) noexcept { clock_ = clock; }
  /// Sets the allocator that has the rest of the device's memory; nullptr: none. It must outlive
  /// every request.
  void set_neighbour(MemoryNeighbour* neighbour) noexcept { neighbour_ = neighbour; }
  /// Forgets how much memory was in use.
  void reset_bound() noexcept { bound_.reset(); }

 private:
  // One run of the steps; nullptr if they find nothing.
  [[nodiscard]] HeapBlock* search(HeapLock& lock, Arena& arena, const BlockRequest& request);
  // True if a function of the program freed memory, or wants another attempt.
  [[nodiscard]] bool call_program(HeapLock& lock, OomHandlerCalls& calls, std::size_t bytes);
  [[nodiscard]] HeapBlock* take_with_wait(Arena& arena, const BlockRequest& request);
  [[nodiscard]] HeapBlock* keep_bound(HeapLock& lock, Arena& arena, const BlockRequest& request);
  [[nodiscard]] HeapBlock* grow_from_free(HeapLock& lock, Arena& arena, const BlockRequest& request,
                                          ChunkSource source, Growth& growth);
  [[nodiscard]] HeapBlock* remap(HeapLock& lock, Arena& arena, const BlockRequest& request);
  [[nodiscard]] HeapBlock* await_completion(HeapLock& lock, Arena& arena,
                                            const BlockRequest& request);
  [[nodiscard]] static HeapBlock* grow(HeapLock& lock, Arena& arena, const BlockRequest& request);
  [[nodiscard]] HeapBlock* reclaim_and_grow(HeapLock& lock, Arena& arena,
                                            const BlockRequest& request);
  [[nodiscard]] HeapBlock* take_from_segments(HeapLock& lock, Arena& arena,
                                              const BlockRequest& request);
  [[nodiscard]] HeapBlock* wait_and_take(HeapLock& lock, Arena& arena, const BlockRequest& request);
  [[nodiscard]] bool wait_for_neighbour(HeapLock& lock, HostWait wait) const;
  void collect_garbage(HeapLock& lock);
  [[noreturn]] void throw_oom(OomReport report, std::string_view purpose) const;

  HeapState& state_;
  PoolSet& pools_;
  HeapStats& stats_;
  HeapFrees& frees_;
  RecoveryClock* clock_ = nullptr;
  MemoryNeighbour* neighbour_ = nullptr;
  ReserveBound bound_;
};

}  // namespace gantry::memory
