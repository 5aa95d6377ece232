#include "launcher/run/processes/process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

#include <gantry/core/error.hpp>

namespace gantry::launcher {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe open_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  return {ends[0], ends[1]};
}

bool is_executable_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// The data that the child needs, prepared by the parent: between fork and exec nothing may
// allocate.
struct ChildPlan {
  const char* executable;
  char* const* arguments;
  char* const* environment;
  int stdin_fd;
  int stdout_fd;
  int stderr_fd;
  int liveness_fd;
  int status_fd;
  pid_t parent;
  rlimit descriptors;
  const machine::Binding* binding;
};

// The report of the child before it executes, or because it cannot.
struct ChildStatus {
  int exec_error = 0;
  machine::BindingErrors binding;
};

// Runs in the child, in the memory of the parent: it changes nothing there but its own frame, which
// is not the caller's. Async-signal-safe calls only.
[[noreturn, gnu::noinline]] void become(const ChildPlan& plan, const Reaper& reaper) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(125);  // the parent died before the line above
  reaper.add_group(getpid());

  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);

  setrlimit(RLIMIT_NOFILE, &plan.descriptors);
  ChildStatus status;
  status.binding = plan.binding->apply();
  const bool placed = dup2(plan.stdin_fd, STDIN_FILENO) >= 0 &&
                      dup2(plan.stdout_fd, STDOUT_FILENO) >= 0 &&
                      dup2(plan.stderr_fd, STDERR_FILENO) >= 0;
  if (plan.liveness_fd >= 0) fcntl(plan.liveness_fd, F_SETFD, 0);
  const auto report = [&] {
    [[maybe_unused]] const auto written = write(plan.status_fd, &status, sizeof status);
  };
  const int placing_error = placed ? 0 : errno;
  if (status.binding != machine::BindingErrors{}) report();
  if (placed) execve(plan.executable, plan.arguments, plan.environment);
  status.exec_error = placed ? errno : placing_error;
  report();
  _exit(127);
}

// The numbers among the names in a directory of /proc.
std::vector<pid_t> numbers_in(const std::string& path) {
  std::vector<pid_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
  while (const dirent* entry = directory ? readdir(directory.get()) : nullptr) {
    if (const pid_t number = std::atoi(entry->d_name); number > 0) numbers.push_back(number);
  }
  return numbers;
}

// The children of this process's threads, zombies included. None if the kernel does not list them.
// The list is whole: it lacks processes only where a child is reaped meanwhile, and only the caller
// reaps.
std::optional<std::vector<pid_t>> listed_children(const std::string& proc) {
  std::vector<pid_t> children;
  for (const pid_t thread : numbers_in(proc + "/self/task")) {
    std::ifstream file(fmt::format("{}/self/task/{}/children", proc, thread));
    if (!file) return std::nullopt;
    for (pid_t pid = 0; file >> pid;) children.push_back(pid);
  }
  return children;
}

