// The events of gantry::trace while they are recorded.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/text/json.hpp"

namespace gantry::trace {

/// Set by TraceLog; read through is_on().
extern constinit std::atomic<bool> log_is_on;

/// True while events are recorded. Costs one load: hot paths call it before anything else here.
[[nodiscard]] inline bool is_on() noexcept { return log_is_on.load(std::memory_order_relaxed); }

/// A line of the picture: a thread of the host, or a stream of a device.
struct Track {
  int device = -1;           ///< -1: the host
  std::uint64_t number = 0;  ///< thread id of the system, or number of the stream
};

/// The moment at which a thread of the host submitted work to a device.
struct Submission {
  std::uint64_t thread = 0;  ///< id of the system; 0: unknown
  std::int64_t at_ns = 0;    ///< of now_ns()
};

/// One event. A counter has no duration, and its values are the arguments.
struct TraceEvent {
  std::string name;
  const char* category = "";  ///< "op", "kernel", "memory", "collective", "range"
  Track track;
  std::int64_t begin_ns = 0;  ///< of now_ns()
  std::int64_t duration_ns = 0;
  bool is_counter = false;
  std::uint32_t call_site = 0;  ///< of core/stacks/call_site.hpp; 0: none
  Submission submission{};      ///< of device work
  std::uint32_t call = 0;       ///< the submission's number in add_submission(); 0: none
  Json::Object arguments{};
};

/// The recorded events.
struct Recorded {
  std::vector<TraceEvent> events;  ///< in the order in which they were added
  std::uint64_t dropped = 0;       ///< events beyond the limit, or without host memory for them
};

/// The log of this process. Thread safety: every member may be called from any thread.
class TraceLog {
 public:
  [[nodiscard]] static TraceLog& instance();

  /// Starts with no events; keeps at most `limit`. False if it is on already.
  [[nodiscard]] bool begin(std::size_t limit);
  /// Adds an event while the log is on. An event that began before begin() begins with it.
  void add(TraceEvent&& event) noexcept;
  /// Tells the submission of the device work whose events have number `call`. Keeps as many as
  /// events.
  void add_submission(std::uint32_t call, Submission submission) noexcept;
  /// Counts events that another source dropped.
  void count_dropped(std::uint64_t events) noexcept;
  /// Stops and returns the events. Nothing if it is off.
  [[nodiscard]] Recorded end();

 private:
  std::mutex mutex_;
  std::size_t limit_ = 0;
  std::int64_t begin_ns_ = 0;
  Recorded recorded_;
  std::unordered_map<std::uint32_t, Submission> submissions_;
};

/// Nanoseconds of the monotonic clock, which the processes of one machine share.
[[nodiscard]] std::int64_t now_ns() noexcept;
/// The track of the calling thread.
[[nodiscard]] Track this_thread_track() noexcept;

/// A scope that names the work which the calling thread submits to simulated devices.
class Label {
 public:
  explicit Label(std::string_view name) noexcept : before_(current) { current = name; }
  ~Label() { current = before_; }
  Label(const Label&) = delete;
  Label& operator=(const Label&) = delete;

  static constinit thread_local std::string_view current;

 private:
  std::string_view before_;
};

/// A submission by the calling thread, now. Unknown while the log is off.
[[nodiscard]] Submission submit_now() noexcept;

/// A scope on the thread of a simulated stream. Tasks inside it were submitted together, by the
/// launch of a graph, whenever they were captured.
class SubmittedTogether {
 public:
  explicit SubmittedTogether(const Submission& submission) noexcept : before_(current) {
    current = &submission;
  }
  ~SubmittedTogether() { current = before_; }
  SubmittedTogether(const SubmittedTogether&) = delete;
  SubmittedTogether& operator=(const SubmittedTogether&) = delete;

  static constinit thread_local const Submission* current;

 private:
  const Submission* before_;
};

/// `task`, or while the log is on a task that also records its time on a stream's track. Its name
/// is the current label, else `fallback`. It is submitted now, or as SubmittedTogether tells.
[[nodiscard]] std::function<void()> timed_task(std::function<void()> task, Track track,
                                               std::string_view fallback);

}  // namespace gantry::trace
