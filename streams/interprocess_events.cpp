#include "streams/interprocess_events.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>

namespace gantry {

namespace {

struct Retained {
  std::mutex mutex;
  std::deque<NativeEvent> events;  // oldest first

  // The oldest that is reached, of the `count` oldest. With the mutex held.
  bool destroy_oldest(std::size_t count) {
    const auto end = events.begin() + static_cast<std::ptrdiff_t>(count);
    const auto oldest = std::find_if(
        events.begin(), end, [](NativeEvent event) { return driver().event_reached(event); });
    if (oldest == end) return false;
    driver().destroy_event(*oldest);
    events.erase(oldest);
    return true;
  }
};

Retained& retained() {
  static auto& instance = *new Retained();
  return instance;
}

}  // namespace

void InterprocessEvents::retain(NativeEvent event) noexcept {
  try {
    Retained& all = retained();
    const std::lock_guard lock(all.mutex);
    all.events.push_back(event);
    if (all.events.size() > kRetained) (void)all.destroy_oldest(all.events.size() - kRetained);
  } catch (...) {
    // Without memory for the list, or a driver, the event stays until the process ends.
  }
}

bool InterprocessEvents::destroy_oldest() {
  Retained& all = retained();
  const std::lock_guard lock(all.mutex);
  return all.destroy_oldest(all.events.size());
}

}  // namespace gantry
