// Events that mark the end of an exporter's work for its importers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include <gantry/extend/driver.hpp>

namespace gantry::memory {

/// The interprocess events that exports of one device have recorded.
///
/// An exporter does not know when an importer has opened an event, so events are not destroyed.
/// Each stream has events of its own. A stream with kEventsPerStream of them records its oldest one
/// again if it is complete. A late importer then waits for the newer record: longer than necessary,
/// but never too short. The host waits only if a stream has no event and the driver has no room.
/// Thread safety: every member may be called from any thread.
class IpcEvents {
 public:
  static constexpr std::size_t kEventsPerStream = 64;
  /// Limit of all devices; the driver has room for 4,096 of a process. At the limit, or when the
  /// driver creates no more, a stream records its newest event again.
  static constexpr std::size_t kMaxEvents = 1024;

  /// The events of `device`, a checked index.
  [[nodiscard]] static IpcEvents& of(int device);

  /// Records an event behind the work submitted to `stream`; none if that work is complete.
  [[nodiscard]] std::optional<NativeEventHandle> record(NativeStream stream);
  /// Returns the local event that was recorded together with the exported event `handle`; nullptr
  /// if there is none.
  [[nodiscard]] NativeEvent find(const NativeEventHandle& handle) const;

 private:
  // Imports in this process wait for an ordinary event. A stream of another device can wait for an
  // interprocess event only through a stream of the event's device. Creating that stream may
  // wait for the device.
  struct Slot {
    NativeEvent event = nullptr;
    NativeEvent local = nullptr;
    NativeEventHandle handle = {};
  };
  using Slots = std::deque<Slot>;  ///< oldest first

  explicit IpcEvents(int device) : device_(device) {}
  [[nodiscard]] Slot create() const;
  [[nodiscard]] std::optional<Slot> create_if_possible(const Slots& slots) const;
  [[nodiscard]] std::optional<Slot> take_completed(Slots& slots) const;

  const int device_;
  mutable std::mutex mutex_;
  /// By Driver::stream_identity. The default streams of all threads share one handle, and an event
  /// that another stream records again would complete too early.
  std::map<std::uint64_t, Slots> streams_;
  static constinit std::atomic<std::size_t> count_;
};

}  // namespace gantry::memory
