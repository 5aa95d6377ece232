// The process that cleans up after a launcher. It is started as the launcher does: by a process
// with one thread.
#include "launcher/run/processes/reaper.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "tests/support/eventually.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::launcher {
namespace {

using testing::eventually;

bool is_alive(pid_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

// A process in a group of its own, which waits for a signal.
pid_t start_member() {
  const pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    for (;;) pause();
  }
  setpgid(pid, pid);
  return pid;
}

// As above, with the id of a job in its environment.
pid_t start_stray(const std::string& job_id) {
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    const std::string variable = "GANTRY_JOB_ID=" + job_id;
    execlp("env", "env", variable.c_str(), "sleep", "3600", nullptr);
    _exit(127);
  }
  return pid;
}

// True once a process executes another program than this one.
bool has_begun(pid_t pid) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", ignored)
             .filename() != std::filesystem::read_symlink("/proc/self/exe").filename();
}

int end_of(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

class ReaperTest : public ::testing::Test {
 protected:
  ReaperTest() : scratch_(folder_ / "scratch"), job_("reaper-test-" + std::to_string(getpid())) {
    std::filesystem::create_directories(scratch_ / "inner");
  }

  const testing::TemporaryFolder folder_;
  const std::filesystem::path scratch_;
  const std::string job_;
};

TEST_F(ReaperTest, ACleanUpKillsTheGroupsAndRemovesTheFolder) {
  const pid_t member = start_member();
  const pid_t other = start_member();
  Reaper reaper(job_, scratch_);
  EXPECT_TRUE(is_reaper(reaper.pid()));
  EXPECT_FALSE(is_reaper(getpid()));
  reaper.add_group(member);
  reaper.clean_up();
  EXPECT_EQ(end_of(member), SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(scratch_));
  EXPECT_TRUE(is_alive(other));
  kill(other, SIGTERM);
  EXPECT_EQ(end_of(other), SIGTERM);
}

TEST_F(ReaperTest, AGroupThatWasRemovedLives) {
  const pid_t member = start_member();
  {
    Reaper reaper(job_, scratch_);
    reaper.add_group(member);
    reaper.remove_group(member);
    reaper.clean_up();
  }
  EXPECT_TRUE(is_alive(member));
  kill(member, SIGTERM);
  EXPECT_EQ(end_of(member), SIGTERM);
}

TEST_F(ReaperTest, ADismissalTouchesNothing) {
  const pid_t member = start_member();
  {
    Reaper reaper(job_, scratch_);
    reaper.add_group(member);
    reaper.dismiss();
    reaper.dismiss();
  }
  EXPECT_TRUE(is_alive(member));
  EXPECT_TRUE(std::filesystem::exists(scratch_));
  kill(member, SIGTERM);
  EXPECT_EQ(end_of(member), SIGTERM);
}

TEST_F(ReaperTest, ProcessesOfTheJobInOtherGroupsAreFoundByTheirEnvironment) {
  const pid_t stray = start_stray(job_ + ".1");
  const pid_t foreign = start_stray(job_ + "0");
  ASSERT_TRUE(eventually([&] { return has_begun(stray) && has_begun(foreign); }));
  Reaper reaper(job_, scratch_);
  reaper.clean_up();
  EXPECT_EQ(end_of(stray), SIGKILL);
  EXPECT_TRUE(is_alive(foreign));
  kill(foreign, SIGTERM);
  EXPECT_EQ(end_of(foreign), SIGTERM);
}

// Lets a traced process run until it begins to sleep `times` times; false if it ends.
bool run_until_it_sleeps(pid_t pid, int times) {
  while (times > 0) {
    if (ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr) != 0) return false;
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return false;
    __ptrace_syscall_info info{};
    ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info);
    const bool sleeps =
        info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_clock_nanosleep;
    if (sleeps) --times;
  }
  return true;
}

TEST_F(ReaperTest, ProcessesThatBeginDuringACleanUpAreFound) {
  Reaper reaper(job_, scratch_);
  const pid_t pid = reaper.pid();
  if (ptrace(PTRACE_SEIZE, pid, nullptr, long{PTRACE_O_TRACESYSGOOD}) != 0) {
    GTEST_SKIP() << "the system allows no ptrace: " << std::strerror(errno);
  }
  EXPECT_EQ(ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr), 0);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr), 0);
  reaper.clean_up();  // returns at the first stop, which it takes for the end
  const auto begin = [&] {
    const pid_t stray = start_stray(job_);
    EXPECT_TRUE(eventually([&] { return has_begun(stray); }));
    return stray;
  };
  EXPECT_TRUE(run_until_it_sleeps(pid, 1)) << "the first look finds nothing";
  const pid_t first = begin();
  EXPECT_TRUE(run_until_it_sleeps(pid, 3)) << "a look finds it, and two more find nothing";
  const pid_t second = begin();
  EXPECT_EQ(ptrace(PTRACE_DETACH, pid, nullptr, nullptr), 0);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  for (const pid_t stray : {first, second}) {
    kill(stray, SIGTERM);  // for one that was not found
    EXPECT_EQ(end_of(stray), SIGKILL);
  }
}

TEST_F(ReaperTest, TheEndOfTheLauncherIsACleanUp) {
  const pid_t member = start_member();
  const pid_t launcher = fork();
  if (launcher == 0) {
    const Reaper reaper(job_, scratch_);
    reaper.add_group(member);
    raise(SIGKILL);
  }
  EXPECT_EQ(end_of(launcher), SIGKILL);
  EXPECT_EQ(end_of(member), SIGKILL);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(scratch_); }));
}

TEST_F(ReaperTest, AReaperThatWasWaitedForElsewhereIsNotWaitedForAgain) {
  signal(SIGPIPE, SIG_IGN);  // as in the launcher
  Reaper reaper(job_, scratch_);
  const pid_t pid = reaper.pid();
  kill(pid, SIGKILL);
  EXPECT_EQ(end_of(pid), SIGKILL);
  reaper.mark_reaped();
  EXPECT_EQ(reaper.pid(), -1);
}

}  // namespace
}  // namespace gantry::launcher
