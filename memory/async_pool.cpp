#include "memory/async_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <gantry/device/properties.hpp>

#include "memory/counters.hpp"
#include "memory/oom_report.hpp"
#include "memory/size_policy.hpp"
#include "streams/event_pool.hpp"

namespace gantry::memory {
namespace {

std::size_t share_of(std::size_t total, double fraction) {
  return fraction >= 1 ? total : static_cast<std::size_t>(static_cast<double>(total) * fraction);
}

void wait_for(NativeStream waiting, NativeStream other) {
  const PooledEvent event(other.device);
  driver().record_event(event.get(), other);
  driver().wait_event(waiting, event.get());
}

}  // namespace

AsyncPool::AsyncPool(int device, double fraction)
    : device_(device),
      total_(device_properties(Device::cuda(device)).total_memory),
      limit_(share_of(total_, fraction)) {
  if (driver().supports_memory_pools(device)) return;
  throw NotSupported(
      fmt::format("GANTRY_ALLOC_CONF: backend:async: cuda:{} has no stream-ordered memory pools; "
                  "use backend:vmm or backend:native",
                  device),
      Device::cuda(device).str());
}

AsyncPool::~AsyncPool() {
  if (in_bad_fork()) return;
  retry_deferred();
  try {
    if (free_stream_) driver().destroy_stream(*free_stream_);
  } catch (...) {  // the platform is shutting down; it takes the stream with it
  }
}

AsyncBlock& AsyncPool::take_blank() {
  const std::lock_guard lock(mutex_);
  if (blank_ == nullptr) return blocks_.emplace_back();
  AsyncBlock& block = *blank_;
  blank_ = std::exchange(block.next, nullptr);
  return block;
}

void AsyncPool::give_blank(AsyncBlock& block) noexcept {
  const std::lock_guard lock(mutex_);
  block.data = nullptr;
  block.users.clear();
  block.next = std::exchange(blank_, &block);
}

AsyncBlock& AsyncPool::allocate(std::size_t bytes, NativeStream stream) {
  if (driver().is_capturing(stream)) {
    throw CaptureError(
        fmt::format("allocate: a stream that is not being captured was expected by the backend "
                    "async, but got a captured stream of cuda:{}; graphs need "
                    "GANTRY_ALLOC_CONF=backend:vmm",
                    device_),
        Device::cuda(device_).str());
  }
  AsyncBlock& block = take_blank();
  try {
    block.data = find_memory(bytes, stream);
  } catch (...) {
    give_blank(block);
    throw;
  }
  if (block.data == nullptr) {
    give_blank(block);
    throw_shortage(bytes);
  }
  const std::lock_guard lock(mutex_);
  block.requested = bytes;
  block.stream = stream;
  block.live = true;
  const std::size_t size = block_bytes(bytes);
  const bool small = is_small(size);
  increase(stats_.allocation, small, 1);
  increase(stats_.active, small, 1);
  increase(stats_.allocated_bytes, small, size);
  increase(stats_.active_bytes, small, size);
  increase(stats_.requested_bytes, small, bytes);
  return block;
}

bool AsyncPool::fits_limit(std::size_t bytes) {
  const std::size_t limit = limit_.load(std::memory_order_relaxed);
  if (bytes > limit) return false;
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(stats_.active_bytes.all.current) <= limit - bytes;
}

// nullptr if there is none, after all that could be given back was.
void* AsyncPool::find_memory(std::size_t bytes, NativeStream stream) {
  const std::size_t size = block_bytes(bytes);
  retry_deferred();
  // Past the device's size nothing that is freed helps, and the driver need not see odd numbers.
  if (size > total_ || !fits_limit(size)) return nullptr;
  if (void* data = driver().allocate_async(stream, bytes)) return data;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.num_alloc_retries;
    ++stats_.num_sync_all_streams;
  }
  driver().synchronize_device(device_);
  driver().trim_pool(device_, 0);
  return driver().allocate_async(stream, bytes);
}

