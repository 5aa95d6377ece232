#include "memory/heap_mutex.hpp"

#include <thread>

namespace gantry::memory {

constinit thread_local char HeapMutex::here_ = 0;

void HeapMutex::lock_shared() noexcept {
  mutex_.lock();
  if (favourite_.load(std::memory_order_relaxed) != nullptr) {
    revoke();
  } else if (last_ != me()) {
    last_ = me();
    turns_ = 1;
  } else if (++turns_ >= turns_needed_) {
    favourite_.store(me(), std::memory_order_relaxed);
  }
}

void HeapMutex::revoke() noexcept {
  constexpr std::uint64_t kMostTurns = std::uint64_t{1} << 20;
  favourite_.store(nullptr, std::memory_order_relaxed);
  AsymmetricFence::heavy();
  // Its section is short, but it may not be running.
  while (busy_.load(std::memory_order_acquire)) std::this_thread::yield();
  turns_needed_ = turns_needed_ < kMostTurns ? turns_needed_ * 2 : kMostTurns;
  last_ = me();
  turns_ = 1;
}

}  // namespace gantry::memory
