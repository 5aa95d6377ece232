// Where the layers report what they submit. Everything costs one load while the sanitizer is off.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <gantry/streams/sanitizer.hpp>
#include <gantry/streams/stream.hpp>

#include "core/observers.hpp"
#include "streams/sanitizer/tracker.hpp"
#include "streams/stream_clock.hpp"

namespace gantry::sanitizer {

/// True while the sanitizer tracks. Hot paths call it before anything else here.
[[nodiscard]] inline bool is_on() noexcept { return has_observer(Observer::sanitizer); }

/// While it lives, the calling thread's operations are not entered: a collective enters its
/// operands as one operation, and its parts are ordered by what other ranks do. Orders still count.
class Suspension {
 public:
  Suspension() noexcept;
  ~Suspension();
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;
  /// True inside a suspension of the calling thread.
  [[nodiscard]] static bool is_active() noexcept;
};

/// While it lives, the calling thread's operations have this name in reports: the program's
/// call, not of the kernels and copies that it consists of.
class OperationName {
 public:
  /// `name` is a string literal.
  explicit OperationName(const char* name) noexcept;
  ~OperationName();
  OperationName(const OperationName&) = delete;
  OperationName& operator=(const OperationName&) = delete;

 private:
  const char* previous_;
};

/// The submission of one operation: made before it, committed after it succeeded.
class Submission {
 public:
  /// Checks the operands and enters them; nothing while the sanitizer is off or suspended.
  /// Throws: RaceError in mode throw_.
  Submission(std::string_view operation, const Stream& stream, std::span<const Use> operands) {
    if (is_on()) [[unlikely]] {
      enter(operation, stream, operands);
    }
  }
  /// The replay of a graph.
  Submission(NativeGraph graph, const Stream& stream);
  /// Withdraws the operands of an operation that failed.
  ~Submission() {
    if (entry_ && !is_committed_) Tracker::instance().cancel(*entry_);
  }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  void commit() noexcept { is_committed_ = true; }

 private:
  void enter(std::string_view operation, const Stream& stream, std::span<const Use> operands);

  std::optional<Entry> entry_;
  bool is_committed_ = false;
};

/// Operations of one queue, such as the collectives of a communicator, run one after the other on
/// any streams. An operation follows before it enters its operands, and leads once it is submitted.
void follow_queue(const void* queue, const Stream& stream);
void lead_queue(const void* queue, const Stream& stream);
void forget_queue(const void* queue) noexcept;

/// An allocator hands out memory. Earlier accesses were another owner's.
void memory_allocated(const void* data, std::size_t bytes) noexcept;
/// A block is freed on `stream`; nullptr: on the host, as page-locked memory, which serves every
/// stream at once. Never throws: a race is a warning in every mode.
void memory_freed(const void* data, std::size_t bytes, const StreamClock* stream) noexcept;
/// record_stream (`until_free`) or record_use of a block.
void memory_recorded(const void* data, const Stream& stream, bool until_free) noexcept;

/// While it lives, accesses of some memory are not checked: what orders them cannot be seen.
class UncheckedMemory {
 public:
  UncheckedMemory(const void* data, std::size_t bytes);
  ~UncheckedMemory();
  UncheckedMemory(const UncheckedMemory&) = delete;
  UncheckedMemory& operator=(const UncheckedMemory&) = delete;

 private:
  const void* data_;
  std::size_t bytes_;
};

}  // namespace gantry::sanitizer
