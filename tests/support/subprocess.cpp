#include "tests/support/subprocess.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

extern char** environ;

namespace gantry::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Pipe {
  int read_end = -1;
  int write_end = -1;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  return {ends[0], ends[1]};
}

std::vector<std::string> merged_environment(
    const std::map<std::string, std::optional<std::string>>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!changes.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : changes) {
    if (value) result.push_back(name + "=" + *value);
  }
  return result;
}

std::vector<char*> c_array(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

pid_t spawn(Command& command, int in, int out, int err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);

  std::vector<std::string> environment = merged_environment(command.environment);
  pid_t pid = -1;
  const int status = posix_spawnp(&pid, command.argv.at(0).c_str(), &actions, &attributes,
                                  c_array(command.argv).data(), c_array(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (status != 0) {
    throw std::system_error(status, std::generic_category(), "starting " + command.argv.at(0));
  }
  return pid;
}

void write_all_and_close(int fd, const std::string& text) {
  // A program need not read its input: the signal of a closed pipe stays pending in this thread and
  // ends with it.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  close(fd);
}

}  // namespace

struct Subprocess::State {
  pid_t pid = -1;
  Clock::time_point deadline;

  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  int open_outputs = 2;
  int wait_status = 0;
  std::string out;
  std::string err;
  std::vector<std::thread> threads;

  void collect(int fd, std::string& into) {
    std::array<char, 4096> buffer{};
    while (true) {
      const ssize_t count = read(fd, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      const std::lock_guard lock(mutex);
      into.append(buffer.data(), static_cast<std::size_t>(count));
      changed.notify_all();
    }
    close(fd);
    const std::lock_guard lock(mutex);
    --open_outputs;
    changed.notify_all();
  }

  void reap() {
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    // Reaped under the lock: until then the pid cannot belong to anybody else, so signals under the
    // lock are safe.
    const std::lock_guard lock(mutex);
    waitpid(pid, &wait_status, 0);
    ended = true;
    changed.notify_all();
  }

  // The group outlives its leader while any member is alive, and its number is not reused until
  // then.
  void kill_group_locked() const { kill(-pid, SIGKILL); }
};

Subprocess::Subprocess(Command command) : state_(std::make_unique<State>()) {
  const Pipe in = make_pipe();
  const Pipe out = make_pipe();
  const Pipe err = make_pipe();
  State& state = *state_;
  state.deadline = Clock::now() + command.timeout;
  try {
    state.pid = spawn(command, in.read_end, out.write_end, err.write_end);
  } catch (...) {
    for (const Pipe& pipe : {in, out, err}) {
      close(pipe.read_end);
      close(pipe.write_end);
    }
    throw;
  }
  close(in.read_end);
  close(out.write_end);
  close(err.write_end);
  state.threads.emplace_back([&state, fd = out.read_end] { state.collect(fd, state.out); });
  state.threads.emplace_back([&state, fd = err.read_end] { state.collect(fd, state.err); });
  state.threads.emplace_back(
      [fd = in.write_end, text = std::move(command.input)] { write_all_and_close(fd, text); });
  state.threads.emplace_back([&state] { state.reap(); });
}

Subprocess::Subprocess(Subprocess&&) noexcept = default;

Subprocess::~Subprocess() {
  if (!state_) return;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->ended || state_->open_outputs > 0) state_->kill_group_locked();
  }
  for (std::thread& thread : state_->threads) thread.join();
}

int Subprocess::pid() const { return state_->pid; }

void Subprocess::send_signal(int signal) const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->ended) kill(state_->pid, signal);
}

void Subprocess::send_group_signal(int signal) const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->ended) kill(-state_->pid, signal);
}

bool Subprocess::wait_for_output(const std::string& text, std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  const auto found = [&] { return state_->out.find(text) != std::string::npos; };
  state_->changed.wait_for(lock, timeout, [&] { return found() || state_->open_outputs == 0; });
  return found();
}

Outcome Subprocess::wait() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto is_over = [&] { return state.ended && state.open_outputs == 0; };
  Outcome outcome;
  if (!state.changed.wait_until(lock, state.deadline, is_over)) {
    outcome.timed_out = true;
    state.kill_group_locked();
    state.changed.wait(lock, is_over);
  }
  outcome.out = state.out;
  outcome.err = state.err;
  if (WIFSIGNALED(state.wait_status)) {
    outcome.signal = WTERMSIG(state.wait_status);
  } else {
    outcome.exit_code = WEXITSTATUS(state.wait_status);
  }
  return outcome;
}

std::string Outcome::describe() const {
  const std::string how = timed_out     ? "was killed: its time was over"
                          : signal != 0 ? "was ended by signal " + std::to_string(signal)
                                        : "exited with " + std::to_string(exit_code);
  return "the program " + how + "\n--- stdout ---\n" + out + "--- stderr ---\n" + err;
}

Outcome run_command(Command command) { return Subprocess(std::move(command)).wait(); }

}  // namespace gantry::testing
