#include "core/patience.hpp"

#include <gtest/gtest.h>

namespace gantry {
namespace {

using namespace std::chrono_literals;
using Clock = Patience::Clock;

TEST(PatienceTest, EndsWhenTheLimitWasWaited) {
  Clock::time_point now{};
  Patience patience(3s, now);
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(patience.is_over(now += 500ms)) << i;
  EXPECT_TRUE(patience.is_over(now + 1ms));
}

TEST(PatienceTest, ALongTimeWithoutALookCountsAsASecond) {
  Clock::time_point now{};
  Patience patience(3s, now);
  EXPECT_FALSE(patience.is_over(now += 1h));
  EXPECT_FALSE(patience.is_over(now += 1h));
  EXPECT_FALSE(patience.is_over(now += 1h));
  EXPECT_TRUE(patience.is_over(now += 1h));
}

TEST(PatienceTest, BeginsAnew) {
  Clock::time_point now{};
  Patience patience(1s, now);
  EXPECT_FALSE(patience.is_over(now += 900ms));
  patience.renew(now);
  EXPECT_FALSE(patience.is_over(now += 900ms));
  EXPECT_TRUE(patience.is_over(now += 900ms));
}

TEST(PatienceTest, SleepsNoLongerThanIsLeftAndLooksOftenEnough) {
  Clock::time_point now{};
  Patience patience(10s, now);
  EXPECT_LT(patience.next_wait(), 1s);
  EXPECT_GT(patience.next_wait(), 0s);
  for (int i = 0; i < 99; ++i) EXPECT_FALSE(patience.is_over(now += 100ms));
  EXPECT_LE(patience.next_wait(), 101ms);
  EXPECT_TRUE(patience.is_over(now += 1s));
  EXPECT_EQ(patience.next_wait(), 1ms);
}

}  // namespace
}  // namespace gantry
