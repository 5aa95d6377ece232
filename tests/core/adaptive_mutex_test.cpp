#include "core/adaptive_mutex.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/process_state.hpp"

namespace gantry {
namespace {

using Lock = std::unique_lock<AdaptiveMutex>;

TEST(AdaptiveMutexTest, Excludes) {
  AdaptiveMutex mutex;
  constexpr int kThreads = 8;
  constexpr int kRounds = 20000;
  std::int64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const Lock lock(mutex);
        ++count;
        if (i % 1000 == t) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, std::int64_t{kThreads} * kRounds);
}

// A thread that wakes does not know whether others still sleep.
TEST(AdaptiveMutexTest, WakesAllThatFellAsleep) {
  AdaptiveMutex mutex;
  Lock lock(mutex);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    std::atomic<pid_t> id{0};
    threads.emplace_back([&] {
      id = gettid();
      const Lock own(mutex);
    });
    while (id == 0 || testing::state_of(id) != 'S') std::this_thread::yield();
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(mutex.try_lock());
}

TEST(AdaptiveMutexTest, TriesWithoutWaiting) {
  AdaptiveMutex mutex;
  Lock lock(mutex);
  bool taken = true;
  std::thread([&] { taken = mutex.try_lock(); }).join();
  EXPECT_FALSE(taken);
  lock.unlock();
  ASSERT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace gantry
