// A program in a terminal of its own.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gantry/extend/unique_fd.hpp>

extern char** environ;

namespace gantry::testing {

/// A program that has a pseudo terminal as its standard streams and controlling terminal. The
/// destructor kills it. Thread safety: one thread at a time.
class TerminalProcess {
 public:
  /// Throws: std::system_error if the program cannot be started.
  TerminalProcess(std::vector<std::string> argv, unsigned short columns, unsigned short rows)
      : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    check(master_ && grantpt(master_.get()) == 0 && unlockpt(master_.get()) == 0);
    const std::string name = ptsname(master_.get());
    // Open as long as the test looks, so that settings outlive the program.
    slave_ = UniqueFd(open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    check(static_cast<bool>(slave_));
    resize(columns, rows);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // The leader of a new session gets the first terminal that it opens as its own.
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, name.c_str(), O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    std::vector<char*> arguments;
    for (std::string& text : argv) arguments.push_back(text.data());
    arguments.push_back(nullptr);
    errno = posix_spawn(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (errno != 0) pid_ = -1;
    check(errno == 0);
  }
  ~TerminalProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  TerminalProcess(const TerminalProcess&) = delete;
  TerminalProcess& operator=(const TerminalProcess&) = delete;

  [[nodiscard]] int pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  void press(const std::string& keys) const {
    check(write(master_.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  void resize(unsigned short columns, unsigned short rows) const {
    const winsize size{rows, columns, 0, 0};
    check(ioctl(master_.get(), TIOCSWINSZ, &size) == 0);
  }
  /// The settings of the terminal.
  [[nodiscard]] termios settings() const {
    termios settings{};
    check(tcgetattr(slave_.get(), &settings) == 0);
    return settings;
  }
  /// Makes the terminal take no more output.
  void suspend_output() const { check(tcflow(slave_.get(), TCOOFF) == 0); }
  /// Closes the terminal, as a broken connection does.
  void disconnect() {
    slave_.reset();
    master_.reset();
  }

  /// Reads until what came since the last call contains `text`; returns all of that. Without `text`
  /// within a generous time it returns what came.
  std::string read_until(const std::string& text) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::string output = std::exchange(rest_, {});
    for (std::size_t found = 0; std::chrono::steady_clock::now() < deadline;) {
      found = output.find(text);
      if (found != std::string::npos) {
        rest_ = output.substr(found + text.size());
        return output.substr(0, found + text.size());
      }
      read_some(output, 100);
    }
    return output;
  }
  /// What has come and was not read.
  std::string read_rest() {
    std::string output = std::exchange(rest_, {});
    while (read_some(output, 0)) {
    }
    return output;
  }

  /// Waits until the program has stopped; false if it has ended.
  bool stops() {
    int status = 0;
    while (waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    if (WIFSTOPPED(status)) return true;
    pid_ = -1;
    return false;
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
  static void check(bool succeeded) {
    if (!succeeded) throw std::system_error(errno, std::generic_category(), "TerminalProcess");
  }
  bool read_some(std::string& output, int timeout_ms) const {
    pollfd entry{master_.get(), POLLIN, 0};
    char bytes[4096];
    if (poll(&entry, 1, timeout_ms) <= 0) return false;
    const ssize_t count = read(master_.get(), bytes, sizeof bytes);
    if (count > 0) output.append(bytes, static_cast<std::size_t>(count));
    return count > 0;
  }

  UniqueFd master_;
  UniqueFd slave_;
  pid_t pid_ = -1;
  std::string rest_;
};

}  // namespace gantry::testing
