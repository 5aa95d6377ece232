// The lock of a heap.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "memory/asymmetric_fence.hpp"
#include "memory/spin_mutex.hpp"

namespace gantry::memory {

/// A mutex that costs the thread that uses it alone no atomic operation: two plain stores, where
/// every atomic operation would wait for all stores before it. Meets the standard's requirements of
/// BasicLockable.
///
/// Note [Biased lock]
/// A thread that took the mutex many times with nobody in between becomes its favourite: it
/// announces that it is inside, and looks whether it still is the favourite. Another thread takes
/// the SpinMutex behind, revokes the favour, and waits until the favourite is outside; one of both
/// must see the other's store, which the revoking thread pays for (AsymmetricFence). Each time that
/// happens it takes twice as many turns in a row until there is a favourite again, so that threads
/// that share a heap do so by the SpinMutex. (Kawachiya, Koseki, Onodera: "Lock reservation: Java
/// locks can mostly do without atomic operations", OOPSLA 2002.)
class HeapMutex {
 public:
  HeapMutex() = default;
  HeapMutex(const HeapMutex&) = delete;
  HeapMutex& operator=(const HeapMutex&) = delete;

  void lock() noexcept {
    if (favourite_.load(std::memory_order_relaxed) == me() && enter()) [[likely]] {
      is_favourite_inside_ = true;
    } else {
      lock_shared();
    }
  }
  void unlock() noexcept {
    if (is_favourite_inside_) [[likely]] {
      is_favourite_inside_ = false;
      busy_.store(false, std::memory_order_release);
    } else {
      mutex_.unlock();
    }
  }

 private:
  using Thread = const char*;

  // Different for all threads that live at the same time.
  static Thread me() noexcept { return &here_; }

  // As the favourite; false if it was another thread's turn.
  [[nodiscard]] bool enter() noexcept {
    busy_.store(true, std::memory_order_relaxed);
    fence_.light();
    if (favourite_.load(std::memory_order_relaxed) == me()) [[likely]]
      return true;
    busy_.store(false, std::memory_order_release);
    return false;
  }
  void lock_shared() noexcept;
  void revoke() noexcept;

  static constinit thread_local char here_ [[gnu::tls_model("initial-exec")]];

  std::atomic<Thread> favourite_{nullptr};  // set by itself, taken away by others, both in mutex_
  std::atomic<bool> busy_{false};           // the favourite is inside, or about to look
  bool is_favourite_inside_ = false;        // whoever is inside may look
  const AsymmetricFence fence_;
  SpinMutex mutex_;
  // The last thread that had mutex_, how often in a row, and how often it takes. In mutex_.
  Thread last_ = nullptr;
  std::uint64_t turns_ = 0;
  std::uint64_t turns_needed_ = 1024;
};

using HeapLock = std::unique_lock<HeapMutex>;

}  // namespace gantry::memory
