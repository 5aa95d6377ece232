// The interval between two polls.
#pragma once

#include <algorithm>
#include <chrono>

namespace gantry::memory {

/// Interval of a thread that polls for events: a sixteenth of the time waited so far, at least 5 us
/// and at most 1 ms. A wait is thus lengthened by 6 % or 1 ms.
class PollBackoff {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr Clock::duration kShortest = std::chrono::microseconds(5);
  static constexpr Clock::duration kLongest = std::chrono::milliseconds(1);

  explicit PollBackoff(Clock::time_point now = Clock::now()) : changed_(now) {}

  /// Starts again with the shortest interval: an event was added or has completed.
  void restart(Clock::time_point now = Clock::now()) { changed_ = now; }
  /// The time to sleep before the next poll.
  [[nodiscard]] Clock::duration interval(Clock::time_point now = Clock::now()) const {
    return std::clamp((now - changed_) / kDivisor, kShortest, kLongest);
  }

 private:
  static constexpr int kDivisor = 16;

  Clock::time_point changed_;
};

}  // namespace gantry::memory
