#pragma once

#include <string>
#include <vector>

#include "command_line/description.hpp"
#include "launcher/options/options.hpp"

namespace gantry::launcher {

/// Parses the arguments behind `glaunch topo`. Throws: InvalidArgument.
[[nodiscard]] Options parse_topo(const std::vector<std::string>& arguments);
/// Parses the arguments behind `glaunch check`. Throws: InvalidArgument.
[[nodiscard]] Options parse_check(const std::vector<std::string>& arguments);

/// Both commands, for glaunch's help.
[[nodiscard]] std::vector<ProgramDescription> describe_topo_commands();

}  // namespace gantry::launcher
