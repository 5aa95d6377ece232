// The physical memory of pools.
#pragma once

#include "memory/arenas/heap_state.hpp"
#include "memory/heap/heap_frees.hpp"
#include "memory/heap/oom_recovery.hpp"
#include "memory/heap/pool_set.hpp"

namespace gantry::memory {

/// Takes physical memory from whole pools, and restores it.
///
/// Thread safety: every member may be called from any thread, without the heap's lock. Calls for
/// one pool run one after the other: Pool::physical_mutex is taken before the heap's lock.
class PoolMemory {
 public:
  PoolMemory(HeapState& state, PoolSet& pools, HeapFrees& frees, OomRecovery& recovery)
      : state_(state), pools_(pools), frees_(frees), recovery_(recovery) {}
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  /// Destroys a pool: releases its unused memory. Live blocks stay valid.
  void destroy(Pool& pool);
  /// See MemPool::release_physical.
  void release(Pool& pool, PoolBackup backup);
  /// See MemPool::restore_physical.
  void restore(Pool& pool);

 private:
  void restore(HeapLock& lock, Pool& pool);
  static void release_arenas(HeapLock& lock, Pool& pool);
  /// Copies all live blocks of the pool, whose memory no work uses. The heap's lock is released
  /// meanwhile. Throws, with the strong guarantee: OutOfMemoryError, CudaError, std::bad_alloc.
  void save_contents(HeapLock& lock, Pool& pool);
  /// Copies them back to the blocks that are still live and have memory. The copy is kept.
  /// Throws: CudaError, std::bad_alloc.
  void restore_contents(HeapLock& lock, const Pool& pool) const;

  HeapState& state_;
  PoolSet& pools_;
  HeapFrees& frees_;
  OomRecovery& recovery_;
};

}  // namespace gantry::memory
