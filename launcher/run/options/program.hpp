#pragma once

#include <string>
#include <vector>

namespace gantry {
class CommandLine;
}  // namespace gantry

namespace gantry::launcher {

/// The program and its arguments behind the options. Throws: InvalidArgument if there is none.
[[nodiscard]] std::vector<std::string> program_behind(const CommandLine& line);

}  // namespace gantry::launcher
