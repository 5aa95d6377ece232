#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <variant>
#include <vector>

#include "launcher/env/environment.hpp"
#include "launcher/run/processes/reaper.hpp"
#include "machine/topology/binding.hpp"

namespace gantry::launcher {

/// A program could not be started.
struct ExecFailure {
  int error = 0;        ///< errno
  std::string message;  ///< for the user

  /// 127 if there is no such program, else 126, as shells have it.
  [[nodiscard]] int exit_code() const;
};

/// Finds `program` as execvp would: as it is if it has a slash, else in the directories of `path`.
[[nodiscard]] std::variant<std::string, ExecFailure> find_program(const std::string& program,
                                                                  const std::string& path);

/// The program to start, and its surroundings.
struct SpawnRequest {
  std::string executable;
  std::vector<std::string> arguments;  ///< the program's name first
  Environment environment;
  int stdin_fd = -1;     ///< becomes descriptor 0; -1: /dev/null
  int liveness_fd = -1;  ///< stays open in the child under the same number
  rlimit descriptors{};  ///< the limit of open files that the child gets
  machine::Binding binding{std::nullopt, std::nullopt};  ///< its CPUs and memory
};

/// Raises this process's limit of open files as far as it goes; returns the limit before.
/// Throws: gantry::Error if that is less than `ranks` ranks need.
[[nodiscard]] rlimit reserve_descriptors(int ranks);

/// A started process: leader of a process group of its own.
struct Process {
  pid_t pid = -1;
  int stdout_fd = -1;  ///< read end, non-blocking
  int stderr_fd = -1;
  machine::BindingErrors binding_errors;  ///< it runs without what failed
};

/// Starts a process. The kernel kills it when this process dies; `reaper` knows its group before it
/// executes. Returns only when the program runs or has failed to start.
/// Call it from the main thread only: that thread's end counts as the parent's.
[[nodiscard]] std::variant<Process, ExecFailure> spawn(const SpawnRequest& request,
                                                       const Reaper& reaper);

/// Replaces this process by the program. Returns the errno if that fails.
[[nodiscard]] int execute(const std::string& executable, std::vector<std::string> arguments,
                          const Environment& environment);

/// The running processes whose parent is this one. `proc` is where the kernel lists processes.
[[nodiscard]] std::vector<pid_t> child_processes(const std::string& proc = "/proc");

}  // namespace gantry::launcher
