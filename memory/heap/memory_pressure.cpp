#include "memory/heap/memory_pressure.hpp"

#include <mutex>
#include <vector>

namespace gantry::memory {
namespace {

struct Callbacks {
  std::mutex mutex;
  std::vector<MemoryPressureCallback> all;
};

// Never destroyed: recovery may run while the process exits.
Callbacks& callbacks() {
  static auto& instance = *new Callbacks();
  return instance;
}

}  // namespace

void add_memory_pressure_callback(MemoryPressureCallback callback) {
  const std::lock_guard lock(callbacks().mutex);
  callbacks().all.push_back(callback);
}

bool run_memory_pressure_callbacks(int device) noexcept {
  const std::lock_guard lock(callbacks().mutex);
  bool any = false;
  for (const MemoryPressureCallback callback : callbacks().all) any = callback(device) || any;
  return any;
}

}  // namespace gantry::memory
