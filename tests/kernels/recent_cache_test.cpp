#include "kernels/recent_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace gantry::kernels {
namespace {

using Cache = RecentCache<int, int, std::hash<int>>;

// A cache of squares, and how often each was made.
class RecentCacheTest : public ::testing::Test {
 protected:
  int square(int key) {
    return *cache_.find_or_make(key, [&] {
      ++made_;
      return std::make_shared<int>(key * key);
    });
  }

  Cache cache_{3};
  int made_ = 0;
};

TEST_F(RecentCacheTest, MakesEachValueOnce) {
  EXPECT_EQ(square(2), 4);
  EXPECT_EQ(square(3), 9);
  EXPECT_EQ(square(2), 4);
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(cache_.size(), 2U);
}

TEST_F(RecentCacheTest, EvictsTheValueWithTheOldestUse) {
  for (const int key : {1, 2, 3, 1, 4}) (void)square(key);  // 2 goes
  EXPECT_EQ(cache_.size(), 3U);
  made_ = 0;
  for (const int key : {1, 3, 4}) EXPECT_EQ(square(key), key * key);
  EXPECT_EQ(made_, 0);
  EXPECT_EQ(square(2), 4);  // now 1 goes
  EXPECT_EQ(made_, 1);
  (void)square(1);
  EXPECT_EQ(made_, 2);
  EXPECT_EQ(cache_.size(), 3U);
}

TEST_F(RecentCacheTest, AnEvictedValueLivesUntilItsUserLetsGo) {
  const std::shared_ptr<int> kept =
      cache_.find_or_make(7, [] { return std::make_shared<int>(49); });
  for (int key = 0; key < 5; ++key) (void)square(key);
  EXPECT_EQ(*kept, 49);
  EXPECT_EQ(kept.use_count(), 1);
}

TEST_F(RecentCacheTest, AMakerThatThrowsLeavesNothing) {
  EXPECT_THROW((void)cache_.find_or_make(
                   5, []() -> std::shared_ptr<int> { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_EQ(cache_.size(), 0U);
  EXPECT_EQ(square(5), 25);
}

TEST_F(RecentCacheTest, OneResultOfTwoMakersIsKept) {
  // The second maker runs within the first, as another thread's would.
  const std::shared_ptr<int> outer = cache_.find_or_make(5, [&] {
    const std::shared_ptr<int> inner =
        cache_.find_or_make(5, [] { return std::make_shared<int>(1); });
    return std::make_shared<int>(*inner + 1);
  });
  EXPECT_EQ(*outer, 1);
  EXPECT_EQ(cache_.size(), 1U);
}

TEST_F(RecentCacheTest, ThreadsShareValues) {
  Cache cache(8);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&cache, &wrong, number] {
      for (int i = 0; i < 2000; ++i) {
        const int key = (i * (number + 1)) % 13;
        const auto value =
            cache.find_or_make(key, [key] { return std::make_shared<int>(key * key); });
        if (*value != key * key) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(cache.size(), 8U);
}

}  // namespace
}  // namespace gantry::kernels
