// Runs glaunch and looks at what is left of a job.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::testing {

/// A test with a directory of its own and short ways to start glaunch.
class LaunchTest : public ::testing::Test {
 protected:
  LaunchTest() {
    std::string name = (std::filesystem::temp_directory_path() / "launch-test-XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~LaunchTest() override {
    // A reaper that is still cleaning up may remove entries at the same time.
    std::error_code raced;
    while (std::filesystem::exists(directory_)) std::filesystem::remove_all(directory_, raced);
  }

  /// glaunch with these arguments, on 4 simulated devices, with its scratch files in the directory.
  Command launch(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), GANTRY_TEST_GLAUNCH);
    return {.argv = std::move(arguments),
            .environment = {{"GANTRY_SIM_DEVICES", "4"}, {"TMPDIR", directory_}},
            .timeout = std::chrono::seconds(40)};
  }
  /// The same for the test's actor: launch options, then what it does.
  Command act(std::vector<std::string> options, const std::vector<std::string>& what) const {
    options.push_back(std::string(GANTRY_TEST_PROGRAM_DIR) + "/launch_actor");
    options.insert(options.end(), what.begin(), what.end());
    return launch(std::move(options));
  }
  /// A command with glaunch's messages among its output.
  static Command merged(Command command) {
    command.argv.insert(command.argv.begin(), {"sh", "-c", "exec \"$@\" 2>&1", "sh"});
    return command;
  }
  /// A script of a rank that starts a daemon, and whose pids
  /// expect_killed_launcher_leaves_nothing() reads.
  static constexpr const char* kWithDaemon =
      "setsid sleep 1000 & echo pid daemon $!; echo pid rank $$; wait";
  /// Kills the launcher of a job in which ranks 0 and 1 run kWithDaemon.
  void expect_killed_launcher_leaves_nothing(const Command& command) const;
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  /// What the actor's "write-environment" wrote for a rank.
  std::map<std::string, std::string> environment_of(int rank) const;
  /// True if no job left a file in its scratch directory's place.
  bool scratch_is_clean() const {
    return std::none_of(std::filesystem::directory_iterator(directory_), {}, [](const auto& entry) {
      return entry.path().filename().string().starts_with("glaunch-");
    });
  }

  std::string directory_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline std::map<std::string, std::string> LaunchTest::environment_of(int rank) const {
  std::map<std::string, std::string> result;
  for (const std::string& line : lines_of(read_file(path(std::to_string(rank))))) {
    const auto equals = line.find('=');
    if (equals != std::string::npos) result[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return result;
}

/// Process ids in lines such as "[2] pid daemon 1234".
inline std::vector<int> pids_in(const std::string& text, const std::string& who) {
  std::vector<int> pids;
  for (const std::string& line : lines_of(text)) {
    const std::string mark = "pid " + who + " ";
    const auto at = line.find(mark);
    if (at != std::string::npos) pids.push_back(std::stoi(line.substr(at + mark.size())));
  }
  return pids;
}

/// Waits until a process has ended (a zombie has); false after 20 s.
inline bool ends(int pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return true;
  pollfd entry{fd, POLLIN, 0};
  const bool ended = poll(&entry, 1, 20'000) > 0;
  close(fd);
  return ended;
}

inline void LaunchTest::expect_killed_launcher_leaves_nothing(const Command& command) const {
  Subprocess job(command);
  ASSERT_TRUE(eventually(
      [&] { return job.wait_for_output("[0] pid rank") && job.wait_for_output("[1] pid rank"); }));
  job.send_signal(SIGKILL);
  const Outcome outcome = job.wait();
  for (const char* who : {"daemon", "rank"}) {
    const std::vector<int> pids = pids_in(outcome.out, who);
    EXPECT_EQ(pids.size(), 2U) << outcome.describe();
    for (const int pid : pids) EXPECT_TRUE(ends(pid)) << who;
  }
  EXPECT_TRUE(eventually([&] { return scratch_is_clean(); }));
}

/// Processes that are children of `parent`, with their names.
inline std::vector<std::pair<int, std::string>> children_of(int parent) {
  std::vector<std::pair<int, std::string>> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0])) == 0)
      continue;
    const std::string stat = read_file(entry.path().string() + "/stat");
    const auto open = stat.find('(');
    const auto close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos) continue;
    std::istringstream rest(stat.substr(close + 1));
    char state = 0;
    int ppid = 0;
    rest >> state >> ppid;
    if (ppid == parent) {
      children.emplace_back(std::stoi(stat), stat.substr(open + 1, close - open - 1));
    }
  }
  return children;
}

}  // namespace gantry::testing
