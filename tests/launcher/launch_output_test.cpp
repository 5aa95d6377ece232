#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "tests/launcher/launch_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class LaunchOutputTest : public LaunchTest {};

TEST_F(LaunchOutputTest, PrefixesEveryLineWithTheRank) {
  Command command = act({}, {"print", "one\ntwo\n"});
  command.environment["GANTRY_SIM_DEVICES"] = "12";
  const Outcome outcome = run_command(std::move(command));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 24U);
  for (int rank = 0; rank < 12; ++rank) {
    const std::string prefix = "[" + std::to_string(rank) + "] ";
    EXPECT_THAT(lines, ::testing::Contains(prefix + "one"));
    EXPECT_THAT(lines, ::testing::Contains(prefix + "two"));
  }
}

TEST_F(LaunchOutputTest, PrefixTemplates) {
  EXPECT_THAT(
      lines_of(run_command(act({"-n", "2", "--prefix", "r{rank}/{local_rank}: "}, {"print", "x\n"}))
                   .out),
      UnorderedElementsAre("r0/0: x", "r1/1: x"));
  EXPECT_EQ(run_command(act({"-n", "1", "--no-prefix"}, {"print", "as it is"})).out, "as it is");
  EXPECT_THAT(run_command(act({"-n", "1", "--prefix", "{host}|"}, {"print", "x\n"})).out,
              ::testing::MatchesRegex(".+\\|x\n"));
}

TEST_F(LaunchOutputTest, PrefixesAreColouredOnRequest) {
  const auto print = [&](const std::string& color) {
    Command command = act({"-n", "2", "--color", color}, {"print", "x\n"});
    command.environment["TERM"] = "xterm";
    return lines_of(run_command(command).out);
  };
  EXPECT_THAT(print("always"),
              UnorderedElementsAre("\x1b[36m[0] \x1b[0mx", "\x1b[33m[1] \x1b[0mx"));
  EXPECT_THAT(print("never"), UnorderedElementsAre("[0] x", "[1] x"));
  EXPECT_THAT(print("auto"), UnorderedElementsAre("[0] x", "[1] x"));  // a pipe
}

// What glaunch shows on a terminal. An empty string where there is no terminal.
std::string shown_on_a_terminal(const char* type, const char* no_color) {
  int terminal = -1;
  const pid_t job = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (job < 0) return "";
  if (job == 0) {
    setenv("TERM", type, 1);
    setenv("NO_COLOR", no_color, 1);
    execl(GANTRY_TEST_GLAUNCH, "glaunch", "--cpu-only", "-n", "1", "--", "echo", "x", nullptr);
    _exit(127);
  }
  std::string shown;
  char byte = 0;
  while (read(terminal, &byte, 1) == 1) shown += byte;
  waitpid(job, nullptr, 0);
  close(terminal);
  return shown;
}

TEST_F(LaunchOutputTest, PrefixesAreColouredOnATerminal) {
  const std::string plain = shown_on_a_terminal("dumb", "");
  if (plain.empty()) GTEST_SKIP() << "needs a terminal: " << std::strerror(errno);
  EXPECT_EQ(plain, "[0] x\r\n");
  EXPECT_EQ(shown_on_a_terminal("xterm", ""), "\x1b[36m[0] \x1b[0mx\r\n");
  EXPECT_EQ(shown_on_a_terminal("xterm", "1"), "[0] x\r\n");
}

TEST_F(LaunchOutputTest, KeepsTheTwoStreamsApart) {
  const Outcome outcome = run_command(launch({"-n", "1", "sh", "-c", "echo out; echo err >&2"}));
  EXPECT_EQ(outcome.out, "[0] out\n");
  EXPECT_EQ(outcome.err, "[0] err\n");
}

TEST_F(LaunchOutputTest, EndsALastLineWithoutNewline) {
  EXPECT_THAT(lines_of(run_command(act({"-n", "3"}, {"print", "no newline"})).out),
              UnorderedElementsAre("[0] no newline", "[1] no newline", "[2] no newline"));
}

