// How the supervisor notices jobs that do not begin, or get no further.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launcher/command/rank_list.hpp"
#include "launcher/dump/dump.hpp"
#include "launcher/run/processes/supervisor.hpp"

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

}  // namespace

void Supervisor::begin_progress() {
  stall_.reset();
  is_stall_told_ = false;
  look_.reset();
  init_deadline_.reset();
  // Other launchers' ranks leave their records on other machines.
  if (plan_.delegation) return;
  look_ = start_ + look_interval();
  if (options_.failure.init_timeout) init_deadline_ = start_ + *options_.failure.init_timeout;
}

milliseconds Supervisor::look_interval() const {
  return std::clamp(options_.failure.stall_timeout.value_or(kLongestLook * 4) / 4, kShortestLook,
                    kLongestLook);
}

void Supervisor::pass_progress_deadlines(Clock::time_point now) {
  if (init_deadline_ && *init_deadline_ <= now) {
    init_deadline_.reset();
    if (const std::vector<int> late = ranks_without_group(); !late.empty()) {
      return stop_stalled(fmt::format(
          "rank{} {} {} not come to Communicator::world() within {} "
          "(--init-timeout)",
          late.size() == 1 ? "" : "s", rank_list(late), late.size() == 1 ? "has" : "have",
          seconds_text(*options_.failure.init_timeout)));
    }
  }
  if (!look_ || *look_ > now) return;
  look_ = now + look_interval();
  stall_.look(context_.job_id(), now);
  const auto since = stall_.since();
  if (!since) {
    is_stall_told_ = false;
    return;
  }
  const auto stalled = std::chrono::duration_cast<milliseconds>(now - *since);
  if (options_.failure.stall_timeout && stalled >= *options_.failure.stall_timeout) {
    return stop_stalled(fmt::format("no rank got further for {} (--stall-timeout)",
                                    seconds_text(*options_.failure.stall_timeout)));
  }
  if (stalled < kToldStall || std::exchange(is_stall_told_, true)) return;
  for (const std::string& sentence : diagnose_job(context_.job_id())) {
    output_.message(
        fmt::format("no rank got further for {}: {}", seconds_text(kToldStall), sentence));
  }
}

// Ranks that are there and not in the job's store, which Communicator::world() enters.
std::vector<int> Supervisor::ranks_without_group() const {
  const std::vector<int> connected = store_->connected_ranks();
  std::vector<int> late;
  for (const RankResult& rank : result_.ranks) {
    const int id = replacements_.id_of(rank.rank);
    const bool is_there = std::find(connected.begin(), connected.end(), id) != connected.end();
    if (rank.started && !rank.ended && !is_there) late.push_back(rank.rank);
  }
  return late;
}

void Supervisor::stop_stalled(std::string cause) {
  replacements_.cancel();
  result_.outcome = Outcome::stalled;
  result_.stop_cause = std::move(cause);
  stop(SIGTERM, options_.failure.grace);
}

}  // namespace gantry::launcher
