// Functions that are called when a thread ends.
#pragma once

namespace gantry {

/// Calls `function` when the calling thread ends, in the order of a thread-local object that is
/// made now: after the objects made later. Functions that are added while the thread ends run, too.
/// Such an object would take 16 bytes of every thread: Note [Small thread-local memory].
void at_thread_end(void (*function)() noexcept) noexcept;

}  // namespace gantry
