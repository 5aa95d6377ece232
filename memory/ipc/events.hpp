// Events that tell importers when the exporter's work is done.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include <gantry/device/driver.hpp>

namespace gantry::memory {

/// The interprocess events of one device that exports have recorded.
///
/// An exporter cannot know when an importer has opened its event, so events are not destroyed. Each
/// stream has its own; once it has kKept of them, the oldest is used again if it is reached. An
/// importer that is later still waits for the newer record, which is too long but never too short.
/// The host waits only where the driver has no room for a stream's first event.
/// Thread safety: every member may be called from any thread.
class IpcEvents {
 public:
  static constexpr std::size_t kKept = 64;
  /// Of all devices. Above this, or if the driver makes no more (it has room for 4,096 of a
  /// process), a stream records its newest event once more instead of a new one.
  static constexpr std::size_t kMost = 1024;

  /// The events of `device`, an index that was checked.
  [[nodiscard]] static IpcEvents& of(int device);

  /// Marks the work submitted to `stream` so far; none if all of it is done.
  [[nodiscard]] std::optional<NativeEventHandle> mark(NativeStream stream);
  /// An event that this process recorded along with the one that it exported as `handle`, nullptr
  /// if there is none.
  [[nodiscard]] NativeEvent find(const NativeEventHandle& handle) const;

 private:
  // What importers in this process wait for is an ordinary event: streams of other devices cannot
  // wait for an interprocess one without the help of a stream of its device, and to make a stream
  // may wait for that device.
  struct Slot {
    NativeEvent event = nullptr;
    NativeEvent local = nullptr;
    NativeEventHandle handle = {};
  };
  using Slots = std::deque<Slot>;  ///< oldest first

  explicit IpcEvents(int device) : device_(device) {}
  [[nodiscard]] Slot make() const;
  [[nodiscard]] std::optional<Slot> make_if_possible(const Slots& slots) const;
  [[nodiscard]] std::optional<Slot> take_reached(Slots& slots) const;

  const int device_;
  mutable std::mutex mutex_;
  /// By Driver::stream_identity: all threads' default streams have one handle, and an event that
  /// another stream records once more would be reached too soon.
  std::map<std::uint64_t, Slots> streams_;
  inline static std::atomic<std::size_t> count_ = 0;
};

}  // namespace gantry::memory
