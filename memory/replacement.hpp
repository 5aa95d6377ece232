// What set_allocator puts in the place of the allocator of a device.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include <gantry/memory/allocator.hpp>

namespace gantry::memory {

/// The allocator of a program in the place of a built-in one.
///
/// Reading an empty place costs one load.
/// Thread safety: every member may be called from any thread.
class Replacement {
 public:
  /// Sets the allocator, nullptr for none, and returns the previous one.
  std::shared_ptr<Allocator> exchange(std::shared_ptr<Allocator> allocator) noexcept {
    const std::lock_guard lock(mutex_);
    is_set_.store(allocator != nullptr, std::memory_order_release);
    return std::exchange(allocator_, std::move(allocator));
  }
  /// The allocator; nullptr if there is none.
  [[nodiscard]] std::shared_ptr<Allocator> get() const {
    const std::lock_guard lock(mutex_);
    return allocator_;
  }
  /// False if get() returns nullptr. It takes no lock.
  [[nodiscard]] bool is_set() const noexcept { return is_set_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> is_set_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<Allocator> allocator_;
};

}  // namespace gantry::memory
