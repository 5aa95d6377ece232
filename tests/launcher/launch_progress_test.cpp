// Jobs that do not begin, or get no further.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/text/json.hpp"
#include "launcher/run/failures/stall_watch.hpp"
#include "tests/launcher/launch_fixture.hpp"
#include "tests/support/rank_processes.hpp"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LaunchProgressTest : public LaunchTest {
 protected:
  /// A rank of the watchdog's actor: `what` says what it does.
  Command watched(std::vector<std::string> options, const std::vector<std::string>& what) const {
    options.push_back(std::string(GANTRY_TEST_PROGRAM_DIR) + "/watchdog_actor");
    options.insert(options.end(), what.begin(), what.end());
    return launch(std::move(options));
  }

  FlightFolder flights_;
};

TEST_F(LaunchProgressTest, AStalledJobIsStoppedAndSaysWhoWaitsForWhom) {
  const Outcome outcome =
      run_command(watched({"-n", "3", "--stall-timeout", "400ms", "--report", path("report")},
                          {"absence", "2", "call"}));
  EXPECT_EQ(outcome.exit_code, 124) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("the job was stopped: no rank got further for 0.4 s "
                                     "(--stall-timeout)"));
  EXPECT_THAT(outcome.err, HasSubstr("rank 2 has not called #2 all_reduce sum f32[1000]; ranks 0, "
                                     "1 wait for it"));
  const Json report = Json::parse(read_file(path("report")));
  EXPECT_EQ(report.at("outcome"), "stalled");
  EXPECT_EQ(report.at("exit_code"), 124);
}

TEST_F(LaunchProgressTest, AStalledJobIsStartedAgain) {
  const Outcome outcome = run_command(watched(
      {"-n", "2", "--stall-timeout", "200ms", "--max-restarts", "1", "--restart-delay", "0s"},
      {"absence", "1", "call"}));
  EXPECT_EQ(outcome.exit_code, 124) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("restart 1 of 1"));
}

TEST_F(LaunchProgressTest, RanksInNoCallDoNotStall) {
  // They wait for each other in the store, not in a collective.
  const Outcome outcome =
      run_command(act({"-n", "2", "--stall-timeout", "1ms"}, {"write-environment", directory_}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
}

TEST_F(LaunchProgressTest, AStallBeginsWhenNothingChangesAndEndsWithTheCall) {
  RankProcesses ranks(RankCommand{
      .ranks = 3,
      .argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/watchdog_actor", "absence", "2", "call"},
      .environment = {{"GANTRY_JOB_ID", "train-7"}}});
  for (const int rank : {0, 1}) ASSERT_TRUE(ranks.says(rank, "waiting")) << rank;
  ASSERT_TRUE(ranks.says(2, "ready"));
  launcher::StallWatch watch;
  const auto begin = launcher::StallWatch::Clock::time_point() + std::chrono::hours(1);
  watch.look("train-7", begin);
  EXPECT_EQ(watch.since(), begin);
  watch.look("train-7", begin + std::chrono::seconds(9));
  EXPECT_EQ(watch.since(), begin);
  launcher::StallWatch other;
  other.look("train-8", begin);
  EXPECT_EQ(other.since(), std::nullopt);
  // A job that was suspended begins anew.
  watch.reset();
  EXPECT_EQ(watch.since(), std::nullopt);
  watch.look("train-7", begin + std::chrono::seconds(20));
  EXPECT_EQ(watch.since(), begin + std::chrono::seconds(20));
  for (const int rank : {2, 0, 1}) ranks.go(rank);
  for (const int rank : {0, 1, 2}) ranks[rank].wait();
  watch.look("train-7", begin + std::chrono::seconds(30));
  EXPECT_EQ(watch.since(), std::nullopt);
}

TEST_F(LaunchProgressTest, RanksThatDoNotComeToWorldInTimeAreNamed) {
  const Outcome none = run_command(act({"-n", "2", "--init-timeout", "200ms"}, {"wait"}));
  EXPECT_EQ(none.exit_code, 124) << none.describe();
  EXPECT_THAT(none.err, HasSubstr("the job was stopped: ranks 0, 1 have not come to "
                                  "Communicator::world() within 0.2 s (--init-timeout)"));
  const Outcome one = run_command(
      act({"-n", "1", "--init-timeout", "200ms", "--max-restarts", "1", "--restart-delay", "0s"},
          {"wait"}));
  EXPECT_EQ(one.exit_code, 124) << one.describe();
  EXPECT_THAT(one.err, HasSubstr("rank 0 has not come to Communicator::world()"));
  EXPECT_THAT(one.err, HasSubstr("restart 1 of 1"));
}

TEST_F(LaunchProgressTest, RanksInWorldAreInTime) {
  // It is the stall that ends the job: both ranks are in world() long after the first limit.
  const Outcome outcome = run_command(watched(
      {"-n", "2", "--init-timeout", "15s", "--stall-timeout", "300ms"}, {"absence", "1", "call"}));
  EXPECT_EQ(outcome.exit_code, 124) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("--stall-timeout"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("--init-timeout")));
}

TEST_F(LaunchProgressTest, TimesAreChecked) {
  for (const std::string option : {"--init-timeout", "--stall-timeout"}) {
    const Outcome zero = run_command(act({option, "0"}, {"wait"}));
    EXPECT_EQ(zero.exit_code, 125);
    EXPECT_THAT(zero.err, HasSubstr(option + ": expected more than 0"));
    const Outcome word = run_command(act({option, "soon"}, {"wait"}));
    EXPECT_THAT(word.err, HasSubstr(option + ": expected a duration such as"));
    const Outcome hosts = run_command(act({"--hosts", "a:1,b:1", option, "5s"}, {"wait"}));
    EXPECT_THAT(hosts.err, HasSubstr(option + ": expected one machine"));
  }
}

}  // namespace
}  // namespace gantry::testing
