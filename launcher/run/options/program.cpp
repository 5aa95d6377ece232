#include "launcher/run/options/program.hpp"

#include <gantry/core/error.hpp>

#include "command_line/command_line.hpp"

namespace gantry::launcher {

std::vector<std::string> program_behind(const CommandLine& line) {
  std::vector<std::string> command = line.rest();
  if (!command.empty() && command[0] == "--") command.erase(command.begin());
  if (command.empty()) throw InvalidArgument("no program to start (see glaunch --help)");
  return command;
}

}  // namespace gantry::launcher
