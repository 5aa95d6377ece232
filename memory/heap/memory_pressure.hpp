// Callbacks of layers that cache allocations, for out-of-memory recovery.
#pragma once

#include <cstdint>
#include <mutex>

#include "core/callbacks.hpp"

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
  [[nodiscard]] static MemoryPressureCallbacks& instance();

  /// Adds a callback for out-of-memory recovery and empty_cache(). Throws: std::bad_alloc.
  void add(MemoryPressureCallback callback) { all_.add(callback); }
  /// Calls all callbacks; true if any freed memory. Does nothing within a callback, whose own
  /// frees or allocations may be short of memory, too.
  bool run(int device, Waiting waiting) noexcept;

 private:
  std::mutex mutex_;  // held while they run
  Callbacks<MemoryPressureCallback> all_;
};

}  // namespace gantry::memory
