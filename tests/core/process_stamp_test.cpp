// Which processes run.
#include "core/process_stamp.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace gantry {
namespace {

// Of the first thread of a process.
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos ? '?' : text.at(name_end + 2);
}

void await_state(pid_t pid, char state) {
  while (state_of(pid) != state) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// What a child knows of itself.
template <class Body>
pid_t start(ProcessStamp& stamp, Body&& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const ProcessStamp own = this_process();
    if (write(ends[1], &own, sizeof own) != sizeof own) _exit(1);
    body();
  }
  EXPECT_EQ(read(ends[0], &stamp, sizeof stamp), static_cast<ssize_t>(sizeof stamp));
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(stamp.pid, pid);
  return pid;
}

TEST(ProcessStampTest, AnEndedProcessDoesNotRunEvenIfNobodyReapedIt) {
  ProcessStamp stamp;
  const pid_t pid = start(stamp, [] {
    for (;;) pause();
  });
  EXPECT_TRUE(is_running(stamp));
  EXPECT_FALSE(is_running({stamp.pid, stamp.start_time + 1})) << "another one of that number";
  kill(pid, SIGKILL);
  await_state(pid, 'Z');
  EXPECT_FALSE(is_running(stamp));
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_FALSE(is_running(stamp));
}

TEST(ProcessStampTest, AProcessRunsAsLongAsAnyOfItsThreads) {
  ProcessStamp stamp;
  const pid_t pid = start(stamp, [] {
    std::thread([] {
      for (;;) pause();
    }).detach();
    syscall(SYS_exit, 0);  // this thread alone, as pthread_exit, which would unwind the test
  });
  await_state(pid, 'Z');
  EXPECT_TRUE(is_running(stamp));
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_FALSE(is_running(stamp));
}

TEST(ProcessStampTest, KnowsWhoIsStopped) {
  ProcessStamp stamp;
  const pid_t pid = start(stamp, [] {
    for (;;) pause();
  });
  EXPECT_FALSE(is_stopped(stamp));
  kill(pid, SIGSTOP);
  await_state(pid, 'T');
  EXPECT_TRUE(is_stopped(stamp));
  EXPECT_TRUE(is_running(stamp));
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

}  // namespace
}  // namespace gantry
