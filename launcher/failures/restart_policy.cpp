#include "launcher/failures/restart_policy.hpp"

#include <algorithm>
#include <utility>

namespace gantry::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMaxDelay = std::chrono::minutes(1);
constexpr milliseconds kLongRun = std::chrono::minutes(10);
constexpr int kMaxDoublings = 30;

// Exit codes of glaunch and of shells for commands that cannot be run: no second try mends these.
constexpr int kFirstUsageCode = 125;
constexpr int kLastUsageCode = 127;

}  // namespace

RestartPolicy::RestartPolicy(int most, milliseconds first_delay, Now now)
    : most_(most), first_delay_(first_delay), now_(std::move(now)), begin_(now_()) {}

void RestartPolicy::begin_run() { begin_ = now_(); }

std::optional<milliseconds> RestartPolicy::next_delay(const JobResult& result) {
  if (result.outcome != Outcome::rank_failed || restarts_ >= most_) return std::nullopt;
  const int code = result.exit_code();
  if (code >= kFirstUsageCode && code <= kLastUsageCode) return std::nullopt;
  if (now_() - begin_ >= kLongRun) doublings_ = 0;
  ++restarts_;
  milliseconds delay = first_delay_;
  for (int i = 0; i < doublings_ && delay < kMaxDelay; ++i) delay *= 2;
  doublings_ = std::min(doublings_ + 1, kMaxDoublings);
  // A first pause that is longer than the longest was asked for.
  return std::min(delay, std::max(kMaxDelay, first_delay_));
}

}  // namespace gantry::launcher
