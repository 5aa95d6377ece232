#include "collectives/rank_table.hpp"

#include <fmt/format.h>

#include <utility>

#include <gantry/core/error.hpp>

#include "core/text/escaped_text.hpp"

namespace gantry {

RankTable::RankTable(std::vector<std::string> all, const std::string& op) : all_(std::move(all)) {
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
    for (int rank = 0; rank < size(); ++rank) made.push_back(description(rank));
    descriptions_ = std::move(made);
  }
  return descriptions_;
}

}  // namespace gantry
