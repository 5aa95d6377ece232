#include "core/processes/suspend_aware_timeout.hpp"

#include <gtest/gtest.h>

namespace gantry {
namespace {

using namespace std::chrono_literals;
using Clock = SuspendAwareTimeout::Clock;

TEST(SuspendAwareTimeoutTest, EndsWhenTheLimitWasWaited) {
  Clock::time_point now{};
  SuspendAwareTimeout countdown(3s, now);
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(countdown.has_expired(now += 500ms)) << i;
  EXPECT_TRUE(countdown.has_expired(now + 1ms));
}

TEST(SuspendAwareTimeoutTest, ALongTimeWithoutALookCountsAsASecond) {
  Clock::time_point now{};
  SuspendAwareTimeout countdown(3s, now);
  EXPECT_FALSE(countdown.has_expired(now += 1h));
  EXPECT_FALSE(countdown.has_expired(now += 1h));
  EXPECT_FALSE(countdown.has_expired(now += 1h));
  EXPECT_TRUE(countdown.has_expired(now += 1h));
}

TEST(SuspendAwareTimeoutTest, BeginsAnew) {
  Clock::time_point now{};
  SuspendAwareTimeout countdown(1s, now);
  EXPECT_FALSE(countdown.has_expired(now += 900ms));
  countdown.restart(now);
  EXPECT_FALSE(countdown.has_expired(now += 900ms));
  EXPECT_TRUE(countdown.has_expired(now += 900ms));
}

TEST(SuspendAwareTimeoutTest, SleepsNoLongerThanIsLeftAndLooksOftenEnough) {
  Clock::time_point now{};
  SuspendAwareTimeout countdown(10s, now);
  EXPECT_LT(countdown.next_wait(), 1s);
  EXPECT_GT(countdown.next_wait(), 0s);
  for (int i = 0; i < 99; ++i) EXPECT_FALSE(countdown.has_expired(now += 100ms));
  EXPECT_LE(countdown.next_wait(), 101ms);
  EXPECT_TRUE(countdown.has_expired(now += 1s));
  EXPECT_EQ(countdown.next_wait(), 1ms);
}

}  // namespace
}  // namespace gantry
