#include "tools/replay/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "tools/replay/report.hpp"

namespace gantry::replay {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::vector<std::string> arguments_of(const Options& options, const std::string& dump,
                                      const std::string& backend, const std::string& json) {
  std::vector<std::string> arguments = {"gantry-replay",
                                        dump,
                                        "--quiet",
                                        "--backend",
                                        backend,
                                        "--json",
                                        json,
                                        "--device",
                                        fmt::format("{}", options.device),
                                        "--repeat",
                                        fmt::format("{}", options.repeat),
                                        "--max-seconds",
                                        fmt::format("{}", options.max_seconds),
                                        "--threads",
                                        options.threads_as_logged ? "as-logged" : "one"};
  if (options.limit_bytes) {
    arguments.insert(arguments.end(), {"--limit", fmt::format("{}", *options.limit_bytes)});
  }
  if (options.limit_factor) {
    arguments.insert(arguments.end(), {"--limit-factor", fmt::format("{}", *options.limit_factor)});
  }
  return arguments;
}

// Runs this program; its messages go to the descriptor `errors`. Returns wait's status.
int run_self(const std::vector<std::string>& arguments, int errors) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  pid_t pid = 0;
  const int code = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) throw Error(fmt::format("cannot start gantry-replay again: {}", strerror(code)));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) throw Error(fmt::format("waitpid: {}", strerror(errno)));
  }
  return status;
}

// The first line, without the program's name.
std::string first_line(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  constexpr std::string_view kPrefix = "gantry-replay: ";
  if (line.starts_with(kPrefix)) line.erase(0, kPrefix.size());
  return line;
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& suffix) {
  path_ = env::get("TMPDIR").value_or("/tmp") + "/gantry-replay-XXXXXX" + suffix;
  file_ = UniqueFd(::mkostemps(path_.data(), static_cast<int>(suffix.size()), O_CLOEXEC));
  if (!file_) throw Error(fmt::format("cannot make '{}': {}", path_, strerror(errno)));
}

TemporaryFile::~TemporaryFile() { ::unlink(path_.c_str()); }

ReplayResult measure_in_child(const Options& options, const std::string& dump,
                              const std::string& backend) {
  const TemporaryFile json(".json");
  const TemporaryFile errors(".txt");
  const int status =
      run_self(arguments_of(options, dump, backend, json.path()), errors.descriptor());
  // The exit code tells of an out of memory too; only the results tell it from a failure.
  if (WIFEXITED(status)) {
    const std::string text = read_text(json.path());
    if (!text.empty()) {
      const std::vector<ReplayResult> results = results_from_json(text);
      if (results.size() == 1) return results.front();
    }
  }
  ReplayResult failed;
  failed.backend = backend;
  const std::string line = first_line(read_text(errors.path()));
  if (WIFSIGNALED(status)) {
    failed.error = fmt::format("ended by SIG{}{}", sigabbrev_np(WTERMSIG(status)),
                               line.empty() ? "" : ": " + line);
  } else {
    failed.error = line.empty() ? fmt::format("ended with code {}", WEXITSTATUS(status)) : line;
  }
  return failed;
}

}  // namespace gantry::replay
