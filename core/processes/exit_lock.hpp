// Calls of background threads, and the end of the process.
#pragma once

#include <atomic>
#include <chrono>

namespace gantry {

/// A lock that background threads hold during calls, and that the end of the process takes for
/// ever.
///
/// Note [Background threads at exit]
/// exit() runs handlers and destroys static objects while other threads go on. CUDA ends in such a
/// handler. A background thread that calls CUDA at that moment crashes, or crashes the exiting
/// thread. So a background thread calls the driver only while it holds this lock shared. A handler
/// closes the lock before CUDA ends: it waits for the calls in progress, and no later one begins.
///
/// Thread safety: every member may be called from any thread. Shared never blocks, so it may be
/// taken with any other lock held.
class ExitLock {
 public:
  /// Holds the lock shared within a scope; false once the lock is closed.
  class Shared {
   public:
    explicit Shared(ExitLock& lock) noexcept : lock_(lock), holds_(lock.enter()) {}
    ~Shared() {
      if (holds_) lock_.leave();
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;
    [[nodiscard]] explicit operator bool() const noexcept { return holds_; }

   private:
    ExitLock& lock_;
    const bool holds_;
  };

  /// Refuses later holders. Blocks the host until the other threads' present ones have ended.
  /// Returns false if that takes longer than `timeout`.
  bool close(std::chrono::milliseconds timeout) noexcept;
  [[nodiscard]] bool is_closed() const noexcept;

 private:
  [[nodiscard]] bool enter() noexcept;
  void leave() noexcept;

  static constexpr int kClosed = 1;
  static constexpr int kHolder = 2;

  std::atomic<int> state_{0};  ///< kClosed, and kHolder for each holder
};

}  // namespace gantry
