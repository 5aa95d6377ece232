// A helper program that a test talks with, line by line.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

extern char** environ;

namespace gantry::testing {

/// A running program whose standard input and output are in the test's hands. The destructor kills
/// it. Thread safety: one thread at a time.
class PipeProcess {
 public:
  /// Throws: std::system_error when the program cannot be started.
  explicit PipeProcess(std::vector<std::string> argv) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    check(pipe2(in.data(), O_CLOEXEC) == 0 ? 0 : errno);
    check(pipe2(out.data(), O_CLOEXEC) == 0 ? 0 : errno);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    std::vector<char*> arguments;
    for (std::string& text : argv) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    const int status =
        posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    input_ = fdopen(in[1], "w");
    output_ = fdopen(out[0], "r");
    if (status != 0) {
      pid_ = -1;
      close_pipes();
      check(status);
    }
  }
  ~PipeProcess() {
    if (pid_ > 0) {
      kill(SIGKILL);
      wait();
    }
    close_pipes();
  }
  PipeProcess(const PipeProcess&) = delete;
  PipeProcess& operator=(const PipeProcess&) = delete;

  [[nodiscard]] int pid() const { return pid_; }
  /// The next line, without its end; empty when the program has closed its output.
  [[nodiscard]] std::string read_line() {
    std::string line;
    for (int c = std::fgetc(output_); c != EOF && c != '\n'; c = std::fgetc(output_)) {
      line.push_back(static_cast<char>(c));
    }
    return line;
  }
  void write_line(const std::string& line) {
    std::fputs((line + "\n").c_str(), input_);
    std::fflush(input_);
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  /// Stops the program and returns when its last thread has stopped: until then the others run on.
  void stop() const {
    kill(SIGSTOP);
    int status = 0;
    while (waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    if (!WIFSTOPPED(status)) throw std::logic_error("PipeProcess: the program ended");
  }
  /// Waits for the end; the exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  static void check(int error) {
    if (error != 0) throw std::system_error(error, std::generic_category(), "PipeProcess");
  }
  void close_pipes() {
    std::fclose(input_);
    std::fclose(output_);
  }

  pid_t pid_ = -1;
  std::FILE* input_ = nullptr;
  std::FILE* output_ = nullptr;
};

}  // namespace gantry::testing
