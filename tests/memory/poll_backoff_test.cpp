// Intervals of polls, by a clock of the test.
#include "memory/ipc/poll_backoff.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace gantry::memory {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(PollBackoffTest, IntervalsGrowWithTheWait) {
  const PollBackoff::Clock::time_point begin{};
  const PollBackoff backoff(begin);
  EXPECT_EQ(backoff.interval(begin), microseconds(5));
  EXPECT_EQ(backoff.interval(begin + microseconds(80)), microseconds(5));
  EXPECT_EQ(backoff.interval(begin + microseconds(800)), microseconds(50));
  EXPECT_EQ(backoff.interval(begin + milliseconds(8)), microseconds(500));
  EXPECT_EQ(backoff.interval(begin + milliseconds(16)), milliseconds(1));
  EXPECT_EQ(backoff.interval(begin + seconds(100)), milliseconds(1));
}

// At the shortest interval a second would have 200,000 polls.
TEST(PollBackoffTest, ALongWaitTakesFewPolls) {
  const PollBackoff::Clock::time_point begin{};
  const PollBackoff backoff(begin);
  int polls = 0;
  for (auto now = begin; now < begin + seconds(1); now += backoff.interval(now)) ++polls;
  EXPECT_LE(polls, 1120);
}

TEST(PollBackoffTest, AChangeStartsItAgain) {
  const PollBackoff::Clock::time_point begin{};
  PollBackoff backoff(begin);
  backoff.restart(begin + seconds(1));
  EXPECT_EQ(backoff.interval(begin + seconds(1)), microseconds(5));
  EXPECT_EQ(backoff.interval(begin + seconds(2)), milliseconds(1));
}

}  // namespace
}  // namespace gantry::memory