TEST_F(LaunchOutputTest, ShowsAPartialLineBeforeItsEnd) {
  // cat keeps the rank's input open until the first half was seen.
  Subprocess job(launch({"-n", "1", "sh", "-c",
                         "mkfifo " + path("go") + "; exec " + GANTRY_TEST_PROGRAM_DIR +
                             "/launch_actor print-half < " + path("go") + " "}));
  // Opening the fifo for writing lets the rank go on to its first half.
  int fd = -1;
  ASSERT_TRUE(eventually([&] { return (fd = open(path("go").c_str(), O_WRONLY)) >= 0; }));
  EXPECT_TRUE(job.wait_for_output("[0] first half"));
  ASSERT_EQ(write(fd, "go\n", 3), 3);
  close(fd);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.out, "[0] first half, second half\n");
}

// glaunch finds that the rest of a line is late when it was late itself.
TEST_F(LaunchOutputTest, ALineThatIsCompleteInThePipeIsNotShownInParts) {
  Command command = act({"-n", "1"}, {"stop-launcher"});
  command.argv.insert(command.argv.begin(), {"sh", "-c", "exec \"$@\" 2>&1", "sh"});
  const Outcome outcome = run_command(std::move(command));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(lines_of(outcome.out), ::testing::Contains("[0] first half, second half"))
      << outcome.describe();
  EXPECT_THAT(lines_of(outcome.out), ::testing::Contains("[0] other"));
}

// Rank 1 speaks while the line of rank 0 has no end, and may never get one.
TEST_F(LaunchOutputTest, ALineThatAnotherOneEndedIsNotEndedAgain) {
  const auto await = [&](const char* mark) {
    return "until [ -e " + path(mark) + " ]; do sleep 0.02; done; ";
  };
  for (const std::string end : {"true", "echo"}) {
    Subprocess job(launch({"-n", "2", "sh", "-c",
                           "if [ $RANK = 0 ]; then printf half; " + await("end") + end + "; else " +
                               await("speak") + "echo other; fi"}));
    ASSERT_TRUE(job.wait_for_output("[0] half"));
    std::ofstream(path("speak")) << "now";
    ASSERT_TRUE(job.wait_for_output("[1] other\n"));
    std::ofstream(path("end")) << "now";
    EXPECT_EQ(job.wait().out, "[0] half\n[1] other\n");
    for (const char* mark : {"speak", "end"}) std::filesystem::remove(path(mark));
  }
}

