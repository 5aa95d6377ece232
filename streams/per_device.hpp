// One lazily made object per device.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>

#include "device/platform/platform.hpp"

namespace gantry {

/// A table with one T per device, each made at its first use and never destroyed.
///
/// Thread safety: get() may be called from any thread; a hit takes no lock.
template <class T>
class PerDevice {
 public:
  PerDevice()
      : count_(static_cast<std::size_t>(table_size())), slots_(new std::atomic<T*>[count_]()) {}

  /// The object of `device`, an index that was checked; `make(device)` makes it.
  template <class Make>
  [[nodiscard]] T& get(int device, Make&& make) {
    std::atomic<T*>& slot = slots_[static_cast<std::size_t>(device)];
    if (T* made = slot.load(std::memory_order_acquire)) return *made;
    const std::lock_guard lock(mutex_);
    if (T* made = slot.load(std::memory_order_acquire)) return *made;
    T* made = make(device);
    slot.store(made, std::memory_order_release);
    return *made;
  }
  /// The object of `device` if it was made, else nullptr.
  [[nodiscard]] T* find(int device) const {
    return slots_[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
  }
  /// Calls `visit(T&)` for each object that was made.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (int device = 0; device < size(); ++device) {
      if (T* made = find(device)) visit(*made);
    }
  }
  /// Number of devices.
  [[nodiscard]] int size() const { return static_cast<int>(count_); }

 private:
  std::size_t count_;
  std::unique_ptr<std::atomic<T*>[]> slots_;
  std::mutex mutex_;
};

}  // namespace gantry
