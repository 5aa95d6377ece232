#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "collectives/rank_facts.hpp"

namespace gantry {

// The facts of all ranks of a group, as they were exchanged. Texts are made when they are asked
// for: most ranks of a large group never need the texts of the others.
//
// Thread safety: any thread, after the constructor.
class RankTable {
 public:
  RankTable() = default;
  // `all` has RankFacts::bytes() of every rank.
  // Throws: InvalidArgument if another version wrote some; the error begins with `op`.
  RankTable(std::vector<std::string> all, const std::string& op);

  int size() const { return static_cast<int>(all_.size()); }
  RankFacts facts(int rank) const;
  // The name of every rank's machine.
  std::vector<std::string> machines() const;
  // "rank 3: host pid 4711 device uuid".
  std::string description(int rank) const;
  // The descriptions of all ranks.
  const std::vector<std::string>& descriptions() const;

 private:
  std::vector<std::string> all_;
  mutable std::mutex mutex_;
  mutable std::vector<std::string> descriptions_;  // empty until they are asked for
};

}  // namespace gantry
