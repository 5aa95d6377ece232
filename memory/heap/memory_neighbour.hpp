// Two allocators that share the memory of one device.
#pragma once

#include <cstdint>

#include "streams/stream_clock.hpp"

namespace gantry::memory {

/// What a release of memory for the driver came to.
enum class DriverRelease : std::uint8_t {
  none,      ///< no memory is free
  none_yet,  ///< streams still work with the memory that is free
  some,
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
