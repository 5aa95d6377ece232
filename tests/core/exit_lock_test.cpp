// The lock that background threads hold during calls, until the process ends.
#include "core/processes/exit_lock.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

namespace gantry {
namespace {

constexpr auto kEnough = std::chrono::seconds(60);

TEST(ExitLockTest, HoldersEndWithTheirScope) {
  ExitLock lock;
  {
    const ExitLock::Shared held(lock);
    const ExitLock::Shared nested(lock);
    EXPECT_TRUE(held);
    EXPECT_TRUE(nested);
    EXPECT_FALSE(lock.is_closed());
  }
  EXPECT_TRUE(lock.close(kEnough));
  EXPECT_TRUE(lock.is_closed());
}

TEST(ExitLockTest, AClosedLockRefuses) {
  ExitLock lock;
  EXPECT_TRUE(lock.close(kEnough));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(ExitLock::Shared(lock));
  EXPECT_TRUE(lock.close(kEnough)) << "refused holders are not waited for";
}

TEST(ExitLockTest, CloseWaitsForHoldersOfOtherThreads) {
  ExitLock lock;
  std::latch inside(1);
  std::latch go(1);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    const ExitLock::Shared held(lock);
    inside.count_down();
    go.wait();
    is_over = true;
  });
  inside.wait();
  EXPECT_FALSE(lock.close(std::chrono::milliseconds(0)));
  std::thread closer([&] {
    EXPECT_TRUE(lock.close(kEnough));
    EXPECT_TRUE(is_over);
  });
  go.count_down();
  closer.join();
  other.join();
}

// A callback of a holder may call exit().
TEST(ExitLockTest, CloseDoesNotWaitForItsOwnThread) {
  ExitLock lock;
  const ExitLock::Shared held(lock);
  const ExitLock::Shared nested(lock);
  EXPECT_TRUE(lock.close(std::chrono::milliseconds(0)));
}

TEST(ExitLockTest, NobodyHoldsTheClosedLock) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 200; ++round) {
    ExitLock lock;
    std::atomic<bool> is_closed{false};
    std::atomic<int> late{0};
    std::latch start(kThreads + 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        while (true) {
          const ExitLock::Shared held(lock);
          if (!held) return;
          if (is_closed) ++late;
        }
      });
    }
    start.arrive_and_wait();
    EXPECT_TRUE(lock.close(kEnough));
    is_closed = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(late, 0);
  }
}

}  // namespace
}  // namespace gantry
