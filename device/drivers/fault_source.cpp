#include "device/drivers/fault_source.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace gantry {

namespace {

struct Sources {
  std::atomic<int> count{0};
  std::shared_mutex mutex;
  std::vector<FaultSource*> all;
};

// True while the thread asks sources. A source may call gantry, which would ask them again.
thread_local constinit bool is_asking = false;

class Asking {
 public:
  Asking() { is_asking = true; }
  ~Asking() { is_asking = false; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;
};

// Never destroyed: communicators may outlive static objects.
Sources& sources() {
  static auto* instance = new Sources;
  return *instance;
}

}  // namespace

void add_fault_source(FaultSource& source) {
  const std::lock_guard lock(sources().mutex);
  sources().all.push_back(&source);
  sources().count.fetch_add(1, std::memory_order_release);
}

void remove_fault_source(FaultSource& source) noexcept {
  const std::lock_guard lock(sources().mutex);
  std::erase(sources().all, &source);
  sources().count.store(static_cast<int>(sources().all.size()), std::memory_order_release);
}

void raise_source_faults(int device) {
  if (sources().count.load(std::memory_order_acquire) == 0) [[likely]] {
    return;
  }
  if (is_asking) return;
  const Asking asking;
  const std::shared_lock lock(sources().mutex);
  for (FaultSource* source : sources().all) {
    if (source->fault_device() == device && source->has_fault()) source->raise_fault();
  }
}

bool any_source_fault() noexcept {
  if (sources().count.load(std::memory_order_acquire) == 0) [[likely]] {
    return false;
  }
  if (is_asking) return false;
  const Asking asking;
  const std::shared_lock lock(sources().mutex);
  for (const FaultSource* source : sources().all) {
    if (source->has_fault()) return true;
  }
  return false;
}

}  // namespace gantry
