// Signals with a handler that arrive at one thread without a pause, as a profiler's do.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <thread>

namespace gantry::testing {

/// Interrupts the system calls of the thread that made it, for as long as it lives.
class SignalStorm {
 public:
  SignalStorm() : target_(pthread_self()) {
    struct sigaction handler {};
    handler.sa_handler = [](int) { count_.fetch_add(1, std::memory_order_relaxed); };
    handler.sa_flags = SA_RESTART;  // which poll() ignores
    EXPECT_EQ(sigaction(SIGUSR2, &handler, &before_), 0);
    count_ = 0;
    sender_ = std::thread([this] {
      while (!over_) pthread_kill(target_, SIGUSR2);
    });
  }
  ~SignalStorm() {
    over_ = true;
    sender_.join();
    sigaction(SIGUSR2, &before_, nullptr);
  }
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;

  /// How many have arrived.
  static long count() { return count_; }

 private:
  static inline std::atomic<long> count_{0};

  pthread_t target_;
  struct sigaction before_ {};
  std::atomic<bool> over_{false};
  std::thread sender_;
};

}  // namespace gantry::testing
