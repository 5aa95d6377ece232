#include "collectives/rank_table.hpp"

#include <fmt/format.h>

#include <utility>

#include <gantry/core/error.hpp>

#include "core/text/escaped_text.hpp"

namespace gantry {

RankTable::RankTable(std::vector<std::string> all, const std::string& op, std::string name)
    : all_(std::move(all)), name_(std::move(name)) {
  for (std::size_t rank = 0; rank < all_.size(); ++rank) {
    if (RankFacts::parse(all_[rank])) continue;
    throw InvalidArgument(fmt::format("{}: rank {} runs another version of gantry", op, rank));
  }
}

RankFacts RankTable::facts(int rank) const {
  return RankFacts::parse(all_[static_cast<std::size_t>(rank)]).value();
}

std::vector<std::string> RankTable::machines() const {
  std::vector<std::string> result;
  result.reserve(all_.size());
  for (int rank = 0; rank < size(); ++rank) result.emplace_back(facts(rank).boot);
  return result;
}

std::string RankTable::description(int rank) const {
  const RankFacts one = facts(rank);
  return fmt::format("rank {}: {} pid {} {} {}", rank, escape_control_characters(one.host), one.pid,
                     escape_control_characters(one.device), escape_control_characters(one.uuid));
}

const std::vector<std::string>& RankTable::descriptions() const {
  const std::lock_guard lock(mutex_);
  if (descriptions_.empty()) {
    std::vector<std::string> made;
    made.reserve(all_.size());
    const std::string own = fmt::format("of {}: ", name_);
    for (int rank = 0; rank < size(); ++rank) {
      made.push_back(description(rank));
      if (name_.empty()) continue;
      // "rank 3 of pairs: host …"
      made.back().replace(made.back().find(": "), 2, " " + own);
    }
    descriptions_ = std::move(made);
  }
  return descriptions_;
}

std::optional<int> RankTable::find(const RankFacts& facts) const {
  std::vector<int> found;
  const auto is_place = [&](const RankFacts& one) {
    return one.boot == facts.boot && one.host == facts.host && one.pid == facts.pid &&
           one.uuid == facts.uuid;
  };
  for (int rank = 0; rank < size(); ++rank) {
    if (is_place(this->facts(rank))) found.push_back(rank);
  }
  if (found.size() > 1) {
    std::erase_if(found, [&](int rank) { return this->facts(rank).member != facts.member; });
  }
  if (found.size() != 1) return std::nullopt;
  return found.front();
}

}  // namespace gantry
