#include "streams/event_pool.hpp"

#include <algorithm>

#include "core/assert.hpp"
#include "streams/per_device.hpp"

namespace gantry {

EventPool& EventPool::of(int device) {
  static auto& pools = *new PerDevice<EventPool>();
  return pools.get(device, [](int index) { return new EventPool(index); });
}

NativeEvent EventPool::acquire() {
  {
    const std::lock_guard lock(mutex_);
    GANTRY_ASSERT(cached_.size() <= created_, "a pool has more events than it created");
    if (!cached_.empty()) {
      NativeEvent event = cached_.back();
      cached_.pop_back();
      return event;
    }
    // Room for every event that is out, so that release() never allocates.
    if (cached_.capacity() <= created_) cached_.reserve(std::max<std::size_t>(32, 2 * created_));
    ++created_;
  }
  try {
    return driver().create_event(device_, {});
  } catch (...) {
    const std::lock_guard lock(mutex_);
    --created_;
    throw;
  }
}

void EventPool::release(NativeEvent event) noexcept {
  const std::lock_guard lock(mutex_);
  GANTRY_ASSERT(event != nullptr, "a pool gets a null event");
  GANTRY_ASSERT(cached_.size() < created_, "a pool gets an event that it did not create");
  GANTRY_ASSERT(cached_.size() < cached_.capacity(), "a pool has no room for an event of its own");
  cached_.push_back(event);
}

std::size_t EventPool::created() const {
  const std::lock_guard lock(mutex_);
  return created_;
}

}  // namespace gantry
