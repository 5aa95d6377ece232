// Interprocess events of simulated devices.
#pragma once

#include <cstdint>
#include <memory>

#include <gantry/extend/driver.hpp>

namespace gantry::sim {

// Note [Many events in one file]
// An importer opens an exporter's files through /proc, so the exporter keeps a descriptor for each.
// Hence events do not have files of their own: a file has places for many, a process keeps few
// files, and importers map a file once and close its descriptor. A place is used again when its
// event is destroyed. Its tickets go on from where they were, so an importer that still uses the
// old event waits for records of the new one: too long, never too short.
class EventFile;
struct EventPlace;

/// The state of an interprocess event, in memory that every process with the event maps.
///
/// Thread safety: every member may be called from any thread of any process.
class SharedEvent {
 public:
  /// Throws: CudaError 304.
  SharedEvent();
  /// Opens another process's event. Throws: CudaError 1, 304 or 400.
  SharedEvent(const NativeEventHandle& handle, int device);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  [[nodiscard]] NativeEventHandle handle() const;

  /// Announces a record of this process and returns its ticket; tickets grow.
  std::uint64_t begin_record();
  /// The record is reached.
  void complete(std::uint64_t ticket);
  /// Ticket of the last record of any process, 0 if there was none.
  [[nodiscard]] std::uint64_t recorded() const;
  /// True once the record is reached. Never, if the process that made it died before.
  [[nodiscard]] bool is_reached(std::uint64_t ticket) const noexcept;
  /// As is_reached. Throws: CudaError 719 if the process that made it died before.
  [[nodiscard]] bool query(std::uint64_t ticket) const;
  /// Sleeps until the record is reached. Throws as query, within 20 ms of the death.
  void wait(std::uint64_t ticket) const;

 private:
  std::shared_ptr<EventFile> file_;
  EventPlace* place_ = nullptr;
  std::uint64_t base_ = 0;      ///< ticket of the last record of the place's earlier events
  std::uint64_t identity_ = 0;  ///< of this event; other events of the place have others
  bool is_own_ = false;
};

}  // namespace gantry::sim
