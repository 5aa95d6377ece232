// What the command lines of the tools have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>

namespace gantry {

/// Reads `arguments` into what `app` binds; returns the help if they ask for it, else nothing.
/// Throws: InvalidArgument in CLI11's words.
inline std::string parse_command_line(CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  return {};
}

}  // namespace gantry