TEST_F(LaunchOutputTest, LosesNothingOfALargeOutput) {
  constexpr int kLines = 50'000;  // 100 bytes each, from 4 ranks: 20 MB
  const Outcome outcome = run_command(
      act({"--log-dir", path("logs"), "--only-rank", "1"}, {"flood", std::to_string(kLines)}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "[1] done\n");
  const std::vector<std::string> shown = lines_of(outcome.out);
  ASSERT_EQ(shown.size(), static_cast<std::size_t>(kLines));
  for (const std::string& line : shown) ASSERT_EQ(line, "[1] rank 1" + std::string(90, 'x'));
  for (int rank = 0; rank < 4; ++rank) {
    const std::string name = path("logs/rank" + std::to_string(rank));
    EXPECT_EQ(std::filesystem::file_size(name + ".out"), kLines * 97U) << name;
    EXPECT_EQ(read_file(name + ".err"), "done\n");
  }
}

TEST_F(LaunchOutputTest, ASlowReaderBlocksNoRank) {
  // Nobody reads glaunch's output until every rank has ended, and it is more than pipes and memory
  // hold: the rest waits in a file.
  constexpr int kLines = 40'000;
  const std::string script = "{ " + std::string(GANTRY_TEST_GLAUNCH) + " -n 4 --no-prefix " +
                             GANTRY_TEST_PROGRAM_DIR + "/launch_actor flood " +
                             std::to_string(kLines) + " 2>" + path("err") +
                             "; } | { while [ \"$(grep -c done " + path("err") +
                             " 2>/dev/null)\" != 4 ]; do sleep 0.05; done; wc -lc; }";
  Command command{.argv = {"sh", "-c", script},
                  .environment = {{"GANTRY_SIM_DEVICES", "4"}, {"TMPDIR", directory_}}};
  const Outcome outcome = run_command(std::move(command));
  std::istringstream counts(outcome.out);
  long lines = 0;
  long bytes = 0;
  counts >> lines >> bytes;
  // On a crowded machine the rest of a line may come late: then its first part is shown as a line.
  EXPECT_GE(lines, 4L * kLines) << outcome.describe();
  EXPECT_EQ(bytes - lines, 4L * kLines * 96) << "characters besides line ends";
}

TEST_F(LaunchOutputTest, SurvivesAReaderThatGoesAway) {
  Command command{
      .argv = {"sh", "-c",
               std::string(GANTRY_TEST_GLAUNCH) + " -n 2 --log-dir " + path("logs") + " " +
                   GANTRY_TEST_PROGRAM_DIR + "/launch_actor flood 20000 | head -n 1; echo over"},
      .environment = {{"GANTRY_SIM_DEVICES", "4"}, {"TMPDIR", directory_}}};
  const Outcome outcome = run_command(std::move(command));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(lines_of(outcome.out).size(), 2U);
  EXPECT_EQ(std::filesystem::file_size(path("logs/rank1.out")), 20'000 * 97U);
}

TEST_F(LaunchOutputTest, SaysThatOutputDoesNotArrive) {
  Command command = launch({"--cpu-only", "-n", "1", "--log-dir", path("logs"), "echo", "lost"});
  command.argv.insert(command.argv.begin(), {"sh", "-c", "exec \"$@\" > /dev/full", "sh"});
  std::filesystem::create_directory(path("logs"));
  std::filesystem::create_symlink("/dev/full", path("logs/rank0.out"));
  const Outcome outcome = run_command(std::move(command));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.err, "glaunch: warning: --log-dir: cannot write all of '" + path("logs") +
                             "/rank0.out': No space left on device\n"
                             "glaunch: warning: cannot write all of standard output: No space "
                             "left on device\n");
}

// glaunch waited for the reader with all signals blocked.
TEST_F(LaunchOutputTest, AFileThatIsAPipeEndsGlaunchAtOnce) {
  std::filesystem::create_directory(path("logs"));
  ASSERT_EQ(mkfifo(path("logs/rank0.err").c_str(), 0600), 0);
  const Outcome log = run_command(launch({"-n", "2", "--log-dir", path("logs"), "true"}));
  EXPECT_EQ(log.exit_code, 125) << log.describe();
  EXPECT_EQ(log.err,
            "glaunch: --log-dir: cannot write '" + path("logs/rank0.err") + "': a named pipe\n");
  const Outcome report =
      run_command(launch({"-n", "2", "--report", path("logs/rank0.err"), "true"}));
  EXPECT_EQ(report.exit_code, 125) << report.describe();
  EXPECT_EQ(report.err,
            "glaunch: --report: cannot write '" + path("logs/rank0.err") + "': a named pipe\n");
}

TEST_F(LaunchOutputTest, FilesOfAnotherUserAreNotWritten) {
  constexpr uid_t kOtherUser = 12345;
  std::ofstream(path("precious")) << "precious";
  std::filesystem::create_directory(path("logs"));
  for (const char* name : {"logs/rank0.out", "logs/report"}) {
    std::filesystem::create_symlink(path("precious"), path(name));
    if (lchown(path(name).c_str(), kOtherUser, gid_t(-1)) != 0) {
      GTEST_SKIP() << "only root gives files away";
    }
  }
  const std::string belongs = "belongs to user 12345, and this process runs as user 0\n";
  const Outcome log = run_command(launch({"-n", "1", "--log-dir", path("logs"), "true"}));
  EXPECT_EQ(log.exit_code, 125) << log.describe();
  EXPECT_EQ(log.err, "glaunch: --log-dir: cannot write '" + path("logs/rank0.out") +
                         "': the link 'rank0.out' " + belongs);
  const Outcome report = run_command(launch({"-n", "1", "--report", path("logs/report"), "true"}));
  EXPECT_EQ(report.exit_code, 125) << report.describe();
  EXPECT_EQ(report.err, "glaunch: --report: cannot write '" + path("logs/report") +
                            "': the link 'report' " + belongs);
  EXPECT_EQ(read_file(path("precious")), "precious");
}

TEST_F(LaunchOutputTest, NoFolderIsMadeBehindALinkOfAnotherUser) {
  std::filesystem::create_directory(path("theirs"));
  std::filesystem::create_symlink(path("theirs"), path("link"));
  if (lchown(path("link").c_str(), 12345, gid_t(-1)) != 0) {
    GTEST_SKIP() << "only root gives files away";
  }
  const Outcome log = run_command(launch({"-n", "1", "--log-dir", path("link/new/deep"), "true"}));
  EXPECT_EQ(log.exit_code, 125) << log.describe();
  EXPECT_THAT(log.err, HasSubstr("--log-dir: cannot make '" + path("link/new/deep") +
                                 "': the link 'link' belongs to user 12345"));
  EXPECT_TRUE(std::filesystem::is_empty(path("theirs")));
  const Outcome own = run_command(launch({"-n", "1", "--log-dir", path("own/new/deep"), "true"}));
  EXPECT_EQ(own.exit_code, 0) << own.describe();
  EXPECT_TRUE(std::filesystem::exists(path("own/new/deep/rank0.out")));
}

TEST_F(LaunchOutputTest, WarnsOfALogDirectoryThatEverybodyMayWrite) {
  std::filesystem::create_directory(path("logs"));
  std::filesystem::permissions(path("logs"), std::filesystem::perms::all);
  const Outcome outcome = run_command(launch({"-n", "2", "--log-dir", path("logs"), "true"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("everybody may write it (mode 777)"));
  EXPECT_EQ(lines_of(outcome.err).size(), 1U) << "once for all files";
}

TEST_F(LaunchOutputTest, RanksMayCloseTheirOutput) {
  const Outcome outcome = run_command(act({"-n", "2"}, {"close-outputs"}));
  EXPECT_EQ(outcome.exit_code, 5) << outcome.describe();
}

TEST_F(LaunchOutputTest, GlaunchMayBeStartedWithClosedStreams) {
  Command command{.argv = {"sh", "-c",
                           std::string(GANTRY_TEST_GLAUNCH) + " -n 2 --log-dir " + path("logs") +
                               " echo hello <&- >&- 2>&-"},
                  .environment = {{"GANTRY_SIM_DEVICES", "4"}, {"TMPDIR", directory_}}};
  EXPECT_EQ(run_command(std::move(command)).exit_code, 0);
  EXPECT_EQ(read_file(path("logs/rank0.out")), "hello\n");
  EXPECT_EQ(read_file(path("logs/rank1.out")), "hello\n");
}

TEST_F(LaunchOutputTest, RanksGetNoDescriptorsOfGlaunchs) {
  const auto descriptors = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--cpu-only", "-n", "1", "sh", "-c",
                                       "echo ${GANTRY_LIFELINE_FD}; ls /proc/self/fd"});
    const Outcome outcome = run_command(launch(std::move(arguments)));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    return lines_of(outcome.out).size();
  };
  const std::size_t few = descriptors({});
  EXPECT_EQ(descriptors({"--report", path("report"), "--log-dir", path("logs")}), few);
}

