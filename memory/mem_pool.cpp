#include <gantry/memory/mem_pool.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "core/thread_end.hpp"
#include "device/checked_device_index.hpp"
#include "device/platform/platform.hpp"
#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "memory/policy/active_pool.hpp"

namespace gantry::memory {
namespace {

using ActivePools = std::vector<Pool*>;

// nullptr in threads that never used a guard; deleted with the thread.
thread_local ActivePools* active_pools [[gnu::tls_model("initial-exec")]] = nullptr;

// Replaces the active pool and returns the previous one. Throws: std::bad_alloc.
Pool* exchange_active_pool(int device, Pool* pool) {
  if (active_pools == nullptr) {
    active_pools = new ActivePools(static_cast<std::size_t>(table_size()));
    at_thread_end([]() noexcept { delete std::exchange(active_pools, nullptr); });
  }
  if (ThreadCache* cache = ThreadCache::find_current()) cache->forget_route();
  return std::exchange((*active_pools)[static_cast<std::size_t>(device)], pool);
}

}  // namespace

Pool* active_pool(int device) noexcept {
  return active_pools == nullptr ? nullptr : (*active_pools)[static_cast<std::size_t>(device)];
}

NoActivePool::NoActivePool() noexcept : before_(std::exchange(active_pools, nullptr)) {
  if (before_ == nullptr) return;
  if (ThreadCache* cache = ThreadCache::find_current()) cache->forget_route();
}

NoActivePool::~NoActivePool() {
  if (before_ == nullptr) return;
  delete std::exchange(active_pools, before_);
  if (ThreadCache* cache = ThreadCache::find_current()) cache->forget_route();
}

MemPool::MemPool(Device device, MemPoolOptions options) {
  const int index = checked_device_index(device, "MemPool");
  auto* allocator = dynamic_cast<HeapAllocator*>(&memory::allocator(Device::cuda(index)));
  if (allocator == nullptr) {
    throw NotSupported("MemPool: expected the caching allocator, but got allocator '" +
                           memory::allocator(Device::cuda(index)).name() + "', which has no pools",
                       Device::cuda(index).str());
  }
  Pool& pool = allocator->make_pool(index, options);
  pool_ = gantry::detail::CheckedPtr(std::unique_ptr<Pool, DestroyPool>(&pool));
}

void MemPool::DestroyPool::operator()(Pool* pool) const noexcept {
  if (in_bad_fork()) return;
  try {
    pool->heap->destroy_pool(*pool);
  } catch (const std::exception& error) {
    logging::warn(std::string("MemPool: failed to destroy a pool: ") + error.what());
  }
}

Buffer MemPool::allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) {
  Pool& pool = pool_.of("MemPool::allocate");
  if (stream.native().device != pool.heap->device()) {
    throw InvalidArgument("MemPool::allocate: expected a stream of " + device().str() +
                          ", but got one of " + stream.device().str());
  }
  return Buffer(heap_allocator().allocate_from(pool, stream, bytes, alignment));
}

std::uint64_t MemPool::id() const { return pool_.of("MemPool::id").id; }

Device MemPool::device() const { return Device::cuda(pool_.of("MemPool::device").heap->device()); }

std::size_t MemPool::use_count() const {
  Pool& pool = pool_.of("MemPool::use_count");
  return static_cast<std::size_t>(pool.heap->live_blocks(pool));
}

void MemPool::release_physical(const ReleaseOptions& options) {
  Pool& pool = pool_.of("MemPool::release_physical");
  pool.heap->release_physical(pool, options.backup);
}

void MemPool::restore_physical() {
  Pool& pool = pool_.of("MemPool::restore_physical");
  pool.heap->restore_physical(pool);
}

bool MemPool::has_physical() const {
  Pool& pool = pool_.of("MemPool::has_physical");
  return pool.heap->has_physical(pool);
}

MemPoolGuard::MemPoolGuard(MemPool& pool)
    : device_(pool.device().index),
      before_(exchange_active_pool(device_, &pool.pool_.of("MemPoolGuard"))) {}

MemPoolGuard::~MemPoolGuard() { exchange_active_pool(device_, before_); }

}  // namespace gantry::memory
