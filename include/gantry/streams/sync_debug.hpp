#pragma once

#include <gantry/core/export.hpp>

namespace gantry {

/// What happens at a call that blocks the host until a device has done its work.
enum class SyncDebug {
  off,   ///< nothing
  warn,  ///< a line of the log, once for each place of the program
  error  ///< an Error before the call blocks
};

/// Sets the mode of the whole process, off at first or what GANTRY_SYNC_DEBUG says.
///
/// Calls that count: synchronization with a device, a stream or an event; Work::synchronize();
/// copies from or to pageable host memory, which item(), cpu(), to_vector() and printing make;
/// frees of memory to the driver, which are warned about in both modes, because a refused free
/// would leak. Waits that gantry needs itself, to set a communicator up or to reclaim memory, are
/// warned about in both modes, too. Queries do not block. While the mode is off, calls cost nothing
/// more.
/// Thread safety: any thread; calls that other threads are in may still follow the old mode.
/// Throws: InvalidArgument for a value that is no mode.
GANTRY_API void set_sync_debug_mode(SyncDebug mode);
/// The mode of the process.
[[nodiscard]] GANTRY_API SyncDebug sync_debug_mode();

/// A scope with another mode, of the whole process; its end restores the mode before.
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
