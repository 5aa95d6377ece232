#include "memory/async/pool_frees.hpp"

#include <algorithm>
#include <new>

#include <gantry/core/log.hpp>

#include "core/assert.hpp"
#include "device/idle_stream.hpp"
#include "streams/per_device.hpp"

namespace gantry::memory {

PoolFrees& PoolFrees::of(int device) {
  static auto& frees = *new PerDevice<PoolFrees>();
  return frees.get(device, [](int index) { return new PoolFrees(index); });
}

NativeStream PoolFrees::stream() {
  if (const auto known = made_stream()) return *known;
  const NativeStream made = driver().create_stream(device_, driver().priority_range(device_).least);
  {
    const std::lock_guard lock(mutex_);
    if (!stream_) return *(stream_ = made);
  }
  driver().destroy_stream(made);  // another thread was faster
  return *made_stream();
}

std::optional<NativeStream> PoolFrees::made_stream() const {
  const std::lock_guard lock(mutex_);
  return stream_;
}

void PoolFrees::note(StreamClock& clock) noexcept {
  GANTRY_ASSERT(clock.device() == device_, "a pool notes a free on a stream of another device");
  const std::uint64_t sequence = clock.record_sequence();
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(last_, &clock, &StreamUse::clock);
  if (known != last_.end()) {
    known->sequence = std::max(known->sequence, sequence);
    return;
  }
  try {
    last_.push_back({&clock, sequence});
  } catch (const std::bad_alloc&) {
    logging::debug("a free of the memory pool is not noted: the host is out of memory");
  }
}

std::vector<StreamUse> PoolFrees::pending() {
  const std::lock_guard lock(mutex_);
  std::erase_if(last_, [](const StreamUse& use) { return use.sequence <= use.clock->completed(); });
  return last_;
}

void PoolFrees::look() noexcept {
  try {
    for (const StreamUse& use : pending()) use.clock->poll(use.sequence);
  } catch (const std::bad_alloc&) {
    // What is known stays as it was.
  }
}

bool PoolFrees::has_pending() noexcept {
  try {
    const auto own = made_stream();
    return !pending().empty() || (own && !is_idle(*own));
  } catch (const std::bad_alloc&) {
    return true;
  }
}

bool PoolFrees::wait_for_some(HostWait wait) {
  look();
  for (const StreamUse& use : pending()) {
    if (use.clock->try_wait_for(use.sequence, wait)) return true;
  }
  return wait_for_stream();
}

void PoolFrees::wait_for_all() {
  look();
  for (const StreamUse& use : pending()) {
    static_cast<void>(use.clock->try_wait_for(use.sequence));
  }
  static_cast<void>(wait_for_stream());
}

bool PoolFrees::wait_for_stream() {
  const auto own = made_stream();
  if (!own || is_idle(*own)) return false;
  driver().synchronize_stream(*own);
  return true;
}

}  // namespace gantry::memory
