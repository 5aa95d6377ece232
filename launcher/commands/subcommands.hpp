// The command lines of glaunch's commands, such as `glaunch dump`.
#pragma once

#include <string>
#include <vector>

#include "command_line/command_line.hpp"
#include "launcher/options/options.hpp"

namespace gantry::launcher {

/// Parses the arguments behind `glaunch dump`. Throws: InvalidArgument.
[[nodiscard]] Options parse_dump(const std::vector<std::string>& arguments);
/// Parses the arguments behind `glaunch shim`. Throws: InvalidArgument.
[[nodiscard]] Options parse_shim(const std::vector<std::string>& arguments);

/// All of glaunch's commands, for its help.
[[nodiscard]] std::vector<ProgramDescription> describe_subcommands();

/// The program and its arguments behind the options. Throws: InvalidArgument if there is none.
[[nodiscard]] std::vector<std::string> read_command(const CommandLine& line);

}  // namespace gantry::launcher
