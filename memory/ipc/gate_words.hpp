// Words of page-locked host memory that streams wait for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/driver.hpp>

#include "memory/source/driver_memory.hpp"

namespace gantry::memory {

/// A word, and the value that opens it.
struct GateWord {
  std::uint32_t* word = nullptr;
  std::uint32_t value = 0;

  /// Lets everybody pass who waits for the value. What was done before is seen by them.
  void open() const noexcept { std::atomic_ref(*word).store(value, std::memory_order_release); }
};

/// The words that are not in use. They come a page at a time and are never given back.
///
/// The values of a word only grow, so it can be used again once it was opened, though streams may
/// still be on their way to their wait: the next value opens theirs, too.
/// Thread safety: every member may be called from any thread.
class GateWords {
 public:
  static constexpr std::size_t kPageBytes = 4096;

  /// A word with a value that it has not reached. Throws: OutOfMemoryError, CudaError.
  [[nodiscard]] GateWord take() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) add_page();
    GateWord word = unused_.back();
    unused_.pop_back();
    ++word.value;
    return word;
  }
  /// Gives back a word that was opened, or that nobody waits for.
  void put_back(GateWord word) noexcept {
    const std::lock_guard lock(mutex_);
    unused_.push_back(word);  // has room
  }

 private:
  void add_page() {
    constexpr std::size_t kWords = kPageBytes / sizeof(std::uint32_t);
    unused_.reserve(count_ + kWords);
    void* page = allocate_pinned_from_driver(kPageBytes, "words that streams wait for");
    std::memset(page, 0, kPageBytes);
    count_ += kWords;
    for (std::size_t i = 0; i < kWords; ++i) {
      unused_.push_back({static_cast<std::uint32_t*>(page) + i, 0});
    }
  }

  std::mutex mutex_;
  std::size_t count_ = 0;  ///< of all pages
  std::vector<GateWord> unused_;
};

}  // namespace gantry::memory
