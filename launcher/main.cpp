#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <string>
#include <vector>

#include "launcher/check/check_command.hpp"
#include "launcher/command/command.hpp"
#include "launcher/dump/dump_command.hpp"
#include "launcher/env/env_command.hpp"
#include "launcher/run/run_command.hpp"
#include "launcher/shim/shim_command.hpp"
#include "launcher/topo/topo_command.hpp"

namespace gantry::launcher {
namespace {

constexpr int kOwnError = 125;

// A pipe that took the number of a closed standard stream would be mistaken for it.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      const int null = open("/dev/null", O_RDWR);
      if (null >= 0 && null != fd) dup2(null, fd);
    }
  }
}

int run(const std::vector<std::string>& arguments) {
  // In the order of the help.
  const std::array commands{kTopoCommand, kCheckCommand, kDumpCommand, kShimCommand, kEnvCommand};
  if (arguments.empty()) return run_job(arguments, commands);
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  const auto named = std::find_if(commands.begin(), commands.end(), [&](const Command& command) {
    return command.name == arguments[0] && (command.takes == nullptr || command.takes(rest));
  });
  return named == commands.end() ? run_job(arguments, commands) : named->run(rest);
}

}  // namespace
}  // namespace gantry::launcher

int main(int argc, char** argv) {
  gantry::launcher::open_standard_streams();
  try {
    return gantry::launcher::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    gantry::launcher::print_error(error);
    return gantry::launcher::kOwnError;
  }
}
