#include <algorithm>
#include <exception>

#include "device/peer_access.hpp"
#include "memory/heap/device_heap.hpp"
#include "memory/oom_report.hpp"
#include "memory/source/vmm_arena.hpp"

namespace gantry::memory {

Pool& DeviceHeap::make_pool(const PoolOptions& options) {
  const HeapLock lock(core_.mutex);
  for (const auto& shell : pools_) {
    if (!shell->abandoned || shell->serves_captures) continue;
    if (shell->parked) {
      poll();
      forget_unused(*shell);
    }
    if (shell->live_blocks != 0 || shell->parked) continue;
    shell->abandoned = false;
    shell->options = options;
    return *shell;
  }
  Pool& pool = add_pool(false);
  pool.options = options;
  return pool;
}

Pool& DeviceHeap::add_pool(bool serves_captures) {
  auto pool = std::make_unique<Pool>(serves_captures);
  pool->heap = this;
  pool->id = pools_.size();
  pool->small = make_arena(*pool, true);
  pool->large = make_arena(*pool, false);
  pools_.push_back(std::move(pool));
  return *pools_.back();
}

void DeviceHeap::destroy_pool(Pool& pool) {
  const std::lock_guard parking(pool.parking);
  HeapLock lock(core_.mutex);
  flush_magazines();
  // What becomes free later is anybody's.
  pool.options = {.use_on_oom = true, .no_split = pool.options.no_split};
  try {
    poll();
    while (pool_waits(pool) && wait_for_oldest(lock, &pool)) {
    }
    if (pool.parked) forget_unused(pool);
    if (pool.parked) unpark(lock, pool);
    harvest(lock, ~std::size_t{0}, &pool);
    release_spare(lock, ~std::size_t{0});
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    pool.abandoned = true;
    throw;
  }
  pool.abandoned = true;
}

bool DeviceHeap::pool_waits(const Pool& pool) const noexcept {
  return !pool.pending.empty() || pool.small->free.unsettled() != nullptr ||
         pool.large->free.unsettled() != nullptr;
}

std::int64_t DeviceHeap::live_blocks(Pool& pool) {
  const HeapLock lock(core_.mutex);
  ThreadCache::visit_all(*this, nullptr);
  return pool.live_blocks;
}

void DeviceHeap::refuse_parked() {
  throw InvalidArgument("allocate: a pool with memory was expected, but got one that is parked");
}

bool DeviceHeap::is_parked(const Pool& pool) const {
  const HeapLock lock(core_.mutex);
  return pool.parked;
}

void DeviceHeap::park(Pool& pool) {
  if (backing_ != HeapBacking::vmm) {
    throw NotSupported(
        "MemPool::park: backend vmm was expected, but got native, whose memory "
        "cannot leave its addresses",
        Device::cuda(core_.device).str());
  }
  const std::lock_guard parking(pool.parking);
  HeapLock lock(core_.mutex);
  if (pool.parked) return;
  if (static_cast<const VmmArena&>(*pool.small).is_pinned() ||
      static_cast<const VmmArena&>(*pool.large).is_pinned()) {
    throw InvalidArgument(
        "MemPool::park: a pool whose blocks no other process shares was "
        "expected, but got one with an exported block",
        Device::cuda(core_.device).str());
  }
  pool.parked = true;  // refuses allocations from now on
  flush_magazines();
  lock.unlock();
  try {
    synchronize_device_clocks(core_.device);
    for (const int peer : devices_with_access_to(core_.device)) synchronize_device_clocks(peer);
    lock.lock();
    poll();
    park_arenas(lock, pool);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    try {
      unpark(lock, pool);
    } catch (const std::exception&) {  // it stays parked; why it was to be unparked is what counts
    }
    throw;
  }
}

void DeviceHeap::park_arenas(HeapLock& lock, Pool& pool) {
  static_cast<VmmArena&>(*pool.large).park(lock);
  static_cast<VmmArena&>(*pool.small).park(lock);
}

void DeviceHeap::unpark(Pool& pool) {
  const std::lock_guard parking(pool.parking);
  HeapLock lock(core_.mutex);
  if (pool.parked) unpark(lock, pool);
}

// What others may have meanwhile, they had better have: on failure nothing stays mapped.
void DeviceHeap::unpark(HeapLock& lock, Pool& pool) {
  try {
    for (Arena* arena : {pool.large.get(), pool.small.get()}) {
      auto& parked = static_cast<VmmArena&>(*arena);
      while (!parked.unpark(lock)) {
        const std::size_t missing = parked.parked_bytes();
        flush_magazines();
        poll();
        if (harvest(lock, missing, nullptr) == 0 && !wait_for_oldest(lock)) {
          MemoryBreakdown told = breakdown();
          told.requested = signed_bytes(missing);
          lock.unlock();
          throw_shortage(told);
        }
      }
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    try {
      park_arenas(lock, pool);
    } catch (const std::exception&) {  // what stays mapped the next unpark() need not map
    }
    throw;
  }
  pool.parked = false;
}

// What is parked behind free blocks is needed by nobody. A pool of which nothing else is parked is
// as any other.
void DeviceHeap::forget_unused(Pool& pool) {
  auto& large = static_cast<VmmArena&>(*pool.large);
  auto& small = static_cast<VmmArena&>(*pool.small);
  large.forget_unused();
  small.forget_unused();
  if (!large.is_parked() && !small.is_parked()) pool.parked = false;
}

}  // namespace gantry::memory
