#include "tools/bench/timing.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gantry::bench {

namespace {

constexpr int kFewestBatches = 3;

// The smallest value that at least `share` of the sorted values do not exceed.
double percentile(const std::vector<double>& sorted, double share) {
  const auto at = static_cast<std::size_t>(
      std::max(0.0, std::ceil(share * static_cast<double>(sorted.size())) - 1));
  return sorted[std::min(at, sorted.size() - 1)];
}

}  // namespace

Repetitions Repetitions::fitted(double seconds) const {
  Repetitions result = *this;
  if (!(seconds > 0)) return result;
  const double affordable = max_seconds / seconds;
  result.batches = std::clamp(static_cast<int>(std::min(affordable / calls, 1e6)),
                              std::min(kFewestBatches, batches), batches);
  result.calls = std::clamp(static_cast<int>(std::min(affordable / result.batches, 1e6)), 1, calls);
  return result;
}

Timing summarize(std::vector<double> batch_us, int calls) {
  std::sort(batch_us.begin(), batch_us.end());
  Timing timing;
  timing.calls = calls;
  timing.batches = static_cast<int>(batch_us.size());
  timing.mean_us =
      std::accumulate(batch_us.begin(), batch_us.end(), 0.0) / static_cast<double>(batch_us.size());
  timing.min_us = batch_us.front();
  timing.p50_us = percentile(batch_us, 0.5);
  timing.p99_us = percentile(batch_us, 0.99);
  return timing;
}

Timing measure(const TimedCalls& timed, const Repetitions& repetitions) {
  const int at_once = timed.calls_at_once;
  const auto launches_of = [&](int calls) { return (calls + at_once - 1) / at_once; };
  // Seconds, from when all ranks began.
  const auto batch = [&](int launches) {
    timed.begin();
    const StopWatch watch;
    for (int i = 0; i < launches; ++i) {
      timed.launch();
      if (repetitions.blocking) timed.wait();
    }
    timed.wait();
    return watch.seconds();
  };
  if (repetitions.warm_up > 0) (void)batch(launches_of(repetitions.warm_up));
  const double probe = timed.maximum({batch(1) / at_once}).front();
  const Repetitions fitted = repetitions.fitted(probe);
  const int launches = launches_of(fitted.calls);
  const int calls = launches * at_once;
  std::vector<double> batch_us;
  for (int i = 0; i < fitted.batches; ++i) batch_us.push_back(batch(launches) * 1e6 / calls);
  return summarize(timed.maximum(batch_us), calls);
}

}  // namespace gantry::bench
