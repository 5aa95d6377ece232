#include "core/processes/exit_lock.hpp"

#include <thread>

#include "core/assert.hpp"

namespace gantry {

namespace {

constexpr auto kPollPeriod = std::chrono::microseconds(50);

// How often this thread holds locks of this kind: exit() may be called with one.
thread_local int held_by_thread = 0;

}  // namespace

bool ExitLock::enter() noexcept {
  if ((state_.fetch_add(kHolder, std::memory_order_acquire) & kClosed) == 0) {
    ++held_by_thread;
    return true;
  }
  state_.fetch_sub(kHolder, std::memory_order_relaxed);
  return false;
}

void ExitLock::leave() noexcept {
  GANTRY_ASSERT(held_by_thread > 0, "a thread leaves a lock that it does not hold");
  --held_by_thread;
  state_.fetch_sub(kHolder, std::memory_order_release);
}

bool ExitLock::close(std::chrono::milliseconds timeout) noexcept {
  state_.fetch_or(kClosed, std::memory_order_relaxed);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (state_.load(std::memory_order_acquire) > kClosed + kHolder * held_by_thread) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPollPeriod);
  }
  return true;
}

bool ExitLock::is_closed() const noexcept {
  return (state_.load(std::memory_order_relaxed) & kClosed) != 0;
}

}  // namespace gantry
