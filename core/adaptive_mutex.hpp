// A mutex that is held for a short time, and scopes without a lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/cpu_pause.hpp"

namespace gantry {

/// A mutex for sections of some tens of nanoseconds. A lock and an unlock are one atomic operation
/// each, inlined. A thread that finds it taken spins for some tens of microseconds, about the cost
/// of a sleep, and then sleeps.
/// Meets the standard's requirements of Lockable.
class AdaptiveMutex {
 public:
  AdaptiveMutex() = default;
  AdaptiveMutex(const AdaptiveMutex&) = delete;
  AdaptiveMutex& operator=(const AdaptiveMutex&) = delete;

  void lock() noexcept {
    if (!try_lock()) [[unlikely]] {
      wait();
    }
  }
  [[nodiscard]] bool try_lock() noexcept {
    std::uint32_t expected = kFree;
    return state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void unlock() noexcept {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]] {
      state_.notify_one();
    }
  }

 private:
  static constexpr std::uint32_t kFree = 0;
  static constexpr std::uint32_t kTaken = 1;
  static constexpr std::uint32_t kAwaited = 2;  ///< taken, and threads may sleep

  [[gnu::noinline, gnu::cold]] void wait() noexcept {
    // The pauses grow, so that few threads ask for the lock's cache line at a time, and a thread
    // that has the line may lock several times before it has to give it away.
    constexpr int kPauses = 1024;
    constexpr int kLongestWait = 64;
    for (int waited = 0, pauses = 1; waited < kPauses;) {
      for (int i = 0; i < pauses; ++i) cpu_pause();
      if (state_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
      waited += pauses;
      pauses = std::min(2 * pauses, kLongestWait);
    }
    // A thread that slept does not know whether others still sleep, so the lock stays awaited.
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      state_.wait(kAwaited, std::memory_order_relaxed);
    }
  }

  std::atomic<std::uint32_t> state_{kFree};
};

/// A scope in which the caller does not hold its lock.
template <class Lock>
class Unlocked {
 public:
  explicit Unlocked(Lock& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Lock& lock_;
};

}  // namespace gantry
