#include "streams/exported_events.hpp"

#include <deque>
#include <mutex>

namespace gantry {

void ExportedEvents::keep(NativeEvent event) noexcept {
  static auto& mutex = *new std::mutex();
  static auto& kept = *new std::deque<NativeEvent>();  // oldest first
  try {
    const std::lock_guard lock(mutex);
    kept.push_back(event);
    if (kept.size() <= kKept || !driver().event_reached(kept.front())) return;
    driver().destroy_event(kept.front());
    kept.pop_front();
  } catch (...) {
    // Without memory for the list, or a driver, the event stays until the process ends.
  }
}

}  // namespace gantry
