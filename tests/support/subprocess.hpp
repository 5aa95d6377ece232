// Runs another program and looks at how it ended.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gantry::testing {

/// What to start, and with which surroundings.
struct Command {
  std::vector<std::string> argv;  ///< program (with a slash, or found in PATH) and its arguments
  /// Changes to this process's environment; std::nullopt removes the variable.
  std::map<std::string, std::optional<std::string>> environment = {};
  std::string input = {};                                        ///< what it reads from stdin
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  ///< then the whole group is killed
};

/// How a program ended and what it wrote.
struct Outcome {
  int exit_code = -1;  ///< −1 when a signal ended it
  int signal = 0;      ///< the signal that ended it, or 0
  /// It was killed because its time was over, or something that it had started kept its output open
  /// until then.
  bool timed_out = false;
  std::string out;
  std::string err;

  /// Everything in one text, for the message of a failing assertion.
  std::string describe() const;
};

/// A program that runs in a process group of its own.
///
/// Its output is collected by threads, so that it never blocks on a full pipe. The destructor kills
/// what still runs. Thread safety: one thread at a time.
class Subprocess {
 public:
  /// Starts `command`. Throws: std::system_error when the program cannot be started.
  explicit Subprocess(Command command);
  ~Subprocess();
  Subprocess(Subprocess&&) noexcept;
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  Subprocess& operator=(Subprocess&&) = delete;

  int pid() const;
  /// Sends `signal` to the program alone.
  void send_signal(int signal) const;
  /// Sends `signal` to the program and everything that it started.
  void send_group_signal(int signal) const;
  /// Blocks until what was written to stdout so far contains `text`, and returns whether it came
  /// before the program ended or `timeout` was over.
  bool wait_for_output(const std::string& text,
                       std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// Waits for the end, at most until `command.timeout` after the start; then kills the group.
  Outcome wait();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Starts `command` and waits for its end.
Outcome run_command(Command command);

}  // namespace gantry::testing
