// Others that have memory of a device, for out-of-memory recovery: layers that cache allocations,
// functions of the program, and a second allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/callbacks.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::memory {

class OomFunction;

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

/// The calls of functions of add_oom_handler() for one request.
///
/// A function that wants another search, but has freed nothing, is not called again: the request
/// would never end.
class OomHandlerCalls {
 public:
  OomHandlerCalls(int device, std::size_t bytes) : device_(device), bytes_(bytes) {}

  /// Calls the functions, which may free memory; true if the request should search again. False
  /// inside such a function. `measure` returns a number that rises when memory becomes free. The
  /// caller holds no lock.
  [[nodiscard]] bool run(const std::function<std::int64_t()>& measure) noexcept;

 private:
  const int device_;
  const std::size_t bytes_;
  std::vector<std::shared_ptr<OomFunction>> spent_;
};

/// Another allocator of a heap's device, from which the heap's recovery takes what is free there.
///
/// Thread safety: every member may be called from any thread.
class MemoryNeighbour {
 public:
  MemoryNeighbour() = default;
  virtual ~MemoryNeighbour() = default;
  MemoryNeighbour(const MemoryNeighbour&) = delete;
  MemoryNeighbour& operator=(const MemoryNeighbour&) = delete;

  /// Waits until more of its memory is free, and gives the driver what is. False if there is
  /// nothing for which the host can `wait`. The caller holds no lock. Throws: CudaError.
  [[nodiscard]] virtual bool release_after_wait(HostWait wait) = 0;
};

}  // namespace gantry::memory
