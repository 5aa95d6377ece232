#include "memory/heap/pool_memory.hpp"

#include <algorithm>
#include <exception>
#include <memory>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "device/peer_access.hpp"
#include "memory/heap/thread_cache.hpp"
#include "memory/policy/active_pool.hpp"

namespace gantry::memory {

void PoolMemory::destroy(Pool& pool) {
  const NoActivePool scope;  // for the allocator of the program
  const std::shared_ptr<Allocator> source = pool.options.allocator;  // dies without the locks
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  ThreadCache::flush_blocks(state_);
  // Later frees serve all pools.
  pool.options = {.use_on_oom = true, .no_split = pool.options.no_split};
  try {
    frees_.poll();
    while (pool.has_incomplete() && frees_.wait_for_oldest(lock, &pool)) {
    }
    if (pool.released) pool.discard_unused();
    if (pool.released) restore(lock, pool);
    pools_.reclaim(lock, ~std::size_t{0}, &pool);
    state_.release_unmapped(lock, ~std::size_t{0});
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    pool.saved.clear();
    pool.destroyed = true;
    throw;
  }
  pool.saved.clear();
  pool.destroyed = true;
}

void PoolMemory::release(Pool& pool, PoolBackup backup) {
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  for (const auto& arena : pool.arenas) arena->check_can_release_physical();
  if (pool.released) return;
  if (!may_synchronize_devices()) {
    throw CaptureError(
        "MemPool::release_physical: expected no stream that is being captured, but got one: the "
        "wait for the device would invalidate the capture; end the capture first",
        Device::cuda(state_.device).str());
  }
  pool.released = true;  // refuses allocations from now on
  ThreadCache::flush_blocks(state_);
  try {
    {
      const Unlocked unlocked(lock);
      synchronize_device_clocks(state_.device);
      for (const int peer : devices_with_access_to(state_.device)) synchronize_device_clocks(peer);
    }
    frees_.poll();
    if (backup == PoolBackup::host) pool.saved.save(lock, pool);
    release_arenas(lock, pool);
  } catch (...) {
    try {
      restore(lock, pool);
    } catch (const std::exception&) {  // it stays released; the first error is the cause
    }
    throw;
  }
}

void PoolMemory::release_arenas(HeapLock& lock, Pool& pool) {
  for (const auto& arena : pool.arenas) arena->release_physical(lock);
}

void PoolMemory::restore(Pool& pool) {
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  if (pool.released) restore(lock, pool);
}

// All or nothing: on failure the memory is left to others.
void PoolMemory::restore(HeapLock& lock, Pool& pool) {
  try {
    for (const auto& arena : pool.arenas) {
      while (!arena->restore_physical(lock)) {
        const std::size_t missing = arena->released_bytes();
        ThreadCache::flush_blocks(state_);
        frees_.poll();
        if (pools_.reclaim(lock, missing) == 0 && !frees_.wait_for_oldest(lock)) {
          recovery_.report_unrestored(lock, missing);
        }
      }
    }
    pool.saved.restore(lock, pool);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    try {
      release_arenas(lock, pool);
    } catch (const std::exception&) {  // the next restore need not map what stays mapped
    }
    throw;
  }
  GANTRY_ASSERT(std::ranges::all_of(pool.arenas,
                                    [](const auto& arena) { return arena->released_bytes() == 0; }),
                "a pool is restored that lacks some of its memory");
  pool.saved.clear();
  pool.released = false;
}

}  // namespace gantry::memory
