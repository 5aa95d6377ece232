#include "snapshots/snapshot_tool.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <gantry/core/error.hpp>
#include <gantry/extend/unique_fd.hpp>

#include "core/env/env_check.hpp"
#include "core/env/settings.hpp"
#include "core/files/code_file.hpp"
#include "core/processes/spawn_settings.hpp"
#include "core/text/escaped_text.hpp"

namespace gantry::memory {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTool = "gantry-snapshot";
constexpr std::string_view kDone = "wrote ";  // begins the tool's line on stdout

// Where gantry's programs are, seen from the folder of the file that contains gantry: a library in
// lib, a program in bin, and a library in lib/x86_64-linux-gnu or a test in tests/bin.
constexpr const char* kProgramFolders[] = {"../bin", ".", "../../bin"};

// Anybody may put programs into some of these folders, such as /tmp/bin for /tmp/lib.
std::optional<fs::path> find_beside(const fs::path& gantry_file) {
  if (gantry_file.empty()) return std::nullopt;
  for (const char* folder : kProgramFolders) {
    const fs::path program = (gantry_file.parent_path() / folder / kTool).lexically_normal();
    if (is_program(program) && check_code_file(program, CodeOrigin::found, gantry_file).ok()) {
      return program;
    }
  }
  return std::nullopt;
}

// Note [Running gantry-snapshot]
// The library runs inside programs with signal handlers, descriptors and children of their own:
//  1. The JSON file loses its name before it is written, so an early end of the program leaves no
//     file behind.
//  2. Descriptors for the tool are above 2. A closed standard stream of the program would otherwise
//     give its number to one of them.
//  3. The tool starts with default signal actions and an empty signal mask.
//  4. A program may reap every child itself: SIGCHLD is ignored, or a handler calls waitpid(-1).
//     The tool's line on stdout therefore reports success, not its exit status.
//  5. The tool prints into a file in memory. A child that another thread forks meanwhile would keep
//     the end of a pipe open, and the library would wait for that child.

// Takes the result of a system call that opens a file.
UniqueFd checked(int fd) {
  if (fd < 0) throw Error(std::strerror(errno));
  return UniqueFd(fd);
}

UniqueFd copy_above_standard_streams(int fd) {
  return checked(fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
}

std::string read_from_start(int fd) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t count = pread(fd, buffer, sizeof(buffer), static_cast<off_t>(text.size()));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  }
}

// How a child ended, as the end of a sentence.
std::string await_end(pid_t child) {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended != child) return "ended without a message";
  if (WIFSIGNALED(status)) return fmt::format("ended by signal {}", WTERMSIG(status));
  return fmt::format("ended with exit code {} and without a message", WEXITSTATUS(status));
}

bool reports_success(std::string_view text) {
  return text.starts_with(kDone) || text.find(fmt::format("\n{}", kDone)) != std::string_view::npos;
}

}  // namespace

fs::path find_snapshot_tool(const fs::path& gantry_file) {
  const std::string named = env::kSnapshotTool.text();
  if (!named.empty()) {
    if (!is_program(named)) {
      throw Error(fmt::format("{}: expected an executable file, but got '{}'",
                              env::kSnapshotTool.name(), named));
    }
    if (const CodeFile file = check_code_file(named, CodeOrigin::named); !file.ok()) {
      throw Error(fmt::format("{}: failed to use '{}': {}", env::kSnapshotTool.name(), named,
                              file.problem));
    }
    return named;
  }
  if (const std::optional<fs::path> found = find_beside(gantry_file)) return *found;
  if (const std::optional<fs::path> found = find_in_path(kTool)) return *found;
  throw Error(fmt::format(
      "the program {} is neither beside '{}' nor in PATH; install gantry's programs or set {} to "
      "its path, or save a .json file, which needs no program",
      kTool, gantry_file.string(), env::kSnapshotTool.name()));
}

void run_snapshot_tool(const fs::path& tool, int json, const fs::path& output) {
  const UniqueFd input = copy_above_standard_streams(json);
  const UniqueFd printed =
      copy_above_standard_streams(checked(memfd_create("gantry-snapshot", MFD_CLOEXEC)).get());
  std::string program = tool.string();
  std::string source = "-";
  std::string option = "--output=" + output.string();
  char* const arguments[] = {program.data(), source.data(), option.data(), nullptr};
  // Variables of the caller of a program with more rights are not the tool's, either.
  char* no_variables[] = {nullptr};
  char** const variables = env::is_privileged() ? no_variables : environ;
  const SpawnSettings settings(input.get(), printed.get());
  pid_t child = -1;
  const int failure = posix_spawn(&child, program.c_str(), settings.actions(),
                                  settings.attributes(), arguments, variables);
  if (failure != 0) throw Error(fmt::format("'{}': {}", program, std::strerror(failure)));
  const std::string end = await_end(child);
  const std::string text = read_from_start(printed.get());
  if (reports_success(text)) return;
  const std::string message =
      escape_control_characters(std::string_view(text).substr(0, text.find_last_not_of('\n') + 1));
  throw Error(message.empty() ? fmt::format("'{}' {}", program, end) : message);
}

}  // namespace gantry::memory