TEST_F(LaunchOutputTest, StdinGoesToRankZero) {
  Command command = act({"-n", "2"}, {"echo-input"});
  command.input = "a\nb\n";
  EXPECT_THAT(
      lines_of(run_command(command).out),
      UnorderedElementsAre("[0] got a", "[0] got b", "[0] end of input", "[1] end of input"));
  Command none = act({"-n", "1", "--stdin", "none"}, {"echo-input"});
  none.input = "a\n";
  EXPECT_THAT(lines_of(run_command(none).out), ElementsAre("[0] end of input"));
}

// A shell whose job is glaunch, which it puts into the background. Ends with 0 if glaunch ends by
// SIGTERM, and 1 if it is stopped.
[[noreturn]] void be_a_shell(const char* actor) {
  signal(SIGTTOU, SIG_IGN);
  std::array<int, 2> said{};
  if (pipe(said.data()) != 0) _exit(2);
  const pid_t job = fork();
  if (job == 0) {
    setpgid(0, 0);
    tcsetpgrp(STDIN_FILENO, getpid());
    signal(SIGTTOU, SIG_DFL);
    dup2(said[1], STDOUT_FILENO);
    execl(GANTRY_TEST_GLAUNCH, "glaunch", "--cpu-only", "-n", "1", actor, "wait", nullptr);
    _exit(127);
  }
  char byte = 0;
  if (read(said[0], &byte, 1) != 1) _exit(3);
  tcsetpgrp(STDIN_FILENO, getpgrp());
  dprintf(STDOUT_FILENO, "job %d\n", job);
  int status = 0;
  waitpid(job, &status, WUNTRACED);
  if (WIFSTOPPED(status)) {
    kill(job, SIGKILL);
    _exit(1);
  }
  _exit(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM ? 0 : 4);
}

