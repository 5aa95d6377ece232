// Whether a job gets further, from the flight files of its groups.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gantry::launcher {

/// Notices that calls of a job are under way and none of its ranks gets further.
///
/// A job whose ranks are in no call is not stalled: it computes. Thread safety: none.
class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// Looks at the groups of `job`.
  void look(const std::string& job, Clock::time_point now);
  /// Forgets what it saw, for a job that starts or was suspended.
  void reset();
  /// Since when calls are under way and nothing has changed; none: the job is not stalled.
  [[nodiscard]] std::optional<Clock::time_point> since() const;

 private:
  std::vector<std::uint64_t> progress_;  // of every rank of every group
  bool is_waiting_ = false;
  Clock::time_point since_{};
};

}  // namespace gantry::launcher
