// What layers above keep allocated for their next calls, and can do without.
#pragma once

namespace gantry::memory {

/// Frees what its owner keeps on `device`, of all threads; false if that was nothing.
using ShortageHook = bool (*)(int device) noexcept;

/// Has `hook` called from now on when the memory of a device runs short or its cache is emptied, by
/// any thread, without locks of this layer. Throws: std::bad_alloc.
void add_shortage_hook(ShortageHook hook);
/// True if any hook freed something.
bool run_shortage_hooks(int device) noexcept;

}  // namespace gantry::memory