TEST_F(LaunchOutputTest, WhatIsTypedDoesNotStopALauncherInTheBackground) {
  const std::string actor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/launch_actor";
  int terminal = -1;
  const pid_t shell = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (shell < 0) GTEST_SKIP() << "needs a terminal: " << std::strerror(errno);
  if (shell == 0) be_a_shell(actor.c_str());
  std::string shown;
  char byte = 0;
  while (!shown.ends_with('\n') && read(terminal, &byte, 1) == 1) shown += byte;
  ASSERT_THAT(shown, ::testing::StartsWith("job "));
  ASSERT_EQ(write(terminal, "ls\n", 3), 3);
  kill(std::stoi(shown.substr(4)), SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(shell, &status, 0), shell);
  close(terminal);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(LaunchOutputTest, CtrlZStopsNoLauncherThatNobodyCouldContinue) {
  const std::string actor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/launch_actor";
  int terminal = -1;
  const pid_t job = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (job < 0) GTEST_SKIP() << "needs a terminal: " << std::strerror(errno);
  if (job == 0) {
    execl(GANTRY_TEST_GLAUNCH, "glaunch", "--cpu-only", "-n", "1", actor.c_str(), "wait", nullptr);
    _exit(127);
  }
  std::string shown;
  char byte = 0;
  while (!shown.ends_with('\n') && read(terminal, &byte, 1) == 1) shown += byte;
  ASSERT_THAT(shown, HasSubstr("pid rank"));
  ASSERT_EQ(write(terminal, "\x1a", 1), 1);
  // The terminal shows what it has sent a signal for.
  while (!shown.ends_with("^Z") && read(terminal, &byte, 1) == 1) shown += byte;
  kill(job, SIGTERM);
  int status = 0;
  ASSERT_EQ(waitpid(job, &status, WUNTRACED), job);
  EXPECT_FALSE(WIFSTOPPED(status));
  if (WIFSTOPPED(status)) kill(job, SIGKILL);
  close(terminal);
}

TEST_F(LaunchOutputTest, InputEndsWithTheTerminal) {
  const std::string actor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/launch_actor";
  int terminal = -1;
  const pid_t job = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (job < 0) GTEST_SKIP() << "needs a terminal: " << std::strerror(errno);
  if (job == 0) {
    signal(SIGHUP, SIG_IGN);  // as for a job that outlives its terminal
    execl(GANTRY_TEST_GLAUNCH, "glaunch", "--cpu-only", "-n", "1", "--log-dir", directory_.c_str(),
          actor.c_str(), "echo-input", nullptr);
    _exit(127);
  }
  ASSERT_EQ(write(terminal, "x\n", 2), 2);
  const auto log = [&] { return read_file(path("rank0.out")); };
  EXPECT_TRUE(eventually([&] { return log() == "got x\n"; }));
  close(terminal);
  if (!ends(job)) kill(job, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(job, &status, 0), job);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(log(), "got x\nend of input\n");
}

}  // namespace
}  // namespace gantry::testing
