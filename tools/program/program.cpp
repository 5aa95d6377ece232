#include "tools/program/program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

#include <gantry/core/error.hpp>

#include "core/env/env_check.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry {
namespace {

constexpr int kError = 2;

// A file that took the number of a closed standard stream would be mistaken for it: a table would
// be written into the memory of a simulated device. What is opened instead, the wrong way round,
// fails as the closed stream does.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    const int null = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (null >= 0 && null != fd) close(null);
  }
}

// Throws: Error if what was printed did not arrive.
void flush_standard_output() {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed_before) return;
  throw Error(fmt::format("failed to write to standard output{}{}", errno != 0 ? ": " : "",
                          errno != 0 ? std::strerror(errno) : ""));
}

}  // namespace

int run_program(const std::string& name, int argc, char** argv,
                int (*run)(const std::vector<std::string>& arguments)) {
  hold_standard_streams();
  try {
    const std::vector<std::string> arguments{argv + 1, argv + argc};
    const auto is_help = [](const std::string& one) {
      return one == "--help" || one == "--version";
    };
    if (std::none_of(arguments.begin(), arguments.end(), is_help)) env::check_program();
    const int code = run(arguments);
    flush_standard_output();
    return code;
  } catch (const std::exception& error) {
    // Not fmt::print, which throws if stderr is closed; the exit code reports the error, too.
    const std::string text = escape_control_characters(error.what(), LineEnds::keep);
    std::fprintf(stderr, "%s: %s\n", name.c_str(), text.c_str());
    return kError;
  }
}

}  // namespace gantry
