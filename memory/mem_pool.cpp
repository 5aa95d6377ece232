#include <gantry/memory/mem_pool.hpp>

#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/core/log.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "memory/backends.hpp"
#include "memory/heap_allocator.hpp"
#include "streams/require_cuda.hpp"

namespace gantry::memory {

MemPool::MemPool(Device device, MemPoolOptions options) {
  const int index = require_cuda(device, "MemPool");
  auto* allocator = dynamic_cast<HeapAllocator*>(&memory::allocator(Device::cuda(index)));
  if (allocator == nullptr) {
    throw NotSupported("MemPool: the caching allocator was expected, but got allocator '" +
                           memory::allocator(Device::cuda(index)).name() + "', which has no pools",
                       Device::cuda(index).str());
  }
  pool_ = &allocator->heap(index).make_pool(
      {.use_on_oom = options.use_on_oom, .no_split = options.no_split});
}

MemPool::~MemPool() {
  if (pool_ == nullptr || in_bad_fork()) return;
  try {
    pool_->heap->destroy_pool(*pool_);
  } catch (const std::exception& error) {
    logging::warn(std::string("ending a memory pool: ") + error.what());
  }
}

MemPool::MemPool(MemPool&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}

MemPool& MemPool::operator=(MemPool&& other) noexcept {
  MemPool taken(std::move(other));
  std::swap(pool_, taken.pool_);
  return *this;
}

Buffer MemPool::allocate(std::size_t bytes, const Stream& stream) {
  if (stream.native().device != pool_->heap->device()) {
    throw InvalidArgument("MemPool::allocate: a stream of " + device().str() +
                          " was expected, but got one of " + stream.device().str());
  }
  return Buffer(heap_allocator().allocate_from(*pool_, bytes, stream));
}

std::uint64_t MemPool::id() const { return pool_->id; }

Device MemPool::device() const { return Device::cuda(pool_->heap->device()); }

std::size_t MemPool::use_count() const {
  return static_cast<std::size_t>(pool_->heap->live_blocks(*pool_));
}

void MemPool::park() { pool_->heap->park(*pool_); }

void MemPool::unpark() { pool_->heap->unpark(*pool_); }

bool MemPool::is_parked() const { return pool_->heap->is_parked(*pool_); }

MemPoolGuard::MemPoolGuard(MemPool& pool)
    : device_(pool.device().index), before_(exchange_active_pool(device_, pool.pool_)) {}

MemPoolGuard::~MemPoolGuard() { exchange_active_pool(device_, before_); }

}  // namespace gantry::memory
