#include "memory/heap/heap_mutex.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gantry::memory {
namespace {

TEST(HeapMutexTest, ExcludesAndWakes) {
  HeapMutex mutex;
  constexpr int kThreads = 8;
  constexpr int kRounds = 20000;
  std::int64_t count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const HeapLock lock(mutex);
        ++count;
        // Long enough for the others to fall asleep.
        if (i % 1000 == t) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, std::int64_t{kThreads} * kRounds);
}

TEST(HeapMutexTest, TriesWithoutWaiting) {
  HeapMutex mutex;
  HeapLock lock(mutex);
  bool taken = true;
  std::thread([&] { taken = mutex.try_lock(); }).join();
  EXPECT_FALSE(taken);
  lock.unlock();
  ASSERT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace gantry::memory
