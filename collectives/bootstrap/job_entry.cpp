#include "collectives/bootstrap/job_entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/job_connection.hpp"
#include "core/text/escaped_text.hpp"
#include "job/elastic_job.hpp"

namespace gantry {

namespace {

constexpr const char* kReplacementsKey = "gantry/elastic/replacements";
constexpr const char* kFactsKey = "gantry/elastic/facts";
constexpr const char* kServerKey = "gantry/elastic/server";

// True until the first group of `size` ranks is made, or cannot be made any more.
bool is_starting(StoreClient& store, int size) {
  if (store.try_get(kFormedKey)) return false;
  std::vector<int> gone = departed_ids(store);
  // The store has told of all losses before it replied.
  const std::vector<int> lost = store.lost_ranks();
  gone.insert(gone.end(), lost.begin(), lost.end());
  return std::ranges::none_of(gone, [&](int id) { return id < size; });
}

std::string facts_text(const JobConnection& job) {
  return fmt::format("{} {}", job.terms()->most, job.role().label);
}

void require_own_facts(const JobConnection& job, const std::string& facts) {
  if (facts == facts_text(job)) return;
  const std::string_view all = facts;
  const std::size_t space = std::min(all.find(' '), all.size());
  throw InvalidArgument(fmt::format(
      "{}: expected the job at {} to have {} ranks and the name '{}', but it has {} and '{}'",
      job.role().maker, job.address(), job.terms()->most, job.role().label,
      escape_control_characters(all.substr(0, space)),
      escape_control_characters(all.substr(std::min(space + 1, all.size())))));
}

}  // namespace

JobEntry enter_job(const std::function<std::shared_ptr<StoreClient>(int id)>& connect_as, int rank,
                   int size) {
  const std::shared_ptr<StoreClient> observer = connect_as(-1);
  if (rank >= 0 && is_starting(*observer, size)) {
    try {
      JobEntry entry{.client = connect_as(rank)};
      note_started(*entry.client, rank);
      return entry;
    } catch (const PeerLostError&) {
      // The store refused it: another process has the rank.
      if (!observer->connected()) throw;
    }
  }
  JobEntry entry;
  entry.replacement = static_cast<int>(observer->add(kReplacementsKey, 1));
  entry.client = connect_as(size + entry.replacement - 1);
  return entry;
}

void note_serving_rank(Store& store, int rank) { store.set(kServerKey, std::to_string(rank)); }

void read_serving_rank(JobConnection& job) {
  const std::optional<std::string> rank = job.client()->try_get(kServerKey);
  job.note_server(rank ? std::stoi(*rank) : -1);
}

void note_facts(const JobConnection& job) { (void)job.write_once(kFactsKey, facts_text(job)); }

void compare_facts(const JobConnection& job) {
  if (const auto facts = job.client()->try_get(kFactsKey)) require_own_facts(job, *facts);
}

}  // namespace gantry
