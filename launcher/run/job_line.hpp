#pragma once

#include <string>
#include <vector>

#include "command_line/description.hpp"
#include "launcher/run/options/job_options.hpp"

namespace gantry::launcher {

/// Parses the arguments of a job, those after the program name. `commands` stand in the help.
/// Throws: InvalidArgument with a text for the user.
[[nodiscard]] JobOptions parse_job(const std::vector<std::string>& arguments,
                                   const std::vector<ProgramDescription>& commands = {});

}  // namespace gantry::launcher
