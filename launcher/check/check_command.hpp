#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/check/machine_check.hpp"
#include "launcher/command/command.hpp"

namespace gantry::launcher {

/// The command line of `glaunch check`.
struct CheckOptions {
  std::string help;  ///< the text that --help asks for; empty: the machine is to be checked
  CheckRequest request;
  std::optional<std::string> topo_file;  ///< in place of GANTRY_TOPO_FILE
};

/// Parses the arguments behind `glaunch check`. Throws: InvalidArgument.
[[nodiscard]] CheckOptions parse_check(const std::vector<std::string>& arguments);

/// `glaunch check`: looks for what keeps jobs from running well.
extern const Command kCheckCommand;

}  // namespace gantry::launcher
