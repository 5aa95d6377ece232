// The launcher's children, with and without the kernel's list of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "launcher/run/processes/process.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/process_state.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::launcher {
namespace {

using ::testing::UnorderedElementsAre;

void run_until_killed() {
  for (;;) pause();
}

// A child that runs until the test ends it.
class Child {
 public:
  explicit Child(void (*run)() = run_until_killed) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }

  // It is a zombie after this.
  void end() const {
    kill(pid_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  pid_t pid_;
};

// A list of processes as of a kernel that was built without CONFIG_PROC_CHILDREN.
class ProcWithoutLists {
 public:
  ProcWithoutLists() {
    namespace fs = std::filesystem;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name != "self") fs::create_symlink(entry.path(), folder_ / name);
    }
    for (const auto& thread : fs::directory_iterator("/proc/self/task")) {
      fs::create_directories(folder_ / "self/task" / thread.path().filename());
    }
  }
  [[nodiscard]] std::string path() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

TEST(ChildProcessesTest, TheyAreKnownWithAndWithoutTheKernelsList) {
  const Child plain;
  const Child in_second_thread([] { testing::continue_in_another_thread(run_until_killed); });
  ASSERT_TRUE(
      testing::eventually([&] { return testing::state_of(in_second_thread.pid()) == 'Z'; }));
  const Child ended;
  ended.end();
  std::thread([&] {
    const Child of_thread;
    const auto children =
        UnorderedElementsAre(plain.pid(), in_second_thread.pid(), of_thread.pid());
    EXPECT_THAT(child_processes(), children);
    const ProcWithoutLists proc;
    EXPECT_THAT(child_processes(proc.path()), children);
  }).join();
}

}  // namespace
}  // namespace gantry::launcher
