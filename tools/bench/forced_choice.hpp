// Makes the groups that are made from now on take one algorithm.
#pragma once

#include <optional>
#include <string>

#include "collectives/selector.hpp"

namespace gantry::bench {

/// What chooses the algorithms of groups of so many ranks that are made now, on devices of this
/// name. All links between visible devices count, whichever devices a group has.
[[nodiscard]] Selector present_selector(int ranks, const std::string& device_name);

/// Sets GANTRY_COLL_ALGO, and GANTRY_COLL_TABLE if `blocks` are given, for this process; takes both
/// back at the end. Only while no other thread reads the environment.
class ForcedChoice {
 public:
  /// `algorithm` as GANTRY_COLL_ALGO has it. Throws: InvalidArgument for another text, and for
  /// blocks without one algorithm.
  ForcedChoice(const std::string& algorithm, std::optional<int> blocks);
  ~ForcedChoice();
  ForcedChoice(const ForcedChoice&) = delete;
  ForcedChoice& operator=(const ForcedChoice&) = delete;

 private:
  std::optional<std::string> algorithm_before_;
  std::optional<std::string> table_before_;
  std::string table_path_;
};

}  // namespace gantry::bench
