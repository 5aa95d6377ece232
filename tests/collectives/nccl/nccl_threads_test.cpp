// Threads for calls of NCCL, without NCCL.
#include "collectives/nccl/nccl_threads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace gantry {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

constexpr auto kEnough = std::chrono::seconds(60);

NcclThreads& threads() { return NcclThreads::instance(); }

TEST(NcclThreadsTest, EachRunsOnceAndMayBeFollowedByOthers) {
  std::atomic<int> done{0};
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(threads().start("test-end", [&] { ++done; }));
    EXPECT_TRUE(threads().await(kEnough));
    EXPECT_EQ(done, 8 * round);
  }
}

// One after the other, the first would wait for the second forever.
TEST(NcclThreadsTest, OneThatBlocksDelaysNoOther) {
  std::latch second(1);
  std::atomic<int> done{0};
  EXPECT_TRUE(threads().start("test-end", [&] {
    second.wait();
    ++done;
  }));
  EXPECT_TRUE(threads().start("test-end", [&] {
    ++done;
    second.count_down();
  }));
  EXPECT_TRUE(threads().await(kEnough));
  EXPECT_EQ(done, 2);
}

TEST(NcclThreadsTest, AwaitTellsThatOneIsRunning) {
  std::latch go(1);
  EXPECT_TRUE(threads().start("test-end", [&] { go.wait(); }));
  EXPECT_FALSE(threads().await(std::chrono::milliseconds(0)));
  go.count_down();
  EXPECT_TRUE(threads().await(kEnough));
}

TEST(NcclThreadsTest, OneThatThrowsIsLoggedAndStopsNoOther) {
  std::atomic<int> done{0};
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(
      threads().start("test-end", [] { throw std::runtime_error("no such communicator"); }));
  EXPECT_TRUE(threads().start("test-end", [] { throw 1; }));
  EXPECT_TRUE(threads().start("test-end", [&] { ++done; }));
  EXPECT_TRUE(threads().await(kEnough));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("thread of NCCL: no such communicator"));
  EXPECT_THAT(log, HasSubstr("thread of NCCL: unknown error"));
  EXPECT_EQ(done, 1);
}

// It may call the driver when it goes, which must not happen during CUDA's shutdown.
TEST(NcclThreadsTest, WhatOneHoldsGoesBeforeItIsOver) {
  struct Held {
    Held(std::latch& going, std::latch& go) : going(going), go(go) {}
    ~Held() {
      going.count_down();
      go.wait();
    }
    std::latch& going;
    std::latch& go;
  };
  std::latch going(1);
  std::latch go(1);
  auto held = std::make_shared<Held>(going, go);
  EXPECT_TRUE(threads().start("test-end", [held = std::move(held)] {}));
  going.wait();
  EXPECT_FALSE(threads().await(std::chrono::milliseconds(0)));
  go.count_down();
  EXPECT_TRUE(threads().await(kEnough));
}

// Exit handlers run in the opposite order of their registration: the handler of `threads()` is
// between the handler that lets the end go on, and the one that tells whether it was waited for.
std::latch& exiting = *new std::latch(1);
std::atomic<bool> has_ended{false};

[[noreturn]] void exit_while_one_runs() {
  (void)std::atexit([] { std::fputs(has_ended ? "waited" : "did not wait", stderr); });
  threads().start("test-end", [] {
    exiting.wait();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    has_ended = true;
  });
  (void)std::atexit([] { exiting.count_down(); });
  std::exit(0);
}

TEST(NcclThreadsDeathTest, AnExitWaitsForOneThatRuns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_one_runs(), ExitedWithCode(0), "^waited");
}

[[noreturn]] void exit_while_one_hangs() {
  threads().start("test-end", [] { std::latch(1).wait(); });
  std::exit(0);
}

TEST(NcclThreadsDeathTest, AnExitGivesUpOneThatHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_one_hangs(), ExitedWithCode(0), "");
}

// The threads of its parent's ends do not exist there.
TEST(NcclThreadsTest, AChildOfAForkHasItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends a child of several threads that starts one";
#endif
  std::latch is_running(1);
  std::latch go(1);
  EXPECT_TRUE(threads().start("test-end", [&] {
    is_running.count_down();
    go.wait();
  }));
  is_running.wait();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int failed = 0;
    if (!threads().await(std::chrono::milliseconds(0))) failed |= 1;
    std::atomic<bool> done{false};
    if (!threads().start("test-end", [&] { done = true; })) failed |= 2;
    if (!threads().await(kEnough) || !done) failed |= 4;
    _exit(failed);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(threads().await(std::chrono::milliseconds(0)));
  go.count_down();
  EXPECT_TRUE(threads().await(kEnough));
}

}  // namespace
}  // namespace gantry
