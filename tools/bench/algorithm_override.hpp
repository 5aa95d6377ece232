// An algorithm that new groups must take.
#pragma once

#include <optional>
#include <string>

#include "collectives/selection/selector.hpp"

namespace gantry::bench {

/// The selector of a group of `ranks` ranks that is made now, on devices of this name. It considers
/// the links between all visible devices.
[[nodiscard]] Selector present_selector(int ranks, const std::string& device_name);

/// Sets GANTRY_COLL_ALGO for this process, and GANTRY_COLL_TABLE if `blocks` are given. The
/// destructor restores both. No other thread may read the environment meanwhile.
class AlgorithmOverride {
 public:
  /// `algorithm` as GANTRY_COLL_ALGO has it. Throws: InvalidArgument for another text, and for
  /// blocks without one algorithm.
  AlgorithmOverride(const std::string& algorithm, std::optional<int> blocks);
  ~AlgorithmOverride();
  AlgorithmOverride(const AlgorithmOverride&) = delete;
  AlgorithmOverride& operator=(const AlgorithmOverride&) = delete;

 private:
  std::optional<std::string> algorithm_before_;
  std::optional<std::string> table_before_;
  std::string table_path_;
};

}  // namespace gantry::bench
