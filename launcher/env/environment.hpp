#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gantry::launcher {

/// Environment variables by name.
using Environment = std::map<std::string, std::string>;

/// The environment of this process.
[[nodiscard]] Environment current_environment();

/// True for a variable with which another launcher tells a process its rank (PMIX_RANK,
/// OMPI_COMM_WORLD_SIZE, …). Ranks must not inherit it: all would claim to be the same one.
[[nodiscard]] bool is_foreign_identity(std::string_view name);

/// One variable that glaunch sets for a rank.
struct RankVariable {
  std::string_view name;
  std::string_view meaning;
};

/// Every variable that glaunch sets, in the order of the documentation.
[[nodiscard]] const std::vector<RankVariable>& rank_variables();

/// Text of `glaunch env`: every variable with its meaning, and the value it has here if any.
[[nodiscard]] std::string describe_environment(const Environment& current, bool json);

}  // namespace gantry::launcher
