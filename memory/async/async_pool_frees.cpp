// How blocks of the driver's pool are freed, now or later.
#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "memory/async/async_pool.hpp"
#include "streams/capture.hpp"
#include "streams/event_pool.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {
namespace {

// True for the calling thread's per-thread default stream. No sequence number can be taken of it.
bool is_own_per_thread(const StreamClock& clock) {
  return clock.is_invalidated() && clock.may_submit();
}

}  // namespace

PoolFrees& PoolFrees::of(int device) {
  static auto& frees = *new PerDevice<PoolFrees>();
  return frees.get(device, [](int index) { return new PoolFrees(index); });
}

void AsyncPool::record_stream(HeapBlock& block, const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  const std::lock_guard lock(mutex_);
  if (!block.is(BlockUse::live)) return;
  deferred_.add_use(block, clock, 0);
}

void AsyncPool::set_stream(HeapBlock& block, const Stream& stream) {
  StreamClock& clock = StreamClock::of(stream);
  const std::lock_guard lock(mutex_);
  if (!block.is(BlockUse::live)) return;
  deferred_.add_use(block, clock, 0);
  const StreamClock& former = *block.uses.front().clock;
  if (&former == &clock || (former.may_be_captured() && !former.has_left_capture())) return;
  const auto is_new = [&clock](const StreamUse& use) { return use.clock == &clock; };
  const auto own = std::ranges::find_if(block.uses, is_new);
  block.uses.front() = *own;
  block.uses.erase(own);
}

void AsyncPool::deallocate(HeapBlock& block) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!block.is(BlockUse::live)) return;
    block.change(BlockUse::live, BlockUse::in_transition);
    const bool small = is_small(block.bytes);
    decrease(stats_.allocation, small, 1);
    decrease(stats_.allocated_bytes, small, block.bytes);
    decrease(stats_.requested_bytes, small, block.requested.load(std::memory_order_relaxed));
  }
  note_captures(block);
  const bool is_shared = block.uses.size() > 1;
  const bool is_captured = block.captures != nullptr;
  if (!is_shared && !is_captured && free_on_own_stream(block)) return;
  DeferredFrees::freeze_uses(block);  // while the streams live
  if (is_shared && !is_captured && free_behind_uses(block)) return;
  const std::lock_guard lock(mutex_);
  if (!held_.hold(block)) return enqueue(block);
  block.change(BlockUse::in_transition, BlockUse::pending);
}

// See Note [Frees in captures].
void AsyncPool::note_captures(HeapBlock& block) noexcept {
  for (const StreamUse& use : block.uses) {
    const StreamClock& clock = *use.clock;
    try {
      if (clock.is_external() && !clock.may_submit()) continue;
      if (!is_captured(clock.native())) continue;
      if (auto capture = capture_of(clock.native())) {
        HeldBlocks::add_capture(block, std::move(capture));
      }
    } catch (...) {
      // The driver cannot tell; it will not take the free of a captured stream either.
    }
  }
}

bool AsyncPool::free_on_own_stream(HeapBlock& block) noexcept {
  StreamClock& own = *block.uses.front().clock;
  try {
    if (own.is_external() && !own.may_submit()) return false;
    if (driver().is_capturing(own.native()) || !may_look_at(own.native())) return false;
    driver().deallocate_async(block.data, own.native());
  } catch (...) {
    return false;
  }
  frees_.note(own);
  note_freed(block);
  return true;
}

bool AsyncPool::free_behind_uses(HeapBlock& block) noexcept {
  try {
    const auto can_order = [this](const StreamUse& use) { return order(use); };
    if (!std::ranges::all_of(block.uses, can_order)) return false;
  } catch (...) {
    return false;
  }
  return free_completed(block);
}

bool AsyncPool::free_completed(HeapBlock& block) noexcept {
  try {
    driver().deallocate_async(block.data, frees_.stream());
  } catch (...) {
    return false;
  }
  note_freed(block);
  return true;
}