// /proc shows the state of the first thread, which may end before the others.
bool is_running_child(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == 0;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

rlimit reserve_descriptors(int ranks) {
  // Two pipes, a process descriptor and two log files a rank, and what glaunch, its store and a
  // spawn need themselves.
  const rlim_t needed = 6 * static_cast<rlim_t>(ranks) + 48;
  rlimit before{};
  if (getrlimit(RLIMIT_NOFILE, &before) != 0) {
    throw std::system_error(errno, std::generic_category(), "getrlimit");
  }
  if (before.rlim_max < needed) {
    throw Error(fmt::format("{} ranks need {} open files, but the limit is {} (ulimit -n)", ranks,
                            needed, before.rlim_max));
  }
  // All that is to be had: how many connections to the store a rank makes is its own affair.
  const rlimit raised{before.rlim_max, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

int ExecFailure::exit_code() const { return error == ENOENT || error == ENOTDIR ? 127 : 126; }

std::variant<std::string, ExecFailure> find_program(const std::string& program,
                                                    const std::string& path) {
  const auto failure = [&](int error, std::string_view hint) {
    return ExecFailure{error,
                       fmt::format("cannot start '{}': {}{}", program, std::strerror(error), hint)};
  };
  if (program.empty()) return failure(ENOENT, "");
  if (program.find('/') != std::string::npos) {
    struct stat status {};
    if (stat(program.c_str(), &status) != 0) return failure(errno, "");
    if (S_ISDIR(status.st_mode)) return failure(EISDIR, "");
    if (!is_executable_file(program)) return failure(EACCES, "");
    return program;
  }
  bool forbidden = false;
  std::istringstream directories(path + ':');  // or an empty last one would not be seen
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string candidate = (directory.empty() ? "." : directory) + "/" + program;
    if (is_executable_file(candidate)) return candidate;
    struct stat status {};
    forbidden = forbidden || (stat(candidate.c_str(), &status) == 0 && S_ISREG(status.st_mode));
  }
  if (is_executable_file("./" + program)) {
    return failure(ENOENT, fmt::format(" in PATH (did you mean './{}'?)", program));
  }
  return forbidden ? failure(EACCES, "") : failure(ENOENT, " in PATH");
}

std::variant<Process, ExecFailure> spawn(const SpawnRequest& request, const Reaper& reaper) {
  std::vector<std::string> arguments = request.arguments;
  std::vector<std::string> variables;
  for (const auto& [name, value] : request.environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> variable_pointers = pointers(variables);

  const Pipe out = open_pipe();
  const Pipe err = open_pipe();
  const Pipe status = open_pipe();
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) throw std::system_error(errno, std::generic_category(), "/dev/null");
  const ChildPlan plan{request.executable.c_str(),
                       argument_pointers.data(),
                       variable_pointers.data(),
                       request.stdin_fd >= 0 ? request.stdin_fd : null,
                       out.write_end,
                       err.write_end,
                       request.liveness_fd,
                       status.write_end,
                       getpid(),
                       request.descriptors,
                       &request.binding};
  // The child borrows the memory of this process, which waits anyway until the program runs. A copy
  // would cost as much as the start of a small program.
  const pid_t pid = vfork();           // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid == 0) become(plan, reaper);  // NOLINT(clang-analyzer-unix.Vfork)
  int error = pid < 0 ? errno : 0;
  ChildStatus child;
  for (const int fd : {out.write_end, err.write_end, status.write_end, null}) close(fd);
  if (pid > 0) {
    // Both sides set the group, so that it is right whichever runs first.
    setpgid(pid, pid);
    // The write end is closed by exec: end of file means that the program runs.
    ssize_t got = 0;
    do {
      ChildStatus next;
      got = read(status.read_end, &next, sizeof next);
      if (got == sizeof next) child = next;
    } while (got > 0 || (got < 0 && errno == EINTR));
    error = child.exec_error;
    if (error != 0) {
      while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      reaper.remove_group(pid);
    }
  }
  close(status.read_end);
  if (error != 0) {
    close(out.read_end);
    close(err.read_end);
    return ExecFailure{
        error,
        fmt::format("cannot start '{}': {}{}", request.arguments.front(), std::strerror(error),
                    error == ENOENT    ? " (its interpreter is missing)"
                    : error == ENOEXEC ? " (a script needs a first line such as #!/bin/sh)"
                                       : "")};
  }
  for (const int fd : {out.read_end, err.read_end}) {
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    // Room for bursts; a refusal (too much for an unprivileged user) does no harm.
    fcntl(fd, F_SETPIPE_SZ, 1 << 20);
  }
  return Process{pid, out.read_end, err.read_end, child.binding};
}

int execute(const std::string& executable, std::vector<std::string> arguments,
            const Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> variable_pointers = pointers(variables);
  execve(executable.c_str(), argument_pointers.data(), variable_pointers.data());
  return errno;
}

std::vector<pid_t> child_processes(const std::string& proc) {
  std::optional<std::vector<pid_t>> candidates = listed_children(proc);
  if (!candidates) candidates = numbers_in(proc);
  std::erase_if(*candidates, [](pid_t pid) { return !is_running_child(pid); });
  return *candidates;
}

}  // namespace gantry::launcher
