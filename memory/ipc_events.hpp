// Events that tell importers when the exporter's work is done.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

#include <gantry/device/driver.hpp>

namespace gantry::memory {

/// The interprocess events of one device that exports have recorded.
///
/// An exporter cannot know when an importer has opened its event, so events are not destroyed: the
/// last kCapacity exports each keep theirs, and then the oldest is used again. An importer that is
/// later still waits for the newer record, which is too long but never too short.
/// Thread safety: every member may be called from any thread.
class IpcEvents {
 public:
  static constexpr std::size_t kCapacity = 256;

  /// The events of `device`, an index that was checked.
  [[nodiscard]] static IpcEvents& of(int device);

  /// Marks the work submitted to `stream` so far; none if all of it is done.
  [[nodiscard]] std::optional<NativeEventHandle> mark(NativeStream stream);
  /// The event that this process exported as `handle`, nullptr if there is none.
  [[nodiscard]] NativeEvent find(const NativeEventHandle& handle) const;

 private:
  struct Slot {
    NativeEvent event;
    NativeEventHandle handle;
  };

  explicit IpcEvents(int device) : device_(device) {}
  [[nodiscard]] Slot make() const;
  [[nodiscard]] Slot oldest();

  const int device_;
  mutable std::mutex mutex_;
  std::deque<Slot> slots_;  ///< oldest first
};

}  // namespace gantry::memory
