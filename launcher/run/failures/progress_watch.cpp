#include "launcher/run/failures/progress_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/command/rank_list.hpp"
#include "launcher/dump/dump.hpp"

namespace gantry::launcher {
namespace {

using std::chrono::milliseconds;

// A stall that is told, unless --stall-timeout stops the job before.
constexpr milliseconds kToldStall{60'000};
constexpr milliseconds kShortestLook{50};
constexpr milliseconds kLongestLook{10'000};

std::string seconds_text(milliseconds time) {
  return fmt::format("{} s", static_cast<double>(time.count()) / 1000);
}

milliseconds look_interval(const FailureOptions& options) {
  return std::clamp(options.stall_timeout.value_or(kLongestLook * 4) / 4, kShortestLook,
                    kLongestLook);
}

}  // namespace

void ProgressWatch::begin(Clock::time_point start) {
  stall_.reset();
  is_stall_told_ = false;
  look_ = start + look_interval(options_);
  init_deadline_.reset();
  if (options_.init_timeout) init_deadline_ = start + *options_.init_timeout;
}

std::optional<ProgressWatch::Clock::time_point> ProgressWatch::deadline() const {
  return init_deadline_ && look_ ? std::min(init_deadline_, look_) : look_;
}

ProgressWatch::Look ProgressWatch::look(Clock::time_point now, const std::string& job_id,
                                        const std::function<std::vector<int>()>& late_ranks) {
  if (init_deadline_ && *init_deadline_ <= now) {
    init_deadline_.reset();
    if (const std::vector<int> late = late_ranks(); !late.empty()) {
      return {.stop_cause = fmt::format(
                  "rank{} {} {} not come to Communicator::world() within {} (--init-timeout)",
                  late.size() == 1 ? "" : "s", rank_list(late), late.size() == 1 ? "has" : "have",
                  seconds_text(*options_.init_timeout))};
    }
  }
  if (!look_ || *look_ > now) return {};
  look_ = now + look_interval(options_);
  stall_.look(job_id, now);
  const auto since = stall_.since();
  if (!since) {
    is_stall_told_ = false;
    return {};
  }
  const auto stalled = std::chrono::duration_cast<milliseconds>(now - *since);
  if (options_.stall_timeout && stalled >= *options_.stall_timeout) {
    return {.stop_cause = fmt::format("no rank got further for {} (--stall-timeout)",
                                      seconds_text(*options_.stall_timeout))};
  }
  if (stalled < kToldStall || std::exchange(is_stall_told_, true)) return {};
  Look found;
  for (const std::string& sentence : diagnose_job(job_id)) {
    found.messages.push_back(
        fmt::format("no rank got further for {}: {}", seconds_text(kToldStall), sentence));
  }
  return found;
}

}  // namespace gantry::launcher
