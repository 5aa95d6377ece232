// Nothing of a job survives it, however it ends.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "tests/launcher/launch_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/process_state.hpp"

namespace gantry::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A rank of a "breed" job, and what it starts.
constexpr std::array kFamily{"rank", "child", "daemon", "thread"};

class LaunchCleanupTest : public LaunchTest {
 protected:
  static void wait_for_family(Subprocess& job, int ranks, const std::string& launcher = {}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string prefix = launcher + "[" + std::to_string(rank) + "] pid ";
      for (const char* who : kFamily) {
        ASSERT_TRUE(job.wait_for_output(prefix + who)) << prefix << who;
      }
    }
  }
  static void expect_all_ended(const Outcome& outcome, std::size_t ranks) {
    for (const char* who : kFamily) {
      const std::vector<int> pids = pids_in(outcome.out, who);
      EXPECT_THAT(pids, SizeIs(ranks)) << outcome.describe();
      for (const int pid : pids) EXPECT_TRUE(ends(pid)) << who << " " << pid << " survived";
    }
  }
};

TEST_F(LaunchCleanupTest, AKilledLauncherLeavesNothing) {
  Subprocess job(act({"-n", "2"}, {"breed", "stay"}));
  wait_for_family(job, 2);
  std::vector<int> reapers;
  for (const auto& [pid, name] : children_of(job.pid())) {
    if (name == "glaunch-reaper") reapers.push_back(pid);
  }
  ASSERT_THAT(reapers, SizeIs(1));
  job.send_signal(SIGKILL);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.signal, SIGKILL);
  EXPECT_FALSE(outcome.timed_out) << "somebody still holds glaunch's output";
  expect_all_ended(outcome, 2);
  EXPECT_TRUE(ends(reapers[0]));
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchCleanupTest, ALauncherWithoutItsGuardStillCleansUp) {
  Subprocess job(act({"-n", "1"}, {"breed", "stay"}));
  wait_for_family(job, 1);
  for (const auto& [pid, name] : children_of(job.pid())) {
    if (name == "glaunch-reaper") kill(pid, SIGKILL);
  }
  job.send_signal(SIGTERM);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 143) << outcome.describe();
  expect_all_ended(outcome, 1);
}

TEST_F(LaunchCleanupTest, WhatRanksLeaveBehindIsStopped) {
  const Outcome outcome = run_command(act({"-n", "1"}, {"breed", "leave"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  expect_all_ended(outcome, 1);
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchCleanupTest, WhatAShellStartedBeforeItBecameGlaunchGoesOn) {
  Command command = launch({});
  command.argv = {"sh", "-c",
                  "sleep 1000 > /dev/null 2>&1 & echo pid earlier $!; exec " +
                      std::string(GANTRY_TEST_GLAUNCH) + " --cpu-only -n 1 true"};
  const Outcome outcome = run_command(std::move(command));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  const std::vector<int> earlier = pids_in(outcome.out, "earlier");
  ASSERT_THAT(earlier, SizeIs(1)) << outcome.describe();
  EXPECT_EQ(kill(earlier[0], SIGKILL), 0) << "glaunch had ended it";
}

TEST_F(LaunchCleanupTest, SigtermStopsTheJob) {
  Subprocess job(act({"-n", "2"}, {"breed", "stay"}));
  wait_for_family(job, 2);
  job.send_signal(SIGTERM);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM) << outcome.describe();
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("glaunch: the job was stopped by SIGTERM"),
                                 HasSubstr("stopped by glaunch: ranks 0, 1 (SIGTERM)")));
  expect_all_ended(outcome, 2);
}

TEST_F(LaunchCleanupTest, ARankThatLeftItsProcessGroupIsStoppedToo) {
  Subprocess job(act({"-n", "1"}, {"leave-group"}));
  ASSERT_TRUE(job.wait_for_output("[0] pid rank"));
  job.send_signal(SIGTERM);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("stopped by glaunch: rank 0 (SIGTERM)"));
}

// Forks a process that gets this number, in a group of its own; −1 if somebody else is faster.
pid_t fork_as(pid_t wanted) {
  const std::string last = "/proc/sys/kernel/ns_last_pid";
  const std::string before = read_file(last);
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::ofstream(last) << wanted - 1 << std::flush;
    const pid_t child = fork();
    // Or tests beside this one would meet the numbers of those that have just ended.
    if (child != 0) std::ofstream(last) << before << std::flush;
    if (child == 0) {
      if (getpid() != wanted) _exit(0);
      for (;;) pause();
    }
    if (child == wanted) {
      EXPECT_EQ(setpgid(child, child), 0);
      return child;
    }
    waitpid(child, nullptr, 0);
  }
  return -1;
}

