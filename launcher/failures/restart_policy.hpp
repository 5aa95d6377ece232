#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "launcher/failures/report.hpp"
#include "launcher/processes/event_loop.hpp"

namespace gantry::launcher {

/// Decides whether and when a job that failed is started again.
///
/// The pause before a start doubles each time, up to a minute. It begins anew after a run that
/// lasted ten minutes: that failure has nothing to do with the ones before.
class RestartPolicy {
 public:
  using Now = std::function<Clock::time_point()>;

  /// Allows `most` restarts, the first after `first_delay`.
  RestartPolicy(int most, std::chrono::milliseconds first_delay, Now now = Clock::now);

  /// Tells that the job starts now.
  void begin_run();
  /// The pause before the next start; none if the job is not started again: it did not fail, was
  /// stopped from outside, could not be started (exit codes 125 to 127), or has no restart left.
  [[nodiscard]] std::optional<std::chrono::milliseconds> next_delay(const JobResult& result);
  /// Restarts that next_delay() has granted.
  [[nodiscard]] int restarts() const { return restarts_; }

 private:
  int most_;
  std::chrono::milliseconds first_delay_;
  Now now_;
  Clock::time_point begin_;
  int restarts_ = 0;
  int doublings_ = 0;
};

}  // namespace gantry::launcher
