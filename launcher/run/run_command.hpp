#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/command/command.hpp"

namespace gantry::launcher {

/// `glaunch [options] program`: starts a job, or prints its plan. `commands` stand in the help.
/// Returns glaunch's exit code. Throws: InvalidArgument; Error.
[[nodiscard]] int run_job(const std::vector<std::string>& arguments,
                          std::span<const Command> commands);

}  // namespace gantry::launcher
