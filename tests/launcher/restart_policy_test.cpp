#include "launcher/run/failures/restart_policy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace gantry::launcher {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

JobResult failure(int exit_code, int signal = 0) {
  RankResult rank;
  rank.started = rank.ended = true;
  rank.exit_code = exit_code;
  rank.signal = signal;
  JobResult result;
  result.outcome = Outcome::rank_failed;
  result.ranks.push_back(rank);
  return result;
}

// The pauses of a job that fails after `runs` of these lengths.
std::vector<milliseconds> pauses(int most, milliseconds first,
                                 const std::vector<milliseconds>& runs) {
  Clock::time_point now;
  RestartPolicy policy(most, first, [&] { return now; });
  std::vector<milliseconds> result;
  for (const milliseconds run : runs) {
    policy.begin_run();
    now += run;
    const auto delay = policy.next_delay(failure(7));
    result.push_back(delay.value_or(-1ms));
    now += delay.value_or(0ms);
  }
  return result;
}

TEST(RestartPolicyTest, PausesDoubleUpToAMinute) {
  EXPECT_THAT(pauses(8, 1s, std::vector<milliseconds>(9, 1s)),
              ::testing::ElementsAre(1s, 2s, 4s, 8s, 16s, 32s, 60s, 60s, -1ms));
  EXPECT_THAT(pauses(3, 2min, {1s, 1s, 1s}), ::testing::ElementsAre(2min, 2min, 2min));
  EXPECT_THAT(pauses(2, 0ms, {1s, 1s, 1s}), ::testing::ElementsAre(0ms, 0ms, -1ms));
  EXPECT_EQ(pauses(100, 1s, std::vector<milliseconds>(100, 1s)).back(), 60s);
}

TEST(RestartPolicyTest, ALongRunIsABeginning) {
  EXPECT_THAT(pauses(5, 1s, {1s, 1s, 10min, 1s}), ::testing::ElementsAre(1s, 2s, 1s, 2s));
  // The pauses before it count for no run.
  EXPECT_THAT(pauses(5, 5min, {1s, 6min, 9min}), ::testing::ElementsAre(5min, 5min, 5min));
}

TEST(RestartPolicyTest, OnlyAFailureOfARankIsTriedAgain) {
  RestartPolicy policy(100, 0ms);
  for (const Outcome outcome :
       {Outcome::ok, Outcome::timed_out, Outcome::interrupted, Outcome::not_started}) {
    JobResult result = failure(7);
    result.outcome = outcome;
    EXPECT_EQ(policy.next_delay(result), std::nullopt);
  }
  for (const int code : {125, 126, 127}) EXPECT_EQ(policy.next_delay(failure(code)), std::nullopt);
  EXPECT_EQ(policy.restarts(), 0);
  for (const int code : {1, 2, 124, 128}) EXPECT_NE(policy.next_delay(failure(code)), std::nullopt);
  EXPECT_NE(policy.next_delay(failure(0, SIGKILL)), std::nullopt);
  EXPECT_EQ(policy.restarts(), 5);
}

}  // namespace
}  // namespace gantry::launcher
