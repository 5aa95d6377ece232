// What two processes share: names of memory and events, and pages of events.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <gantry/device/driver.hpp>

#include "core/process_stamp.hpp"

namespace gantry::sim {

/// A file descriptor of some process, and the file that it must still name.
struct FileName {
  ProcessStamp process;
  std::int32_t descriptor = -1;
  std::uint64_t inode = 0;

  friend bool operator==(const FileName&, const FileName&) = default;
};

/// Content of a NativeMemoryHandle.
struct MemoryName {
  FileName file;
  std::uint64_t bytes = 0;

  friend bool operator==(const MemoryName&, const MemoryName&) = default;
};

[[nodiscard]] FileName name_file(int descriptor);
/// Opens the file of another process; the caller closes the descriptor.
/// Throws: CudaError 400 that says whether the process or only the file is gone.
[[nodiscard]] int open_file(const FileName& file, const std::string& doing, int device);

[[nodiscard]] NativeMemoryHandle encode(const MemoryName& name);
/// Throws: CudaError 1 for bytes that are no handle.
[[nodiscard]] MemoryName decode(const NativeMemoryHandle& handle, const std::string& doing,
                                int device);

/// The state of an interprocess event, in memory that every process with the event maps.
///
/// Thread safety: every member may be called from any thread of any process.
class SharedEvent {
 public:
  /// Throws: CudaError 304.
  SharedEvent();
  /// Opens another process's event. Throws: CudaError 1 or 400.
  SharedEvent(const NativeEventHandle& handle, int device);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  [[nodiscard]] NativeEventHandle handle() const;

  /// Announces a record of this process and returns its ticket, counted from 1.
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
  struct Page;

  void map(int descriptor, const std::string& doing);

  int descriptor_ = -1;
  Page* page_ = nullptr;
};

}  // namespace gantry::sim
