#include "launcher/run/failures/replacements.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gantry::launcher {
namespace {

bool contains(const std::vector<int>& ids, int id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Replacements::Replacements(const FailureOptions& options, int ranks, Backoff::Now now)
    : most_(options.max_restarts), now_(std::move(now)) {
  if (!options.elastic) return;
  terms_ = ElasticTerms{.fewest = options.elastic->fewest, .most = ranks};
  ranks_.assign(static_cast<std::size_t>(ranks), {*terms_, Backoff(options.restart_delay, now_)});
}

int Replacements::id_of(int rank) const {
  return is_elastic() ? ranks_[static_cast<std::size_t>(rank)].terms.id_of(rank) : rank;
}

std::vector<int> Replacements::counted(const JobResult& job, Store& store) const {
  const std::vector<int> joined = joined_ids(store);
  const std::vector<Arrival> arrived = arrivals(store);
  // Without a group nothing is waited for in vain, but for those that wait already.
  const bool has_group = store.try_get(kFormedKey).has_value();
  std::vector<int> result;
  for (const RankResult& rank : job.ranks) {
    if (!rank.started || rank.ended) continue;
    const Rank& mine = ranks_[static_cast<std::size_t>(rank.rank)];
    const int id = mine.terms.id_of(rank.rank);
    const bool waits =
        has_group || std::any_of(arrived.begin(), arrived.end(),
                                 [&](const Arrival& arrival) { return arrival.id == id; });
    if (mine.terms.replacement > 0 && waits && !contains(joined, id)) continue;
    result.push_back(rank.rank);
  }
  return result;
}

bool Replacements::is_outside(int rank, Store& store) const {
  const Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  return mine.terms.replacement > 0 && !contains(joined_ids(store), mine.terms.id_of(rank));
}

std::optional<std::chrono::milliseconds> Replacements::plan(const RankResult& rank,
                                                            std::string& why) {
  if (rank.signal == 0 && is_usage_error(rank.exit_code)) {
    why = fmt::format("a second try does not mend exit code {}", rank.exit_code);
    return std::nullopt;
  }
  if (planned_ >= most_) {
    why = fmt::format("--max-restarts allows {} replacements", most_);
    return std::nullopt;
  }
  ++planned_;
  Rank& mine = ranks_[static_cast<std::size_t>(rank.rank)];
  const std::chrono::milliseconds delay = mine.backoff.next_delay();
  mine.due = now_() + delay;
  return delay;
}

void Replacements::cancel() {
  for (Rank& rank : ranks_) rank.due.reset();
}

std::optional<Clock::time_point> Replacements::deadline() const {
  std::optional<Clock::time_point> first;
  for (const Rank& rank : ranks_) {
    if (rank.due && (!first || *rank.due < *first)) first = rank.due;
  }
  return first;
}

std::optional<int> Replacements::take_due() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].due || *ranks_[i].due > now_()) continue;
    ranks_[i].due.reset();
    return static_cast<int>(i);
  }
  return std::nullopt;
}

int Replacements::begin(int rank) {
  Rank& mine = ranks_[static_cast<std::size_t>(rank)];
  mine.terms.replacement = ++begun_;
  mine.backoff.begin_run();
  return begun_;
}

}  // namespace gantry::launcher
