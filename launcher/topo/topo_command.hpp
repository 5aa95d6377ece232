#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/command/command.hpp"
#include "launcher/topo/topo_print.hpp"

namespace gantry::launcher {

/// The command line of `glaunch topo`.
struct TopoOptions {
  std::string help;  ///< the text that --help asks for; empty: the machine is to be printed
  TopoRequest request;
  std::optional<std::string> topo_file;  ///< in place of GANTRY_TOPO_FILE
};

/// Parses the arguments behind `glaunch topo`. Throws: InvalidArgument.
[[nodiscard]] TopoOptions parse_topo(const std::vector<std::string>& arguments);

/// `glaunch topo`: prints the machine.
extern const Command kTopoCommand;

}  // namespace gantry::launcher
