#include "launcher/env/env_command.hpp"

#include "launcher/env/environment.hpp"

namespace gantry::launcher {
namespace {

// As env of coreutils it starts a program with variables: `glaunch env A=1 app`.
bool takes(const std::vector<std::string>& arguments) {
  return arguments.empty() || (arguments.size() == 1 && arguments[0] == "--json");
}

ProgramDescription describe() {
  ProgramDescription program;
  program.name = "glaunch env";
  program.summary = "Prints the variables of ranks and of gantry.";
  program.usage = "[--json]";
  program.options.push_back({.names = {"--json"}, .help = "print JSON"});
  return program;
}

int run(const std::vector<std::string>& arguments) {
  print(describe_environment(current_environment(), !arguments.empty()));
  return 0;
}

}  // namespace

const Command kEnvCommand{"env", describe, run, takes};

}  // namespace gantry::launcher
