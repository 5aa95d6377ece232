#include "core/processes/background_thread.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

namespace gantry {
namespace {

// The signals that the calling thread takes, of those that a thread can block.
std::vector<int> taken_signals() {
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  std::vector<int> taken;
  for (int signal = 1; signal < SIGSYS; ++signal) {
    if (signal == SIGKILL || signal == SIGSTOP) continue;
    if (sigismember(&blocked, signal) == 0) taken.push_back(signal);
  }
  return taken;
}

TEST(BackgroundThread, TakesNoSignalsAndLeavesTheCallersMask) {
  sigset_t usr1;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, nullptr);
  const std::vector<int> before = taken_signals();
  ASSERT_FALSE(before.empty());

  std::vector<int> taken{-1};
  start_background_thread("test", [&] { taken = taken_signals(); }).join();

  EXPECT_EQ(taken, std::vector<int>());
  EXPECT_EQ(taken_signals(), before);
}

TEST(BackgroundThread, HasItsName) {
  // A thread has a name from the start of its body until its end.
  std::promise<void> started;
  std::promise<void> released;
  std::thread thread = start_background_thread("gantry-watchdog", [&] {
    started.set_value();
    released.get_future().wait();
  });
  started.get_future().wait();
  char name[16] = {};
  EXPECT_EQ(pthread_getname_np(thread.native_handle(), name, sizeof name), 0);
  released.set_value();
  thread.join();
  EXPECT_EQ(std::string(name), "gantry-watchdog");
}

TEST(BlockedSignals, EndWithTheirScope) {
  const std::vector<int> before = taken_signals();
  {
    const BlockedSignals blocked;
    EXPECT_EQ(taken_signals(), std::vector<int>());
  }
  EXPECT_EQ(taken_signals(), before);
}

}  // namespace
}  // namespace gantry
