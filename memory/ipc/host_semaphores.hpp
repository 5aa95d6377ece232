// Semaphores in page-locked host memory that streams wait for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "memory/source/driver_memory.hpp"

namespace gantry::memory {

/// A 32-bit word in host memory, and the value at which waiting streams go on.
struct HostSemaphore {
  std::uint32_t* word = nullptr;
  std::uint32_t value = 0;

  /// Lets every stream go on that waits for the value. Earlier writes of the caller are visible to
  /// the work behind the wait.
  void signal() const noexcept { std::atomic_ref(*word).store(value, std::memory_order_release); }
};

/// The unused semaphores. They are allocated a page at a time and never freed.
///
/// The values of a word only grow. A signalled word is therefore reusable while streams have not
/// yet reached their wait: the next value satisfies that wait, too.
/// Thread safety: every member may be called from any thread.
class HostSemaphorePool {
 public:
  static constexpr std::size_t kPageBytes = 4096;

  /// Returns a semaphore whose value is not reached. Throws: OutOfMemoryError, CudaError.
  [[nodiscard]] HostSemaphore acquire() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) add_page();
    HostSemaphore semaphore = unused_.back();
    unused_.pop_back();
    ++semaphore.value;
    return semaphore;
  }
  /// Recycles a semaphore that was signalled, or that no stream waits for.
  void recycle(HostSemaphore semaphore) noexcept {
    const std::lock_guard lock(mutex_);
    unused_.push_back(semaphore);  // has room
  }

 private:
  void add_page() {
    constexpr std::size_t kWords = kPageBytes / sizeof(std::uint32_t);
    unused_.reserve(count_ + kWords);
    void* page = allocate_pinned_from_driver(kPageBytes, "semaphores that streams wait for");
    std::memset(page, 0, kPageBytes);
    count_ += kWords;
    for (std::size_t i = 0; i < kWords; ++i) {
      unused_.push_back({static_cast<std::uint32_t*>(page) + i, 0});
    }
  }

  std::mutex mutex_;
  std::size_t count_ = 0;  ///< semaphores of all pages
  std::vector<HostSemaphore> unused_;
};

}  // namespace gantry::memory
