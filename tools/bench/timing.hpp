// How long calls took.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

namespace gantry::bench {

/// How often things are measured.
struct Repetitions {
  int calls = 20;          ///< timed together
  int batches = 10;        ///< of calls
  int warm_up = 5;         ///< calls before
  double max_seconds = 2;  ///< fewer batches, then fewer calls, if all would last longer
  bool blocking = false;   ///< the host waits for each call

  /// Fits into max_seconds where a call takes `seconds`.
  [[nodiscard]] Repetitions fitted(double seconds) const;
};

/// Microseconds of one call.
struct Timing {
  int calls = 0;
  int batches = 0;
  double mean_us = 0;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
};

/// `batch_us`: microseconds of one call in each batch; not empty.
[[nodiscard]] Timing summarize(std::vector<double> batch_us, int calls);

/// A clock that was started when it was made.
class StopWatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The work that is timed, on one rank of a group.
struct TimedCalls {
  int calls_at_once = 1;         ///< of a launch
  std::function<void()> begin;   ///< returns on all ranks at about the same time
  std::function<void()> launch;  ///< submits the calls
  std::function<void()> wait;    ///< until what was submitted has completed
  /// The greatest of all ranks' values, position by position.
  std::function<std::vector<double>(const std::vector<double>&)> maximum;
};

/// Times batches of calls on all ranks; the slowest rank's times.
[[nodiscard]] Timing measure(const TimedCalls& timed, const Repetitions& repetitions);

}  // namespace gantry::bench
