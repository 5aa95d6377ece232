// The supervisor of elastic jobs: Note [Elastic jobs].
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <utility>

#include <gantry/core/error.hpp>

#include "core/assert.hpp"
#include "launcher/command/rank_list.hpp"
#include "launcher/run/processes/supervisor.hpp"

namespace gantry::launcher {

using std::chrono::milliseconds;

// An observer of the job's store, in which the ranks say which group they are in.
StoreClient Supervisor::observe_store() const {
  return StoreClient(
      StoreClientOptions{.address = store_->address(), .token = context_.store_token()});
}

// The rank has ended. The job goes on while enough others count.
void Supervisor::go_on_without(RankResult& entry) {
  StoreClient store = observe_store();
  const std::vector<int> counted = replacements_.counted(result_, store);
  const auto least = static_cast<std::size_t>(options_.failure.elastic->fewest);
  if (entry.failed() && counted.size() < least) {
    replacements_.cancel();
    return end_job(entry);
  }
  if (entry.failed()) return replace(entry);
  if (!counted.empty()) return;
  replacements_.cancel();
  if (running_ == 0) return;
  std::vector<int> waiting;
  for (const RankResult& rank : result_.ranks) {
    if (rank.started && !rank.ended) waiting.push_back(rank.rank);
  }
  output_.message(fmt::format("stops rank{} {}, which no group has taken in: the others have ended",
                              waiting.size() == 1 ? "" : "s", rank_list(waiting)));
  stop(SIGTERM, options_.failure.grace);
}

void Supervisor::replace(RankResult& entry) {
  // Processes that the rank has started must not use its device any more.
  processes_.kill_group(entry.rank);
  outputs_.close(entry.rank);
  enter_note(entry, read_error_note(context_.error_file(entry.rank)), result_.ranks.size());
  entry.tail = output_.tail(entry.rank);
  output_.report(describe_rank(entry));
  std::string why;
  if (const auto delay = replacements_.plan(entry, why)) {
    output_.message(fmt::format("replacement {} of {}, for rank {}, in {} s",
                                replacements_.planned(), options_.failure.max_restarts, entry.rank,
                                static_cast<double>(delay->count()) / 1000));
  } else {
    output_.message(fmt::format("rank {} is not replaced: {}", entry.rank, why));
  }
}

void Supervisor::start_replacements() {
  while (const std::optional<int> rank = replacements_.take_due()) start_replacement(*rank);
}

void Supervisor::start_replacement(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  GANTRY_ASSERT(result_.ranks[index].ended, "a rank is replaced that runs");
  StoreClient store = observe_store();
  result_.ranks[index].is_outside = replacements_.is_outside(rank, store);
  RankResult fresh;
  fresh.rank = rank;
  fresh.device = result_.ranks[index].device;
  fresh.device_uuid = result_.ranks[index].device_uuid;
  result_.replaced.push_back(std::exchange(result_.ranks[index], std::move(fresh)));
  processes_.replace(rank);
  output_.clear_tail(rank);
  JobValues values = values_;
  values.restarts = replacements_.begin(rank);
  const auto failure = start_rank(plan_.ranks[index], values, -1);
  if (!failure) return;
  result_.ranks[index] = std::move(result_.replaced.back());
  result_.replaced.pop_back();
  output_.message(fmt::format("rank {} is not replaced: {}", rank, failure->message));
}

// A job ends for the ranks that failed, not for a replacement that no group has taken in. Several
// replacements of a rank may have found nobody to join before glaunch saw the last rank's end.
void Supervisor::restore_replaced() {
  if (!replacements_.is_elastic() || result_.outcome != Outcome::rank_failed) return;
  StoreClient store = observe_store();
  for (RankResult& rank : result_.ranks) {
    if (!replacements_.is_outside(rank.rank, store)) continue;
    const auto last = std::find_if(
        result_.replaced.rbegin(), result_.replaced.rend(),
        [&](const RankResult& before) { return before.rank == rank.rank && !before.is_outside; });
    if (last == result_.replaced.rend()) continue;
    std::swap(rank, *last);
  }
}

}  // namespace gantry::launcher
