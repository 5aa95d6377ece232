// Callbacks of layers that cache allocations, for out-of-memory recovery.
#pragma once

namespace gantry::memory {

/// Frees the allocations that a layer caches on `device`, of all threads; false if there are none.
using MemoryPressureCallback = bool (*)(int device) noexcept;

/// Adds a callback for out-of-memory recovery and empty_cache(). Any thread may call it, without
/// locks of this layer. Throws: std::bad_alloc.
void add_memory_pressure_callback(MemoryPressureCallback callback);
/// Calls all callbacks; true if any freed memory.
bool run_memory_pressure_callbacks(int device) noexcept;

}  // namespace gantry::memory
