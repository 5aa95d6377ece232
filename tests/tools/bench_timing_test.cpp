// How calls are timed, and what becomes of the times.
#include "tools/bench/timing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace gantry::bench {
namespace {

using ::testing::ElementsAre;

// The times 1 to `count`, in no order.
Timing timing_of(int count) {
  std::vector<double> times(static_cast<std::size_t>(count));
  std::iota(times.rbegin(), times.rend(), 1.0);
  std::swap(times.front(), times[times.size() / 2]);
  return summarize(times, 7);
}

TEST(BenchTimingTest, APercentileIsTheLeastTimeThatTheShareDoesNotExceed) {
  EXPECT_EQ(timing_of(1).p50_us, 1);
  EXPECT_EQ(timing_of(2).p50_us, 1);
  EXPECT_EQ(timing_of(3).p50_us, 2);
  EXPECT_EQ(timing_of(4).p50_us, 2) << "the lower one of two in the middle";
  EXPECT_EQ(timing_of(5).p50_us, 3);
  EXPECT_EQ(timing_of(1).p99_us, 1);
  EXPECT_EQ(timing_of(99).p99_us, 99);
  EXPECT_EQ(timing_of(100).p99_us, 99);
  EXPECT_EQ(timing_of(101).p99_us, 100);
}

TEST(BenchTimingTest, ASummaryHasTheMeanTheLeastAndTheCounts) {
  const Timing timing = timing_of(4);
  EXPECT_EQ(timing.mean_us, 2.5);
  EXPECT_EQ(timing.min_us, 1);
  EXPECT_EQ(timing.batches, 4);
  EXPECT_EQ(timing.calls, 7);
}

TEST(BenchTimingTest, BatchesShrinkBeforeCalls) {
  const Repetitions wanted{.calls = 20, .batches = 10, .max_seconds = 2};
  const auto fitted = [&](double seconds) {
    const Repetitions result = wanted.fitted(seconds);
    return std::vector{result.batches, result.calls};
  };
  EXPECT_THAT(fitted(0), ElementsAre(10, 20));
  EXPECT_THAT(fitted(std::numeric_limits<double>::quiet_NaN()), ElementsAre(10, 20));
  EXPECT_THAT(fitted(1e-300), ElementsAre(10, 20));
  EXPECT_THAT(fitted(0.0078125), ElementsAre(10, 20)) << "256 calls";
  EXPECT_THAT(fitted(0.015625), ElementsAre(6, 20)) << "128 calls";
  EXPECT_THAT(fitted(0.125), ElementsAre(3, 5)) << "16 calls";
  EXPECT_THAT(fitted(64), ElementsAre(3, 1)) << "no call";
  EXPECT_EQ((Repetitions{.calls = 20, .batches = 1}.fitted(64).batches), 1);
}

// The calls of measure(), where a call takes `seconds` according to the slowest rank.
struct Course {
  explicit Course(const Repetitions& repetitions, int at_once = 1, double seconds = 0) {
    TimedCalls timed;
    timed.calls_at_once = at_once;
    timed.begin = [this] { launches.push_back(0); };
    timed.launch = [this] { ++launches.back(); };
    timed.wait = [this] { ++waits; };
    timed.maximum = [this, seconds](const std::vector<double>& values) {
      return maxima++ == 0 ? std::vector{seconds} : std::vector<double>(values.size(), 5.0);
    };
    timing = measure(timed, repetitions);
  }

  std::vector<int> launches;  // of each batch
  int waits = 0;
  int maxima = 0;
  Timing timing;
};

TEST(BenchTimingTest, WarmUpAndProbeComeBeforeTheBatches) {
  const Course course({.calls = 20, .batches = 4, .warm_up = 5});
  EXPECT_THAT(course.launches, ElementsAre(5, 1, 20, 20, 20, 20));
  EXPECT_EQ(course.waits, 6) << "once a batch";
  EXPECT_EQ(course.timing.calls, 20);
  EXPECT_EQ(course.timing.batches, 4);
  EXPECT_EQ(course.timing.p50_us, 5) << "the slowest rank's";
  const Course cold({.calls = 2, .batches = 1, .warm_up = 0});
  EXPECT_THAT(cold.launches, ElementsAre(1, 2));
}

TEST(BenchTimingTest, TheSlowestRanksProbeDecidesHowManyBatchesThereAre) {
  const Course course({.calls = 20, .batches = 10, .warm_up = 0, .max_seconds = 2}, 1, 0.125);
  EXPECT_THAT(course.launches, ElementsAre(1, 5, 5, 5));
}

TEST(BenchTimingTest, LaunchesOfSeveralCallsAreRoundedUp) {
  const Course course({.calls = 10, .batches = 1, .warm_up = 5}, 4);
  EXPECT_THAT(course.launches, ElementsAre(2, 1, 3));
  EXPECT_EQ(course.timing.calls, 12);
}

TEST(BenchTimingTest, ABlockingHostWaitsForEachLaunch) {
  const Course course({.calls = 3, .batches = 1, .warm_up = 0, .blocking = true});
  EXPECT_THAT(course.launches, ElementsAre(1, 3));
  EXPECT_EQ(course.waits, 6) << "4 launches and 2 batches";
}

}  // namespace
}  // namespace gantry::bench
