#include "memory/heap_mutex.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
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

// A thread that has it alone for long, and others that come now and then, at any moment of it.
TEST(HeapMutexTest, ExcludesTheFavouriteToo) {
  for (int round = 0; round < 50; ++round) {
    HeapMutex mutex;
    std::array<std::int64_t, 16> counts{};  // equal whenever nobody is inside
    std::atomic<bool> over{false};
    std::atomic<int> torn{0};
    const auto visit = [&] {
      const HeapLock lock(mutex);
      for (const std::int64_t count : counts) {
        if (count != counts.front()) ++torn;
      }
      for (std::int64_t& count : counts) ++count;
    };
    std::thread favourite([&] {
      while (!over) visit();
    });
    std::int64_t visits = 0;
    for (int i = 0; i < 40; ++i) {
      for (int pause = 0; pause < (round * 37 + i * 101) % 4000; ++pause) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
      }
      visit();
      ++visits;
    }
    over = true;
    favourite.join();
    EXPECT_EQ(torn, 0);
    EXPECT_GE(counts.front(), visits);
  }
}

TEST(HeapMutexTest, OneThreadAfterTheOther) {
  HeapMutex mutex;
  std::int64_t count = 0;
  for (int t = 0; t < 20; ++t) {
    std::thread([&] {
      for (int i = 0; i < 1000; ++i) {
        const HeapLock lock(mutex);
        ++count;
      }
    }).join();
  }
  EXPECT_EQ(count, 20 * 1000);
}

TEST(HeapMutexTest, ALockIsGivenUpAndTakenAgain) {
  HeapMutex mutex;
  int value = 0;
  for (int i = 0; i < 20; ++i) {
    HeapLock lock(mutex);
    value = i;
    lock.unlock();
    std::thread([&] {
      const HeapLock other(mutex);
      value = -1;
    }).join();
    lock.lock();
    EXPECT_EQ(value, -1);
  }
}

}  // namespace
}  // namespace gantry::memory
