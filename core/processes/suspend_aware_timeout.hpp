#pragma once

#include <algorithm>
#include <chrono>

namespace gantry {

/// A timeout that does not count the time in which this process was stopped.
///
/// At most one second counts between two calls of has_expired(). A process that was stopped
/// (SIGSTOP, a debugger, a suspended machine) did not wait meanwhile, and its peers may have been
/// stopped, too.
class SuspendAwareTimeout {
 public:
  using Clock = std::chrono::steady_clock;

  explicit SuspendAwareTimeout(Clock::duration limit, Clock::time_point now = Clock::now())
      : limit_(limit), last_read_(now) {}

  /// Starts again from zero.
  void restart(Clock::time_point now = Clock::now()) {
    waited_ = {};
    last_read_ = now;
  }
  /// Reads the clock; true once the counted time exceeds the limit.
  bool has_expired(Clock::time_point now = Clock::now()) {
    waited_ += std::min<Clock::duration>(now - last_read_, kLongestGap);
    last_read_ = now;
    return waited_ > limit_;
  }
  /// The time to sleep before the next call of has_expired().
  std::chrono::milliseconds next_wait() const {
    const auto left = std::chrono::floor<std::chrono::milliseconds>(limit_ - waited_);
    return std::clamp(left, std::chrono::milliseconds(0), kLongestGap / 2) +
           std::chrono::milliseconds(1);
  }

 private:
  static constexpr std::chrono::milliseconds kLongestGap = std::chrono::seconds(1);

  Clock::duration limit_;
  Clock::duration waited_{};
  Clock::time_point last_read_;
};

}  // namespace gantry
