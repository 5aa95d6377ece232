#include "launcher/run/failures/restart_policy.hpp"

#include <utility>

namespace gantry::launcher {

RestartPolicy::RestartPolicy(int most, std::chrono::milliseconds first_delay, Now now)
    : most_(most), backoff_(first_delay, std::move(now)) {}

std::optional<std::chrono::milliseconds> RestartPolicy::next_delay(const JobResult& result) {
  const bool is_failure =
      result.outcome == Outcome::rank_failed || result.outcome == Outcome::stalled;
  if (!is_failure || restarts_ >= most_) return std::nullopt;
  if (is_usage_error(result.exit_code())) return std::nullopt;
  ++restarts_;
  return backoff_.next_delay();
}

}  // namespace gantry::launcher
