#include "device/drivers/background_calls.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include <gantry/core/log.hpp>

namespace gantry {

namespace {

// An exit waits no longer: a call may wait for work that never ends.
constexpr auto kExitTimeout = std::chrono::seconds(5);

pid_t registering_process = 0;

void close_at_exit() {
  if (getpid() != registering_process) return;  // a forked child has none of the threads
  if (background_calls().close(kExitTimeout)) return;
  logging::debug("exit: a background thread is still in a call of the driver");
}

}  // namespace

// Never destroyed: threads ask it until the process ends.
ExitLock& background_calls() noexcept {
  static constinit ExitLock lock;
  return lock;
}

void close_background_calls_at_exit() noexcept {
  static const int kRegistered = [] {
    registering_process = getpid();
    return std::atexit(close_at_exit);
  }();
  if (kRegistered != 0) logging::debug("exit: no handler for calls of background threads");
}

}  // namespace gantry
