// How blocks of the driver's pool are freed, now or later.
#include <algorithm>
#include <utility>
#include <vector>

#include "memory/async/async_pool.hpp"
#include "memory/counters.hpp"
#include "memory/heap/size_policy.hpp"
#include "streams/event_pool.hpp"

namespace gantry::memory {
namespace {

void wait_for(NativeStream waiting, NativeStream other) {
  const PooledEvent event(other.device);
  driver().record_event(event.get(), other);
  driver().wait_event(waiting, event.get());
}

// True for a stream of ours and, at the free, for the caller's per-thread default stream, of which
// no sequence number can be taken.
bool may_wait_for(const AsyncUse& use, bool now) {
  if (use.external == nullptr) return true;
  return now && use.external->is_invalidated() && use.external->may_submit();
}

}  // namespace

AsyncUse AsyncUse::of(const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  return {.stream = stream.native(), .external = clock.is_external() ? &clock : nullptr};
}

void AsyncPool::deallocate(AsyncBlock& block) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(block.live, false)) return;
    const std::size_t size = block.bytes;
    const bool small = is_small(size);
    decrease(stats_.allocation, small, 1);
    decrease(stats_.allocated_bytes, small, size);
    decrease(stats_.requested_bytes, small, block.requested);
  }
  note_captures(block);
  const bool is_shared = block.uses.size() > 1;
  const bool is_captured = !block.captures.empty();
  if (!is_shared && !is_captured && free_on_own_stream(block)) return;
  // Now, while the streams live.
  for (AsyncUse& use : block.uses) {
    if (use.external != nullptr) use.sequence = use.external->record_sequence();
  }
  if (is_shared && !is_captured && try_to_free(block, true)) return;
  const std::lock_guard lock(mutex_);
  block.next = std::exchange(deferred_, &block);
}

// See Note [Frees in captures].
void AsyncPool::note_captures(AsyncBlock& block) noexcept {
  for (const AsyncUse& use : block.uses) {
    try {
      if (use.external != nullptr && !use.external->may_submit()) continue;
      if (!is_captured(use.stream)) continue;
      if (auto capture = capture_of(use.stream)) block.captures.push_back(std::move(capture));
    } catch (...) {
      // The driver cannot tell; it will not take the free of a captured stream either.
    }
  }
}

bool AsyncPool::free_on_own_stream(AsyncBlock& block) noexcept {
  const AsyncUse& own = block.uses.front();
  try {
    if (own.external != nullptr && !own.external->may_submit()) return false;
    if (driver().is_capturing(own.stream)) return false;
    driver().deallocate_async(block.data, own.stream);
  } catch (...) {
    return false;
  }
  note_freed(block);
  return true;
}

void AsyncPool::free_in_order(AsyncBlock& block, bool now) {
  std::erase_if(block.captures, [](const auto& capture) { return !capture->is_needed(); });
  if (!block.captures.empty()) {
    throw CaptureError("a block is freed when the graphs that use it are gone");
  }
  for (const AsyncUse& use : block.uses) {
    if (may_wait_for(use, now) && driver().is_capturing(use.stream)) {
      throw CaptureError("a block is freed when the capture of its streams is over");
    }
  }
  const AsyncUse& own = block.uses.front();
  const bool is_plain = block.uses.size() == 1 && own.external == nullptr;
  const NativeStream stream = is_plain ? own.stream : free_stream();
  for (const AsyncUse& use : block.uses) {
    if (!may_wait_for(use, now) && !use.external->make_wait_if_covered(stream, use.sequence)) {
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
  const std::size_t size = block.bytes;
  {
    const std::lock_guard lock(mutex_);
    decrease(stats_.active, is_small(size), 1);
    decrease(stats_.active_bytes, is_small(size), size);
    complete_transfer();
  }
  recycle(block);
}

void AsyncPool::retry_deferred() noexcept {
  AsyncBlock* list = nullptr;
  {
    const std::lock_guard lock(mutex_);
    list = std::exchange(deferred_, nullptr);
    if (list == nullptr) return;
    ++pending_transfers_;
  }
  while (list != nullptr) {
    AsyncBlock& block = *list;
    list = std::exchange(block.next, nullptr);
    if (try_to_free(block, false)) continue;
    const std::lock_guard lock(mutex_);
    block.next = std::exchange(deferred_, &block);
  }
  const std::lock_guard lock(mutex_);
  --pending_transfers_;
  transfer_completed_.notify_all();
}

bool AsyncPool::wait_for_deferred() {
  std::vector<int> devices;
  {
    const std::lock_guard lock(mutex_);
    for (const AsyncBlock* block = deferred_; block != nullptr; block = block->next) {
      for (const AsyncUse& use : block->uses) {
        if (use.external == nullptr || use.sequence <= use.external->completed()) continue;
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
  const AsyncUse made = AsyncUse::of(stream);
  const std::lock_guard lock(mutex_);
  if (!block.live) return;
  // A handle that came back names another stream.
  if (std::ranges::none_of(block.uses, [&](const AsyncUse& use) {
        return use.stream == made.stream && use.external == made.external;
      })) {
    block.uses.push_back(made);
  }
}

}  // namespace gantry::memory
