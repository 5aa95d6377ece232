// Memory that threads have in transition.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "core/adaptive_mutex.hpp"
#include "core/assert.hpp"

namespace gantry::memory {

// Note [Memory in transition]
// Memory can look exhausted for a moment, because another thread has it: on the way between driver,
// caches and blocks, or as a request that counts against the limit before the driver has answered.
// A thread that finds too little memory must not report out of memory then. It waits until another
// thread has completed a transfer, and tries again. The wait has a limit: the other threads may
// wait for the device, and the device may wait for work of this thread.

/// The time by which recovery limits its waits for other threads. Tests put another one in its
/// place.
class RecoveryClock {
 public:
  virtual ~RecoveryClock() = default;
  [[nodiscard]] virtual std::chrono::steady_clock::time_point now() noexcept {
    return std::chrono::steady_clock::now();
  }
  /// Lets other threads run for a moment.
  virtual void pause() noexcept { std::this_thread::sleep_for(std::chrono::microseconds(50)); }
};

/// The transfers of an allocator, in which other threads do not find the memory.
///
/// Not thread-safe: the allocator's lock protects it.
class Transfers {
 public:
  void begin() noexcept { ++pending_; }
  void end() noexcept {
    GANTRY_ASSERT(pending_ > 0, "more transfers end than began");
    --pending_;
  }
  /// To be called when other threads may find memory that they did not find before.
  void complete() noexcept {
    ++completed_;
    if (own_.of == this) ++own_.completed;
  }
  [[nodiscard]] int pending() const noexcept { return pending_; }
  /// To be called before an attempt to find memory. Returns the number for wait().
  [[nodiscard]] std::uint64_t begin_attempt() const noexcept {
    own_ = {this, 0};
    return completed_;
  }
  /// Waits for a transfer of another thread, without the lock meanwhile. True if one was completed
  /// since the attempt that began with `before`. `own`: pending ones of the calling thread.
  template <class Lock>
  [[nodiscard]] bool wait(Lock& lock, std::uint64_t before, int own = 0,
                          RecoveryClock* clock = nullptr) const {
    // A thread may lose its processor within a driver call.
    constexpr auto kTimeout = std::chrono::seconds(5);
    RecoveryClock of_system;
    if (clock == nullptr) clock = &of_system;
    GANTRY_ASSERT(own <= pending_, "a thread has more transfers than its allocator");
    const auto deadline = clock->now() + kTimeout;
    while (!has_passed(before) && pending_ > own && clock->now() < deadline) {
      const Unlocked unlocked(lock);
      clock->pause();
    }
    return has_passed(before);
  }

 private:
  // The transfers that the calling thread completed itself since its attempt began.
  struct Own {
    const Transfers* of = nullptr;
    std::uint64_t completed = 0;
  };
  static constinit thread_local Own own_;

  [[nodiscard]] bool has_passed(std::uint64_t before) const noexcept {
    return completed_ - before != (own_.of == this ? own_.completed : 0);
  }

  int pending_ = 0;
  std::uint64_t completed_ = 0;
};

}  // namespace gantry::memory
