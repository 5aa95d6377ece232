// Waits for a condition that nothing announces.
#pragma once

#include <chrono>
#include <thread>

namespace gantry::testing {

/// Polls `condition` until it is true or `timeout` is over; returns its last value. For state of
/// other processes and threads that offer no event. The timeout is the end of a test that fails,
/// not a limit that one may come close to.
template <class Condition>
[[nodiscard]] bool eventually(Condition&& condition,
                              std::chrono::seconds timeout = std::chrono::seconds(60)) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace gantry::testing
