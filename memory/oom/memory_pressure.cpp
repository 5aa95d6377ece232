#include "memory/oom/memory_pressure.hpp"

#include "memory/oom/transfers.hpp"
#include "memory/policy/active_pool.hpp"

namespace gantry::memory {

constinit thread_local Transfers::Own Transfers::own_;

MemoryPressureCallbacks& MemoryPressureCallbacks::instance() {
  static auto& callbacks = *new MemoryPressureCallbacks();
  return callbacks;
}

bool MemoryPressureCallbacks::run(int device, Waiting waiting) noexcept {
  static thread_local constinit bool is_running = false;
  if (is_running) return false;
  is_running = true;
  bool any = false;
  {
    const NoActivePool scope;
    const std::lock_guard lock(mutex_);
    all_.for_each([&](MemoryPressureCallback call) { any = call(device, waiting) || any; });
  }
  is_running = false;
  return any;
}

}  // namespace gantry::memory