TEST_F(LaunchCleanupTest, ANumberThatARankHadIsNotSignalledForWhoeverHasItNext) {
  if (!std::ofstream("/proc/sys/kernel/ns_last_pid")) {
    GTEST_SKIP() << "needs to choose the next process's number (root)";
  }
  Subprocess job(
      launch({"--cpu-only", "-n", "2", "sh", "-c",
              "[ $RANK = 0 ] || exec sleep 1000; sleep 0.3 & "
              "echo pid rank $$ > " +
                  path("pids") + "; echo pid orphan $! >> " + path("pids") + "; echo written"}));
  ASSERT_TRUE(job.wait_for_output("written"));
  const std::string pids = read_file(path("pids"));
  const int rank = pids_in(pids, "rank").at(0);
  const int orphan = pids_in(pids, "orphan").at(0);
  while (kill(orphan, 0) == 0 || kill(rank, 0) == 0) std::this_thread::yield();
  while (state_of(job.pid()) != 'S') std::this_thread::yield();  // it has dealt with both
  const pid_t innocent = fork_as(rank);
  job.send_signal(SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 143);
  if (innocent < 0) GTEST_SKIP() << "the number " << rank << " was taken";
  kill(innocent, SIGKILL);
  int status = 0;
  waitpid(innocent, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

TEST_F(LaunchCleanupTest, AnotherChildMayGetTheNumberOfARankThatHasEnded) {
  if (!std::ofstream("/proc/sys/kernel/ns_last_pid")) {
    GTEST_SKIP() << "needs to choose the next process's number (root)";
  }
  // Rank 1 leaves processes to glaunch until one has the number that rank 0 had.
  const std::string reuse =
      "if [ $RANK = 0 ]; then echo $$ > pid.new; mv pid.new pid; exit 0; fi; "
      "until read -r wanted < pid; do :; done 2>/dev/null; "
      "while kill -0 $wanted 2>/dev/null; do :; done; sleep 0.1; "
      "for try in 1 2 3 4 5 6 7 8 9; do "
      "  got=$(echo $((wanted - 1)) > /proc/sys/kernel/ns_last_pid; "
      "        sleep $ORPHAN > /dev/null 2>&1 & echo $!); "
      "  [ $got = $wanted ] && break; kill $got; "
      "done; "
      "echo pid wanted $wanted; echo pid orphan $got; sleep 0.5; echo still here";
  // One that ends, and one that glaunch has to stop.
  for (const char* lifetime : {"0.1", "1234"}) {
    Command command =
        launch({"--cpu-only", "-n", "2", "sh", "-c", "cd " + directory_ + "; " + reuse});
    command.environment["ORPHAN"] = lifetime;
    std::filesystem::remove(path("pid"));
    const Outcome outcome = run_command(std::move(command));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("[1] still here")) << "glaunch did not wait for rank 1";
    const std::vector<int> orphan = pids_in(outcome.out, "orphan");
    ASSERT_THAT(orphan, SizeIs(1)) << outcome.describe();
    // By its command, as the number may be anybody's by now.
    const std::string command_line = read_file("/proc/" + std::to_string(orphan[0]) + "/cmdline");
    const bool survived = command_line == std::string("sleep") + '\0' + lifetime + '\0';
    EXPECT_FALSE(survived) << orphan[0];
    if (survived) kill(orphan[0], SIGKILL);
    if (orphan != pids_in(outcome.out, "wanted")) GTEST_SKIP() << "the number was taken";
  }
}

TEST_F(LaunchCleanupTest, AProcessThatKeepsChangingItsNumberIsFound) {
  if (!std::ofstream("/proc/sys/kernel/ns_last_pid")) {
    GTEST_SKIP() << "needs to choose the next process's number (root)";
  }
  const Outcome outcome =
      run_command(act({"--cpu-only", "-n", "1", "--grace", "200ms"}, {"flee", path("fled")}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  const int fd = open(path("fled").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(flock(fd, LOCK_EX | LOCK_NB), 0) << "it is still there: " << std::strerror(errno);
  close(fd);
}

TEST_F(LaunchCleanupTest, ALauncherThatIsKilledWhileItWritesOutputLeavesNothing) {
  // Nobody reads, so that glaunch still has output to write when the job is over.
  Subprocess job(
      {.argv = {"sh", "-c",
                std::string(GANTRY_TEST_GLAUNCH) + " --cpu-only -n 1 --report " + path("report") +
                    " " + GANTRY_TEST_PROGRAM_DIR + "/launch_actor flood 40000 | { while ! [ -s " +
                    path("report") + " ]; do sleep 0.01; done; echo over; read line; }; :"},
       .environment = {{"TMPDIR", directory_}},
       .input = "",
       .timeout = std::chrono::seconds(40)});
  ASSERT_TRUE(job.wait_for_output("over"));
  for (const auto& [pid, name] : children_of(job.pid())) {
    if (name == "glaunch") kill(pid, SIGKILL);
  }
  job.wait();
  EXPECT_TRUE(eventually([&] { return scratch_is_clean(); }));
}

TEST_F(LaunchCleanupTest, CtrlCIs130) {
  Subprocess job(act({"-n", "2"}, {"wait"}));
  ASSERT_TRUE(job.wait_for_output("[0] pid rank"));
  job.send_signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("stopped by glaunch: ranks 0, 1 (SIGINT)"));
}

TEST_F(LaunchCleanupTest, ASecondCtrlCKillsAtOnce) {
  // The ranks survive SIGINT, and the grace time is longer than the test may take.
  Subprocess job(act({"-n", "2", "--grace", "1h"}, {"survive-interrupt"}));
  ASSERT_TRUE(job.wait_for_output("[0] pid rank"));
  ASSERT_TRUE(job.wait_for_output("[1] pid rank"));
  job.send_signal(SIGINT);
  ASSERT_TRUE(job.wait_for_output("[0] interrupted"));
  job.send_signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("stopped by glaunch: ranks 0, 1 (SIGKILL)"));
  for (const int pid : pids_in(outcome.out, "rank")) EXPECT_TRUE(ends(pid));
}

TEST_F(LaunchCleanupTest, ForwardsTheSignalsThatWereAskedFor) {
  Command command = act({"--forward", "USR1", "-n", "2"}, {"count-signal"});
  // Whoever started glaunch ignores it; the ranks do not.
  command.argv.insert(command.argv.begin(), {"sh", "-c", "trap '' USR1; exec \"$@\"", "sh"});
  Subprocess job(std::move(command));
  ASSERT_TRUE(job.wait_for_output("[0] ready"));
  ASSERT_TRUE(job.wait_for_output("[1] ready"));
  job.send_signal(SIGUSR1);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[0] got it"), HasSubstr("[1] got it")));
}

// A fault of glaunch's own still ends it, but these can be sent, too: by a service's watchdog that
// wants core dumps, say.
TEST_F(LaunchCleanupTest, ForwardsSignalsOfFaultsThatAreSent) {
  for (const auto& [name, signal] : {std::pair("ABRT", SIGABRT), std::pair("SEGV", SIGSEGV)}) {
    const std::string script = std::string("trap 'echo got it; exit 0' ") + name +
                               "; echo ready; while :; do sleep 0.05; done";
    Subprocess job(launch({"--forward", name, "-n", "1", "sh", "-c", script}));
    ASSERT_TRUE(job.wait_for_output("[0] ready")) << name;
    job.send_signal(signal);
    const Outcome outcome = job.wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("[0] got it")) << name;
  }
}

TEST_F(LaunchCleanupTest, TheLivenessPipeEndsWithTheLauncher) {
  // A process that the kernel does not kill with its parent sees the end of the pipe.
  Subprocess job(launch({"-n", "1", "sh", "-c",
                         std::string("unset GANTRY_JOB_ID; setsid ") + GANTRY_TEST_PROGRAM_DIR +
                             "/launch_actor hold-liveness-pipe " + path("cut") + " & wait"}));
  ASSERT_TRUE(job.wait_for_output("pid rank"));
  job.send_signal(SIGKILL);
  const Outcome outcome = job.wait();
  for (const int pid : pids_in(outcome.out, "rank")) EXPECT_TRUE(ends(pid));
  EXPECT_EQ(read_file(path("cut")), "cut");
}

TEST_F(LaunchCleanupTest, NestedLaunchersEndTogether) {
  Command command = act({"-n", "1", GANTRY_TEST_GLAUNCH, "-n", "2"}, {"breed", "stay"});
  Subprocess job(std::move(command));
  wait_for_family(job, 2, "[0] ");
  job.send_signal(SIGKILL);
  const Outcome outcome = job.wait();
  expect_all_ended(outcome, 2);
}

}  // namespace
}  // namespace gantry::testing
