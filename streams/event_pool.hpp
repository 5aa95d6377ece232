// Untimed events to borrow, so that no hot path creates one.
#pragma once

#include <mutex>
#include <vector>

#include <gantry/extend/driver.hpp>

namespace gantry {

/// The cache of untimed events of one device.
///
/// An event may be given back while waits for it are still queued: a wait is bound to the record
/// that was there when it was made. Pools live as long as the process.
/// Thread safety: every member may be called from any thread.
class EventPool {
 public:
  /// The pool of `device`, an index that was checked.
  [[nodiscard]] static EventPool& of(int device);

  /// A cached event, or a new one if there is none. Throws: CudaError.
  [[nodiscard]] NativeEvent acquire();
  /// Takes an event of acquire() back.
  void release(NativeEvent event) noexcept;
  /// Number of events that this pool has created.
  [[nodiscard]] std::size_t created() const;

 private:
  explicit EventPool(int device) : device_(device) {}

  const int device_;
  mutable std::mutex mutex_;
  std::size_t created_ = 0;
  std::vector<NativeEvent> cached_;
};

/// An event on loan from its device's pool for a scope.
class PooledEvent {
 public:
  explicit PooledEvent(int device) : pool_(EventPool::of(device)), event_(pool_.acquire()) {}
  ~PooledEvent() {
    if (event_ != nullptr) pool_.release(event_);
  }
  PooledEvent(const PooledEvent&) = delete;
  PooledEvent& operator=(const PooledEvent&) = delete;

  [[nodiscard]] NativeEvent get() const { return event_; }
  /// Leaves the event to the caller, who gives it back to the pool.
  [[nodiscard]] NativeEvent release() {
    NativeEvent event = event_;
    event_ = nullptr;
    return event;
  }

 private:
  EventPool& pool_;
  NativeEvent event_;
};

}  // namespace gantry
