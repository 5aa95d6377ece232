#include "streams/exported_events.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>

namespace gantry {

namespace {

struct Kept {
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

Kept& kept() {
  static auto& instance = *new Kept();
  return instance;
}

}  // namespace

void ExportedEvents::keep(NativeEvent event) noexcept {
  try {
    Kept& all = kept();
    const std::lock_guard lock(all.mutex);
    all.events.push_back(event);
    if (all.events.size() > kKept) (void)all.destroy_oldest(all.events.size() - kKept);
  } catch (...) {
    // Without memory for the list, or a driver, the event stays until the process ends.
  }
}

bool ExportedEvents::give_up_oldest() {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  return all.destroy_oldest(all.events.size());
}

}  // namespace gantry
