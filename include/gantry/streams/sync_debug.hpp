#pragma once

#include <gantry/core/export.hpp>

namespace gantry {

/// Reaction to a call that blocks the host until a device has completed work.
/// @since 0.3
enum class SyncDebug {
  off,   ///< nothing
  warn,  ///< a logged warning, once per call site of the program
  error  ///< throws Error before the call blocks
};

/// Sets the mode of the whole process. The initial mode is that of GANTRY_SYNC_DEBUG, else off.
///
/// These calls count: synchronization with a device, a stream or an event; Work::synchronize();
/// copies from or to pageable host memory, which item(), cpu(), to_vector() and printing make;
/// collective operations over the transport "host"; frees of memory to the driver. Queries do not
/// count.
///
/// Mode `error` only warns of frees to the driver, because a refused free would leak. The same
/// holds for waits in which gantry sets up or leaves a communicator, or reclaims memory. While the
/// mode is off, calls cost nothing more.
/// Thread safety: any thread; calls that other threads are in may still follow the old mode.
/// Throws: InvalidArgument for a value that is no mode.
/// @since 0.3
GANTRY_API void set_sync_debug_mode(SyncDebug mode);
/// The mode of the process.
/// @since 0.3
[[nodiscard]] GANTRY_API SyncDebug sync_debug_mode();

/// A scope that sets the mode of the whole process. Its end restores the previous mode.
/// @code
/// const SyncDebugGuard guard(SyncDebug::warn);
/// (void)ones({4}, "cuda:0").cpu();  // a warning: the host waits
/// @endcode
/// @since 0.3
class GANTRY_API SyncDebugGuard {
 public:
  /// As set_sync_debug_mode().
  explicit SyncDebugGuard(SyncDebug mode);
  ~SyncDebugGuard();
  SyncDebugGuard(const SyncDebugGuard&) = delete;
  SyncDebugGuard& operator=(const SyncDebugGuard&) = delete;

 private:
  SyncDebug before_;
};

}  // namespace gantry
