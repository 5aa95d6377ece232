#include "streams/exported_events.hpp"

#include <deque>
#include <mutex>

namespace gantry {

namespace {

struct Kept {
  std::mutex mutex;
  std::deque<NativeEvent> events;  // oldest first

  // With the mutex held.
  bool destroy_oldest() {
    if (events.empty() || !driver().event_reached(events.front())) return false;
    driver().destroy_event(events.front());
    events.pop_front();
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
    if (all.events.size() > kKept) (void)all.destroy_oldest();
  } catch (...) {
    // Without memory for the list, or a driver, the event stays until the process ends.
  }
}

bool ExportedEvents::give_up_oldest() {
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  return all.destroy_oldest();
}

}  // namespace gantry