void AsyncPool::note_freed(HeapBlock& block) noexcept {
  {
    const std::lock_guard lock(mutex_);
    decrease(stats_.active, is_small(block.bytes), 1);
    decrease(stats_.active_bytes, is_small(block.bytes), block.bytes);
    transfers_.complete();
  }
  recycle(block);
}

bool AsyncPool::is_ordered(const StreamUse& use) const {
  return use.sequence <= use.clock->completed() ||
         use.sequence <= frees_.order().get(use.clock->slot());
}

bool AsyncPool::order(const StreamUse& use) {
  if (is_ordered(use)) return true;
  StreamClock& clock = *use.clock;
  const NativeStream waiting = frees_.stream();
  if (clock.is_external() && !is_own_per_thread(clock)) {
    if (!clock.make_wait_if_covered(waiting, use.sequence)) return false;
    frees_.order().raise(clock.slot(), use.sequence);
    return true;
  }
  if (clock.is_captured() || !may_look_at(clock.native())) return false;
  const PooledEvent event(clock.device());
  const auto timestamp = acquire_timestamp();
  clock.record(event.get(), *timestamp);
  // Another thread may have begun a capture meanwhile. With a wait for its event, the pool's stream
  // would take part.
  if (clock.is_captured()) return false;
  driver().wait_event(waiting, event.get());
  if (timestamp->clock != nullptr) frees_.order().raise(clock.slot(), timestamp->sequence);
  return true;
}

void AsyncPool::enqueue(HeapBlock& block) noexcept {
  if (!deferred_.enqueue(block)) block.next_in_bin = std::exchange(completed_, &block);
}

void AsyncPool::free_deferred() noexcept {
  std::vector<StreamUse> uses;
  try {
    const std::lock_guard lock(mutex_);
    if (held_.empty() && deferred_.empty() && completed_ == nullptr) return;
    held_.release([this](HeapBlock& block) { enqueue(block); });
    deferred_.list_last(uses);
  } catch (const std::bad_alloc&) {
    // The uses that are listed do for now.
  }
  for (const StreamUse& use : uses) {
    // A wait for this stream has no number, so no later look would find it.
    if (is_own_per_thread(*use.clock)) continue;
    try {
      static_cast<void>(order(use));
    } catch (...) {
      // It is tried again at the next request.
    }
  }
  HeapBlock* list = nullptr;
  {
    const std::lock_guard lock(mutex_);
    deferred_.promote_completed(
        [this](HeapBlock& block) { block.next_in_bin = std::exchange(completed_, &block); });
    list = std::exchange(completed_, nullptr);
    if (list == nullptr) return;
    transfers_.begin();
  }
  while (list != nullptr) {
    HeapBlock& block = *std::exchange(list, list->next_in_bin);
    if (free_completed(block)) continue;
    const std::lock_guard lock(mutex_);
    block.next_in_bin = std::exchange(completed_, &block);
  }
  const std::lock_guard lock(mutex_);
  transfers_.end();
}

bool AsyncPool::wait_for_deferred() {
  std::vector<StreamUse> uses;
  {
    const std::lock_guard lock(mutex_);
    deferred_.list_last(uses);
  }
  bool any = false;
  for (const StreamUse& use : uses) {
    if (!is_ordered(use) && use.clock->try_wait_for(use.sequence)) any = true;
  }
  free_deferred();
  return any;
}

void AsyncPool::verify() {
  const std::lock_guard lock(mutex_);
  deferred_.verify();
  held_.verify();
  for (const HeapBlock* block = completed_; block != nullptr; block = block->next_in_bin) {
    GANTRY_ASSERT(block->uses.empty(), "a block that no stream uses any more has a use");
  }
  GANTRY_ASSERT(stats_.active_bytes.all.current >= stats_.allocated_bytes.all.current,
                "allocated blocks are not active");
  GANTRY_ASSERT(transfers_.pending() == 0, "a transfer is pending after its call");
  GANTRY_ASSERT(reserved_ == 0, "bytes of a request are reserved after its call");
}

}  // namespace gantry::memory
