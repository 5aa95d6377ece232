// Driver calls of background threads.
#pragma once

#include "core/processes/exit_lock.hpp"

namespace gantry {

/// The lock of the driver: Note [Background threads at exit]. A background thread that does not get
/// it makes no call, and returns.
[[nodiscard]] ExitLock& background_calls() noexcept;

/// Registers the exit handler that closes the lock, once. Drivers call it when the first device is
/// in use: handlers run in the opposite order of their registration, so CUDA ends behind this one,
/// and static objects that the program makes later still find the threads.
void close_background_calls_at_exit() noexcept;

}  // namespace gantry
