// An event: the name of a place in a stream's work.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_set>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "device/sim/sim_shared_event.hpp"
#include "device/sim/streams/sim_stream.hpp"

namespace gantry::sim {

struct CapturePoint;

/// The last record of an event.
struct EventRecord {
  SimStream* stream = nullptr;  ///< nullptr: no record by this process outside a capture
  std::uint64_t ticket = 0;
  std::uint64_t stamp = 0;                        ///< number of this record, for its time
  std::uint64_t shared_ticket = 0;                ///< of an interprocess event
  std::shared_ptr<const CapturePoint> capture{};  ///< set if recorded in a capture
};

/// An event of one device. Never freed while its driver lives, because tasks in flight stamp it.
struct SimEvent {
  int device = 0;
  NativeEventFlags flags{};
  std::mutex mutex;  ///< guards what follows; taken on host threads only
  EventRecord record;
  std::shared_ptr<SharedEvent> shared;

  /// Number of the last record, and its time: the stamp's low 24 bits over 40 bits of 64 ns units.
  std::atomic<std::uint64_t> current{0};
  std::atomic<std::uint64_t> time{0};
};

/// The events that exist. Thread safety: any host thread.
class EventTable {
 public:
  ~EventTable();
  EventTable() = default;
  EventTable(const EventTable&) = delete;
  EventTable& operator=(const EventTable&) = delete;

  /// As CUDA's driver 580 has: interprocess events of a process.
  static constexpr std::size_t kMostShared = 4096;

  /// Null if there are too many interprocess events.
  [[nodiscard]] SimEvent* create(int device, NativeEventFlags flags,
                                 std::shared_ptr<SharedEvent> shared);
  [[nodiscard]] bool contains(const void* event) const;
  /// False if it is no event.
  bool destroy(SimEvent* event);

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_set<const void*> live_;
  std::vector<std::unique_ptr<SimEvent>> all_;
  std::vector<SimEvent*> unused_;
  std::size_t shared_ = 0;  ///< live ones that are interprocess events
};

}  // namespace gantry::sim
