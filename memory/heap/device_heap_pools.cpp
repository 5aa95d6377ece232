#include <algorithm>
#include <exception>

#include "device/peer_access.hpp"
#include "memory/heap/device_heap.hpp"
#include "memory/oom_report.hpp"
#include "memory/source/vmm_arena.hpp"

namespace gantry::memory {

Pool& DeviceHeap::make_pool(const MemPoolOptions& options) {
  const HeapLock lock(state_.mutex);
  for (const auto& pool : pools_) {
    if (!pool->destroyed || pool->serves_captures) continue;
    if (pool->released) {
      poll();
      discard_unused(*pool);
    }
    if (pool->live_blocks != 0 || pool->released) continue;
    pool->destroyed = false;
    pool->options = options;
    return *pool;
  }
  Pool& pool = add_pool(false);
  pool.options = options;
  return pool;
}

Pool& DeviceHeap::add_pool(bool serves_captures) {
  auto pool = std::make_unique<Pool>(serves_captures);
  pool->heap = this;
  pool->id = pools_.size();
  make_arenas(*pool);
  pools_.push_back(std::move(pool));
  return *pools_.back();
}

void DeviceHeap::destroy_pool(Pool& pool) {
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  flush_magazines();
  // Later frees serve all pools.
  pool.options = {.use_on_oom = true, .no_split = pool.options.no_split};
  try {
    poll();
    while (has_incomplete(pool) && wait_for_oldest(lock, &pool)) {
    }
    if (pool.released) discard_unused(pool);
    if (pool.released) restore_physical(lock, pool);
    reclaim(lock, ~std::size_t{0}, &pool);
    release_unmapped(lock, ~std::size_t{0});
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    pool.destroyed = true;
    throw;
  }
  pool.destroyed = true;
}

// True if the host can wait for uses of the pool's free memory.
bool DeviceHeap::has_incomplete(const Pool& pool) noexcept {
  return pool.deferred.oldest().clock != nullptr ||
         std::ranges::any_of(pool.arenas,
                             [](const auto& arena) { return arena->free.incomplete() != nullptr; });
}

std::int64_t DeviceHeap::live_blocks(Pool& pool) {
  const HeapLock lock(state_.mutex);
  ThreadCache::flush_all(*this, nullptr);
  return pool.live_blocks;
}

void DeviceHeap::throw_without_physical() {
  throw InvalidArgument(
      "allocate: expected a pool with physical memory, but got one that released it");
}

bool DeviceHeap::has_physical(const Pool& pool) const {
  const HeapLock lock(state_.mutex);
  return !pool.released;
}

void DeviceHeap::release_physical(Pool& pool) {
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  for (const auto& arena : pool.arenas) arena->check_can_release_physical();
  if (pool.released) return;
  pool.released = true;  // refuses allocations from now on
  flush_magazines();
  lock.unlock();
  try {
    synchronize_device_clocks(state_.device);
    for (const int peer : devices_with_access_to(state_.device)) synchronize_device_clocks(peer);
    lock.lock();
    poll();
    release_arenas(lock, pool);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    try {
      restore_physical(lock, pool);
    } catch (const std::exception&) {  // it stays released; the first error is the cause
    }
    throw;
  }
}

void DeviceHeap::release_arenas(HeapLock& lock, Pool& pool) {
  for (const auto& arena : pool.arenas) arena->release_physical(lock);
}

void DeviceHeap::restore_physical(Pool& pool) {
  const std::lock_guard physical(pool.physical_mutex);
  HeapLock lock(state_.mutex);
  if (pool.released) restore_physical(lock, pool);
}

// All or nothing: on failure the memory is left to others.
void DeviceHeap::restore_physical(HeapLock& lock, Pool& pool) {
  try {
    for (const auto& arena : pool.arenas) {
      while (!arena->restore_physical(lock)) {
        const std::size_t missing = arena->released_bytes();
        flush_magazines();
        poll();
        if (reclaim(lock, missing, nullptr) == 0 && !wait_for_oldest(lock)) {
          OomReport report = oom_report();
          report.requested = signed_bytes(missing);
          lock.unlock();
          throw_oom(report);
        }
      }
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    try {
      release_arenas(lock, pool);
    } catch (const std::exception&) {  // the next restore need not map what stays mapped
    }
    throw;
  }
  pool.released = false;
}

// Free blocks need no memory back. A pool of which nothing else is released is as any other.
void DeviceHeap::discard_unused(Pool& pool) {
  std::size_t released = 0;
  for (const auto& arena : pool.arenas) {
    arena->discard_unused();
    released += arena->released_bytes();
  }
  if (released == 0) pool.released = false;
}

}  // namespace gantry::memory