void AsyncPool::throw_shortage(std::size_t bytes) {
  MemoryBreakdown breakdown;
  const NativeMemoryInfo info = driver().memory_info(device_);
  breakdown.requested = signed_bytes(block_bytes(bytes));
  breakdown.total = signed_bytes(info.total);
  breakdown.free = signed_bytes(info.free);
  breakdown.reserved = signed_bytes(driver().pool_memory(device_).reserved);
  breakdown.limit = signed_bytes(limit_.load(std::memory_order_relaxed));
  {
    const std::lock_guard lock(mutex_);
    ++stats_.num_ooms;
    breakdown.allocated = stats_.allocated_bytes.all.current;
  }
  throw_out_of_memory(device_, breakdown, false);
}

void AsyncPool::deallocate(AsyncBlock& block) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(block.live, false)) return;
    const std::size_t size = block_bytes(block.requested);
    const bool small = is_small(size);
    decrease(stats_.allocation, small, 1);
    decrease(stats_.allocated_bytes, small, size);
    decrease(stats_.requested_bytes, small, block.requested);
  }
  try {
    free_in_order(block);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    block.next = std::exchange(deferred_, &block);
  }
}

bool AsyncPool::is_captured(const AsyncBlock& block) const {
  return driver().is_capturing(block.stream) ||
         std::any_of(block.users.begin(), block.users.end(),
                     [](const NativeStream& user) { return driver().is_capturing(user); });
}

void AsyncPool::free_in_order(AsyncBlock& block) {
  if (is_captured(block)) {
    throw CaptureError("a block is freed when the capture of its streams is over");
  }
  NativeStream stream = block.stream;
  if (!block.users.empty()) {
    stream = free_stream();
    wait_for(stream, block.stream);
    for (const NativeStream& user : block.users) wait_for(stream, user);
  }
  driver().deallocate_async(block.data, stream);
  const std::size_t size = block_bytes(block.requested);
  {
    const std::lock_guard lock(mutex_);
    decrease(stats_.active, is_small(size), 1);
    decrease(stats_.active_bytes, is_small(size), size);
  }
  give_blank(block);
}

void AsyncPool::retry_deferred() noexcept {
  AsyncBlock* list = nullptr;
  {
    const std::lock_guard lock(mutex_);
    list = std::exchange(deferred_, nullptr);
  }
  while (list != nullptr) {
    AsyncBlock& block = *list;
    list = std::exchange(block.next, nullptr);
    try {
      free_in_order(block);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      block.next = std::exchange(deferred_, &block);
    }
  }
}

NativeStream AsyncPool::free_stream() {
  {
    const std::lock_guard lock(mutex_);
    if (free_stream_) return *free_stream_;
  }
  const NativeStream made = driver().create_stream(device_, driver().priority_range(device_).least);
  {
    const std::lock_guard lock(mutex_);
    if (!free_stream_) return *(free_stream_ = made);
  }
  driver().destroy_stream(made);  // another thread was faster
  return *free_stream_;
}

void AsyncPool::record_stream(AsyncBlock& block, NativeStream stream) {
  const std::lock_guard lock(mutex_);
  if (!block.live || stream == block.stream) return;
  if (std::find(block.users.begin(), block.users.end(), stream) == block.users.end()) {
    block.users.push_back(stream);
  }
}

void AsyncPool::empty_cache() {
  retry_deferred();
  driver().synchronize_device(device_);
  driver().trim_pool(device_, 0);
}

Stats AsyncPool::stats() {
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

void AsyncPool::reset_peak_stats() {
  driver().reset_pool_peaks(device_);
  const std::lock_guard lock(mutex_);
  for (PoolStat Stats::*stat : {&Stats::allocation, &Stats::active, &Stats::allocated_bytes,
                                &Stats::active_bytes, &Stats::requested_bytes}) {
    reset_peak(stats_.*stat);
  }
}

void AsyncPool::set_fraction(double fraction) {
  limit_.store(share_of(total_, fraction), std::memory_order_relaxed);
}

}  // namespace gantry::memory
