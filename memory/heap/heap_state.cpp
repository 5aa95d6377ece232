#include "memory/heap/heap_state.hpp"

#include <algorithm>

#include <gantry/device/properties.hpp>

namespace gantry::memory {
namespace {

void set(Stat& stat, std::size_t value) {
  const auto now = static_cast<std::size_t>(stat.current);
  if (value > now) {
    increase(stat, value - now);
  } else if (value < now) {
    decrease(stat, now - value);
  }
}

}  // namespace

std::size_t HeapState::limit() const {
  const std::size_t total = device_properties(Device::cuda(device)).total_memory;
  if (fraction >= 1) return total;
  return static_cast<std::size_t>(fraction * static_cast<double>(total));
}

void HeapState::refresh_reserved() {
  const std::size_t all = chunks.held() + segment_bytes;
  PoolStat& reserved = stats.reserved_bytes;
  set(reserved.small_pool, small_bytes);
  set(reserved.large_pool, all - std::min(all, small_bytes));
  reserved.all.current = reserved.small_pool.current + reserved.large_pool.current;
  reserved.all.allocated = reserved.small_pool.allocated + reserved.large_pool.allocated;
  reserved.all.freed = reserved.small_pool.freed + reserved.large_pool.freed;
  reserved.all.peak = std::max(reserved.all.peak, reserved.all.current);
}

void HeapState::release_unmapped(HeapLock& lock, std::size_t bytes) {
  const ChunkTransfer transfer(*this);
  lock.unlock();
  chunks.release_unmapped(bytes);
  lock.lock();
  refresh_reserved();
}

}  // namespace gantry::memory
