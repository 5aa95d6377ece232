#include "launcher/run/processes/reaper.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace gantry::launcher {
namespace {

constexpr const char* kReaperName = "glaunch-reaper";

enum class Word : std::int32_t { add, remove, dismiss };

// Smaller than PIPE_BUF: ranks and launcher write whole messages without a lock.
struct Note {
  Word word;
  std::int32_t group;
};

void send(int pipe, Note note) noexcept {
  while (write(pipe, &note, sizeof note) < 0 && errno == EINTR) {
  }
}

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The environment of a process, empty if it cannot be read. A first thread that has ended has none,
// so the others are asked.
std::string environment_of(const std::filesystem::path& process) {
  std::string text = contents_of(process / "environ");
  std::error_code ignored;
  for (std::filesystem::directory_iterator thread(process / "task", ignored), end;
       text.empty() && thread != end; thread.increment(ignored)) {
    text = contents_of(thread->path() / "environ");
  }
  return text;
}

// Processes of this job, wherever they went: the job's id is in their environment, with ".1" and so
// on behind it after restarts.
std::vector<pid_t> processes_of(const std::string& job_id) {
  const std::string mark = "GANTRY_JOB_ID=" + job_id;
  std::vector<pid_t> found;
  std::error_code ignored;
  for (std::filesystem::directory_iterator process("/proc", ignored), end; process != end;
       process.increment(ignored)) {
    const pid_t pid = std::atoi(process->path().filename().c_str());
    if (pid <= 0 || pid == getpid() || is_reaper(pid)) continue;
    std::istringstream environment(environment_of(process->path()));
    for (std::string variable; std::getline(environment, variable, '\0');) {
      if (variable == mark || variable.starts_with(mark + ".")) {
        found.push_back(pid);
        break;
      }
    }
  }
  return found;
}

void clean_up(const std::set<pid_t>& groups, const std::string& job_id,
              const std::string& scratch_directory) {
  for (const pid_t group : groups) kill(-group, SIGKILL);
  // One that forks or executes a program while it is being looked for can be missed, so look until
  // no process is found several times in a row.
  constexpr int kQuietRounds = 3;
  int quiet = 0;
  for (int round = 0; round < 100 && quiet < kQuietRounds; ++round) {
    const std::vector<pid_t> rest = processes_of(job_id);
    quiet = rest.empty() ? quiet + 1 : 0;
    for (const pid_t pid : rest) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::error_code ignored;
  std::filesystem::remove_all(scratch_directory, ignored);
}

[[noreturn]] void stand_guard(int pipe, int ready, const std::string& job_id,
                              const std::string& scratch_directory) {
  setsid();
  prctl(PR_SET_NAME, kReaperName);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  close(ready);
  // Readers that wait for the end of the launcher's output must not wait for this process.
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {0, 1, 2}) dup2(null, fd);
  dup2(pipe, 3);
  close_range(4, ~0U, 0);
  if (chdir("/") != 0) _exit(1);

  std::set<pid_t> groups;
  for (;;) {
    Note note{};
    const ssize_t got = read(3, &note, sizeof note);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof note) break;
    switch (note.word) {
      case Word::add:
        groups.insert(note.group);
        break;
      case Word::remove:
        groups.erase(note.group);
        break;
      case Word::dismiss:
        _exit(0);
    }
  }
  clean_up(groups, job_id, scratch_directory);
  _exit(0);
}

}  // namespace

Reaper::Reaper(const std::string& job_id, const std::string& scratch_directory) {
  std::array<int, 2> ends{};
  std::array<int, 2> ready{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0 || pipe2(ready.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "pipe2");
  }
  pid_ = fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    close(ends[1]);
    stand_guard(ends[0], ready[1], job_id, scratch_directory);
  }
  close(ends[0]);
  close(ready[1]);
  pipe_ = ends[1];
  // Other reapers know it by its name, and whoever kills the launcher's process group must not meet
  // it there.
  char byte = 0;
  while (read(ready[0], &byte, 1) < 0 && errno == EINTR) {
  }
  close(ready[0]);
}

Reaper::~Reaper() { dismiss(); }

void Reaper::add_group(pid_t group) const noexcept { send(pipe_, {Word::add, group}); }

void Reaper::remove_group(pid_t group) const noexcept { send(pipe_, {Word::remove, group}); }

void Reaper::clean_up() noexcept {
  if (pipe_ < 0) return;
  close(std::exchange(pipe_, -1));
  wait_for_end();
}

void Reaper::dismiss() noexcept {
  if (pipe_ < 0) return;
  send(pipe_, {Word::dismiss, 0});
  close(std::exchange(pipe_, -1));
  wait_for_end();
}

void Reaper::wait_for_end() noexcept {
  while (pid_ > 0 && waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

bool is_reaper(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  return std::getline(file, name) && name == kReaperName;
}

}  // namespace gantry::launcher
