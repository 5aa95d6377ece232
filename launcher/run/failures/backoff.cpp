#include "launcher/run/failures/backoff.hpp"

#include <algorithm>
#include <utility>

namespace gantry::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMaxDelay = std::chrono::minutes(1);
constexpr milliseconds kLongRun = std::chrono::minutes(10);
constexpr int kMaxDoublings = 30;

constexpr int kFirstUsageCode = 125;
constexpr int kLastUsageCode = 127;

}  // namespace

Backoff::Backoff(milliseconds first_delay, Now now)
    : first_delay_(first_delay), now_(std::move(now)), begin_(now_()) {}

void Backoff::begin_run() { begin_ = now_(); }

milliseconds Backoff::next_delay() {
  if (now_() - begin_ >= kLongRun) doublings_ = 0;
  milliseconds delay = first_delay_;
  for (int i = 0; i < doublings_ && delay < kMaxDelay; ++i) delay *= 2;
  doublings_ = std::min(doublings_ + 1, kMaxDoublings);
  // A first pause that is longer than the longest was asked for.
  return std::min(delay, std::max(kMaxDelay, first_delay_));
}

bool is_usage_error(int code) { return code >= kFirstUsageCode && code <= kLastUsageCode; }

}  // namespace gantry::launcher
