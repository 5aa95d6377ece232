// Callbacks of layers that cache allocations, for out-of-memory recovery.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "memory/policy/active_pool.hpp"

namespace gantry::memory {

/// Whether a callback may wait for devices. Recovery may not: their work may wait for the caller.
enum class Waiting : std::uint8_t { forbidden, allowed };

/// Frees the allocations that a layer caches on `device`, for all threads; false if it frees none.
using MemoryPressureCallback = bool (*)(int device, Waiting waiting) noexcept;

/// The registered callbacks of this process. They run one after the other.
///
/// Thread safety: every member may be called from any thread. The caller holds no lock of this
/// layer, because callbacks free memory.
class MemoryPressureCallbacks {
 public:
  /// Never destroyed: recovery may run while the process exits.
  [[nodiscard]] static MemoryPressureCallbacks& instance() {
    static auto& callbacks = *new MemoryPressureCallbacks();
    return callbacks;
  }

  /// Adds a callback for out-of-memory recovery and empty_cache(). Throws: std::bad_alloc.
  void add(MemoryPressureCallback callback) {
    const std::lock_guard lock(mutex_);
    all_.push_back(callback);
  }
  /// Calls all callbacks; true if any freed memory. Does nothing within a callback, whose own
  /// frees or allocations may be short of memory, too.
  bool run(int device, Waiting waiting) noexcept {
    static thread_local constinit bool is_running = false;
    if (is_running) return false;
    is_running = true;
    bool any = false;
    {
      const NoActivePool scope;
      const std::lock_guard lock(mutex_);
      for (const MemoryPressureCallback callback : all_) any = callback(device, waiting) || any;
    }
    is_running = false;
    return any;
  }

 private:
  std::mutex mutex_;
  std::vector<MemoryPressureCallback> all_;
};

}  // namespace gantry::memory
