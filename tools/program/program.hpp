// The common part of the main functions of the tools.
#pragma once

#include <string>
#include <vector>

namespace gantry {

/// Runs a tool with the arguments behind its name, and returns its exit code: what `run` returns,
/// or 2 after an error, of which stderr has one line. What does not arrive on stdout is an error,
/// too.
int run_program(const std::string& name, int argc, char** argv,
                int (*run)(const std::vector<std::string>& arguments));

}  // namespace gantry
