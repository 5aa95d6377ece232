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

AsyncUse use_of(const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  return {.stream = stream.native(), .foreign = clock.is_external() ? &clock : nullptr};
}

// True for a stream of ours and, at the free, for the caller's per-thread default stream, of which
// no ticket can be taken.
bool may_wait_for(const AsyncUse& use, bool now) {
  if (use.foreign == nullptr) return true;
  return now && use.foreign->is_retired() && use.foreign->may_submit();
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
    settle_deferred();
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
  block.uses.clear();
  block.next = std::exchange(blank_, &block);
}

AsyncBlock& AsyncPool::allocate(std::size_t bytes, const Stream& stream) {
  if (driver().is_capturing(stream.native())) {
    throw CaptureError(
        fmt::format("allocate: a stream that is not being captured was expected by the backend "
                    "async, but got a captured stream of cuda:{}; graphs need "
                    "GANTRY_ALLOC_CONF=backend:vmm",
                    device_),
        Device::cuda(device_).str());
  }
  AsyncBlock& block = take_blank();
  try {
    block.uses.push_back(use_of(stream));
    block.data = find_memory(bytes, stream.native());
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
  block.live = true;
  const std::size_t size = block_bytes(bytes);
  promised_ -= size;
  const bool small = is_small(size);
  increase(stats_.allocation, small, 1);
  increase(stats_.active, small, 1);
  increase(stats_.allocated_bytes, small, size);
  increase(stats_.active_bytes, small, size);
  increase(stats_.requested_bytes, small, bytes);
  return block;
}

bool AsyncPool::promise(std::size_t bytes) {
  const std::size_t limit = limit_.load(std::memory_order_relaxed);
  if (bytes > limit) return false;
  const std::lock_guard lock(mutex_);
  const std::size_t used = static_cast<std::size_t>(stats_.active_bytes.all.current) + promised_;
  if (used > limit - bytes) return false;
  promised_ += bytes;
  return true;
}

void AsyncPool::take_back_promise(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  promised_ -= bytes;
}

// nullptr if there is none, after all that could be given back was; else its size is promised.
void* AsyncPool::find_memory(std::size_t bytes, NativeStream stream) {
  const std::size_t size = block_bytes(bytes);
  retry_deferred();
  // Past the device's size nothing that is freed helps, and the driver need not see odd numbers.
  if (size > total_) return nullptr;
  if (!promise(size) && !(settle_deferred() && promise(size))) return nullptr;
  try {
    if (void* data = ask_driver(bytes, stream)) return data;
  } catch (...) {
    take_back_promise(size);
    throw;
  }
  take_back_promise(size);
  return nullptr;
}

void* AsyncPool::ask_driver(std::size_t bytes, NativeStream stream) {
  if (void* data = driver().allocate_async(stream, bytes)) return data;
  {
    const std::lock_guard lock(mutex_);
    ++stats_.num_alloc_retries;
    ++stats_.num_sync_all_streams;
  }
  settle_deferred();
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
  const bool is_shared = block.uses.size() > 1;
  if (!is_shared && free_on_own_stream(block)) return;
  // Now, while the streams live.
  for (AsyncUse& use : block.uses) {
    if (use.foreign != nullptr) use.ticket = use.foreign->ticket();
  }
  if (is_shared && try_to_free(block, true)) return;
  const std::lock_guard lock(mutex_);
  block.next = std::exchange(deferred_, &block);
}

bool AsyncPool::free_on_own_stream(AsyncBlock& block) noexcept {
  const AsyncUse& own = block.uses.front();
  try {
    if (own.foreign != nullptr && !own.foreign->may_submit()) return false;
    if (driver().is_capturing(own.stream)) return false;
    driver().deallocate_async(block.data, own.stream);
  } catch (...) {
    return false;
  }
  note_freed(block);
  return true;
}

void AsyncPool::free_in_order(AsyncBlock& block, bool now) {
  for (const AsyncUse& use : block.uses) {
    if (may_wait_for(use, now) && driver().is_capturing(use.stream)) {
      throw CaptureError("a block is freed when the capture of its streams is over");
    }
  }
  const AsyncUse& own = block.uses.front();
  const bool is_plain = block.uses.size() == 1 && own.foreign == nullptr;
  const NativeStream stream = is_plain ? own.stream : free_stream();
  for (const AsyncUse& use : block.uses) {
    if (!may_wait_for(use, now) && !use.foreign->order_ticket(stream, use.ticket)) {
      throw Error("a block is freed when its device was synchronized");
    }
  }
  for (const AsyncUse& use : block.uses) {
    if (may_wait_for(use, now) && !is_plain) wait_for(stream, use.stream);
  }
  driver().deallocate_async(block.data, stream);
  note_freed(block);
}

bool AsyncPool::try_to_free(AsyncBlock& block, bool now) noexcept {
  try {
    free_in_order(block, now);
    return true;
  } catch (...) {
    return false;
  }
}

void AsyncPool::note_freed(AsyncBlock& block) noexcept {
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
    if (try_to_free(block, false)) continue;
    const std::lock_guard lock(mutex_);
    block.next = std::exchange(deferred_, &block);
  }
}

bool AsyncPool::settle_deferred() {
  std::vector<int> devices;
  {
    const std::lock_guard lock(mutex_);
    for (const AsyncBlock* block = deferred_; block != nullptr; block = block->next) {
      for (const AsyncUse& use : block->uses) {
        if (use.foreign == nullptr || use.ticket <= use.foreign->completed()) continue;
        if (std::ranges::find(devices, use.stream.device) == devices.end()) {
          devices.push_back(use.stream.device);
        }
      }
    }
  }
  for (const int device : devices) synchronize_device_clocks(device);
  retry_deferred();
  return !devices.empty();
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

void AsyncPool::record_stream(AsyncBlock& block, const Stream& stream) {
  const AsyncUse made = use_of(stream);
  const std::lock_guard lock(mutex_);
  if (!block.live) return;
  // A handle that came back names another stream.
  if (std::ranges::none_of(block.uses, [&](const AsyncUse& use) {
        return use.stream == made.stream && use.foreign == made.foreign;
      })) {
    block.uses.push_back(made);
  }
}

void AsyncPool::empty_cache() {
  retry_deferred();
  settle_deferred();
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
