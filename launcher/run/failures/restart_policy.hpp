#pragma once

#include <chrono>
#include <optional>

#include "launcher/run/failures/backoff.hpp"
#include "launcher/run/failures/report.hpp"

namespace gantry::launcher {

/// Decides whether and when a job that failed is started again. Backoff decides the pauses.
class RestartPolicy {
 public:
  using Now = Backoff::Now;

  /// Allows `most` restarts, the first after `first_delay`.
  RestartPolicy(int most, std::chrono::milliseconds first_delay, Now now = Clock::now);

  /// Tells that the job starts now.
  void begin_run() { backoff_.begin_run(); }
  /// The pause before the next start; none if the job is not started again: it did not fail, was
  /// stopped from outside, could not be started (exit codes 125 to 127), or has no restart left.
  [[nodiscard]] std::optional<std::chrono::milliseconds> next_delay(const JobResult& result);
  /// Restarts that next_delay() has granted.
  [[nodiscard]] int restarts() const { return restarts_; }

 private:
  int most_;
  Backoff backoff_;
  int restarts_ = 0;
};

}  // namespace gantry::launcher
