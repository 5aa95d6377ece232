#pragma once

#include <algorithm>
#include <chrono>

namespace gantry {

// How long somebody waits for others, and has waited.
//
// Of the time between two looks at most a second counts: a process that was stopped and goes on has
// waited for nobody meanwhile, and those for whom it waits may have been stopped with it.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Patience(Clock::duration limit, Clock::time_point now = Clock::now())
      : limit_(limit), last_look_(now) {}

  // Begins anew.
  void renew(Clock::time_point now = Clock::now()) {
    waited_ = {};
    last_look_ = now;
  }
  // Looks at the clock; true once more than the limit was waited.
  bool is_over(Clock::time_point now = Clock::now()) {
    waited_ += std::min<Clock::duration>(now - last_look_, kLongestLook);
    last_look_ = now;
    return waited_ > limit_;
  }
  // For how long to sleep before the next look.
  std::chrono::milliseconds next_wait() const {
    const auto left = std::chrono::floor<std::chrono::milliseconds>(limit_ - waited_);
    return std::clamp(left, std::chrono::milliseconds(0), kLongestLook / 2) +
           std::chrono::milliseconds(1);
  }

 private:
  static constexpr std::chrono::milliseconds kLongestLook = std::chrono::seconds(1);

  Clock::duration limit_;
  Clock::duration waited_{};
  Clock::time_point last_look_;
};

}  // namespace gantry
