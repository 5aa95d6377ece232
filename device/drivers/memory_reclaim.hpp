// Memory that the process caches, for a driver that is short of it.
#pragma once

namespace gantry {

// Note [Memory of the driver]
// Streams, events, graphs, and kernels at their first launch take memory of the device, which the
// driver allocates by itself. The allocators of this process may cache all memory of the device
// then. So a call of the driver that fails for want of memory asks for the cached memory and is
// repeated: a launch of a kernel once, another call as long as memory is released. Only blocks
// without work can be released. So the release looks at the streams until some have done their
// work, for a limited time. The layer of memory registers the function that releases it. The
// calls that allocate memory for the program do not ask: their callers have their own recovery. A
// thread may make such a call while it holds locks. So the function takes no lock that is held over
// a call of the driver, and a NoReclaim marks the sections in which it would need one of them.

/// Releases memory that the process caches on `device`, or on every device for -1. True if it
/// released some. While it can release nothing yet, it looks at the streams of cached blocks for
/// five seconds at most. It makes no call that waits for a device.
using MemoryReclaimer = bool (*)(int device) noexcept;

/// Sets the function that releases cached memory.
void set_memory_reclaimer(MemoryReclaimer reclaimer) noexcept;

/// For a call of the driver on `device`, -1 if it names none, that found no memory: true if cached
/// memory was released, so that the call is worth another attempt.
[[nodiscard]] bool reclaim_memory(int device) noexcept;

/// A scope in which reclaim_memory() does nothing on this thread.
class NoReclaim {
 public:
  NoReclaim() noexcept;
  ~NoReclaim();
  NoReclaim(const NoReclaim&) = delete;
  NoReclaim& operator=(const NoReclaim&) = delete;
};

}  // namespace gantry
