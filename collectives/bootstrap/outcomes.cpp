#include "collectives/bootstrap/outcomes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "collectives/bootstrap/bootstrap.hpp"

namespace gantry {

namespace {

// "lost" and 3 of "lost 3"; −1 if there is no rank.
std::pair<std::string, int> read_outcome(const std::string& outcome) {
  std::istringstream fields(outcome);
  std::pair<std::string, int> result{"", -1};
  fields >> result.first >> result.second;
  if (!fields) result.second = -1;
  return result;
}

// True for a member whose own outcome is a failure, other than its loss.
bool gave_up(const std::string& outcome, const JobMember& member) {
  const auto [word, rank] = read_outcome(outcome);
  if (word == "lost") return rank != member.rank;
  return word == "late" || word == "error";
}

}  // namespace

std::set<int> ranks_called(std::string_view what, const std::vector<std::string>& outcomes,
                           const std::vector<JobMember>& speakers, const JobGroup& group) {
  std::set<int> ranks;
  for (const std::string& outcome : outcomes) {
    const auto [word, rank] = read_outcome(outcome);
    if (word != what) continue;
    if (const int index = group.index_of(rank); index >= 0) ranks.insert(index);
  }
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (gave_up(outcomes[i], speakers[i])) ranks.erase(group.index_of(speakers[i].rank));
  }
  return ranks;
}

std::string own_error(const std::vector<std::string>& outcomes, const JobGroup& members) {
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    constexpr std::string_view kError = "error ";
    if (!outcomes[i].starts_with(kError)) continue;
    return fmt::format("rank {} of the job: {}", members.members[i].rank,
                       outcomes[i].substr(kError.size()));
  }
  return {};
}

bool all_formed(const std::vector<std::string>& outcomes) {
  return std::all_of(outcomes.begin(), outcomes.end(),
                     [](const std::string& outcome) { return outcome == kFormed; });
}

}  // namespace gantry
