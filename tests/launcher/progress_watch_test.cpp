#include "launcher/run/failures/progress_watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace gantry::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ProgressWatch::Clock::time_point kStart{1000h};
constexpr const char* kJob = "a job without records";

TEST(ProgressWatchTest, NothingIsDueBeforeTheJobBegins) {
  const FailureOptions options;
  EXPECT_FALSE(ProgressWatch(options).deadline());
}

TEST(ProgressWatchTest, LateRanksStopTheJobAtTheInitTimeoutAndNotBefore) {
  FailureOptions options;
  options.init_timeout = 5s;
  ProgressWatch watch(options);
  watch.begin(kStart);
  EXPECT_EQ(watch.deadline(), kStart + 5s);
  const auto late = [] { return std::vector<int>{1, 3}; };
  EXPECT_FALSE(watch.look(kStart + 4999ms, kJob, late).stop_cause);
  const ProgressWatch::Look found = watch.look(kStart + 5s, kJob, late);
  ASSERT_TRUE(found.stop_cause);
  EXPECT_EQ(*found.stop_cause,
            "ranks 1, 3 have not come to Communicator::world() within 5 s (--init-timeout)");
  // Once: the job is being stopped.
  EXPECT_FALSE(watch.look(kStart + 6s, kJob, late).stop_cause);
}

TEST(ProgressWatchTest, AJobWhoseRanksAreAllThereGoesOn) {
  FailureOptions options;
  options.init_timeout = 5s;
  ProgressWatch watch(options);
  watch.begin(kStart);
  EXPECT_FALSE(watch.look(kStart + 5s, kJob, [] { return std::vector<int>(); }).stop_cause);
  EXPECT_GT(watch.deadline(), kStart + 5s);
  // Another start of the job has the same time again.
  watch.begin(kStart + 60s);
  const auto late = [] { return std::vector<int>{0}; };
  EXPECT_THAT(watch.look(kStart + 65s, kJob, late).stop_cause.value_or(""),
              HasSubstr("rank 0 has not come"));
}

TEST(ProgressWatchTest, AJobWithoutCallsIsNotStalled) {
  FailureOptions options;
  options.stall_timeout = 1s;
  ProgressWatch watch(options);
  watch.begin(kStart);
  EXPECT_EQ(watch.deadline(), kStart + 250ms);
  for (auto time = 250ms; time < 100s; time += 250ms) {
    const ProgressWatch::Look found =
        watch.look(kStart + time, kJob, [] { return std::vector<int>(); });
    EXPECT_FALSE(found.stop_cause);
    EXPECT_THAT(found.messages, IsEmpty());
  }
}

}  // namespace
}  // namespace gantry::launcher
