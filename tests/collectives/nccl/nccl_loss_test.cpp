// A rank whose NCCL kernels wait for a dead rank.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "collectives/transport.hpp"
#include "job/flight_folder.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_processes.hpp"

namespace gantry {
namespace {

using testing::FlightFolder;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::RankCommand;
using testing::RankProcesses;

// The end of a test in which a rank does not survive the other.
constexpr auto kSurvivalTimeout = std::chrono::seconds(60);
constexpr auto kStartTimeout = std::chrono::seconds(60);

const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/nccl_loss_actor";

class NcclLossTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_CUDA();
    GANTRY_REQUIRE_DEVICES(1);
    if (!has_nccl()) GTEST_SKIP() << "needs a build with NCCL (GANTRY_NCCL)";
  }

  static RankProcesses start(const std::string& how,
                             std::optional<std::string> timeout = std::nullopt,
                             bool is_spread = false) {
    RankCommand command{
        .is_simulated = false, .shares_device = device_count() < 2, .is_spread = is_spread};
    command.environment["GANTRY_COLL_TIMEOUT"] = std::move(timeout);
    command.argv = {kActor, how};
    command.environment["GANTRY_P2P"] = "off";
    command.environment["GANTRY_COLL_ALGO"] =
        is_spread ? std::optional<std::string>("nccl") : std::nullopt;
    return RankProcesses(std::move(command));
  }

  // Kills rank 1 and returns how rank 0 ended, long before GANTRY_COLL_TIMEOUT.
  static Outcome end_of_survivor(RankProcesses& ranks) {
    ranks.kill(1);
    const Outcome outcome = ranks[0].wait();
    EXPECT_FALSE(outcome.timed_out) << "it hung";
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    return outcome;
  }

 private:
  const FlightFolder folder_;
};

TEST_F(NcclLossTest, WaitingForWorkThrowsAndShrinkGoesOn) {
  RankProcesses ranks = start("work");
  for (const int rank : {0, 1}) ASSERT_TRUE(ranks.says(rank, "enqueued", kStartTimeout)) << rank;
  EXPECT_THAT(end_of_survivor(ranks).out, HasSubstr("survived"));
}

// No thread polls: the watchdog ends the kernels.
TEST_F(NcclLossTest, SynchronizingTheDeviceThrowsAndShrinkGoesOn) {
  RankProcesses ranks = start("device");
  for (const int rank : {0, 1}) ASSERT_TRUE(ranks.says(rank, "enqueued", kStartTimeout)) << rank;
  EXPECT_THAT(end_of_survivor(ranks).out, HasSubstr("survived"));
}

TEST_F(NcclLossTest, AProgramThatWaitsForNothingEnds) {
  RankProcesses ranks = start("exit");
  for (const int rank : {0, 1}) ASSERT_TRUE(ranks.says(rank, "enqueued", kStartTimeout)) << rank;
  end_of_survivor(ranks);
}

TEST_F(NcclLossTest, AnAbortEndsPendingCalls) {
  RankProcesses ranks = start("abort");
  ASSERT_TRUE(ranks.says(1, "enqueued", kStartTimeout));
  ASSERT_TRUE(ranks.says(0, "survived", kStartTimeout));
  end_of_survivor(ranks);
}

// Then a host stands inside NCCL, in front of a kernel that does not end.
TEST_F(NcclLossTest, AFullQueueOfCallsDoesNotHoldTheErrorBack) {
  RankProcesses ranks = start("full");
  ASSERT_TRUE(ranks.says(0, "called 0.", kStartTimeout));
  for (int calls = 100; ranks.says(0, fmt::format("called {}.", calls), std::chrono::seconds(3));) {
    calls += 100;
  }
  EXPECT_THAT(end_of_survivor(ranks).out, HasSubstr("survived"));
}

TEST_F(NcclLossTest, ARankThatIsGoneWhileNcclStartsIsMissed) {
  for (const char* how : {"start, dying", "start, giving up"}) {
    RankProcesses ranks = start(how);
    const bool survived = ranks.says(0, "survived", kStartTimeout);
    const Outcome outcome = ranks[0].wait();
    EXPECT_TRUE(survived && outcome.exit_code == 0) << how << ": " << outcome.describe();
  }
}

TEST_F(NcclLossTest, AMessageWithoutASenderHasADeadline) {
  RankProcesses ranks = start("message", "4");
  ASSERT_TRUE(ranks.says(1, "enqueued", kStartTimeout));
  const bool survived = ranks.says(0, "survived", kSurvivalTimeout);
  ranks.kill(1);
  const Outcome outcome = ranks[0].wait();
  EXPECT_TRUE(survived && outcome.exit_code == 0) << outcome.describe();
}

// Then ranks share no memory in which one could tell that it waits.
TEST_F(NcclLossTest, ALateRankOfAnotherHostIsATimeout) {
  RankProcesses ranks = start("between hosts", "4", /*is_spread=*/true);
  ASSERT_TRUE(ranks.says(1, "enqueued", kStartTimeout));
  const bool survived = ranks.says(0, "survived a TimeoutError", kSurvivalTimeout);
  ranks.kill(1);
  const Outcome outcome = ranks[0].wait();
  EXPECT_TRUE(survived && outcome.exit_code == 0) << outcome.describe();
}

TEST_F(NcclLossTest, ARankOfAnotherHostThatDiesIsAnErrorOfNccl) {
  RankProcesses ranks = start("between hosts", "600", /*is_spread=*/true);
  for (const int rank : {0, 1}) ASSERT_TRUE(ranks.says(rank, "enqueued", kStartTimeout)) << rank;
  EXPECT_THAT(end_of_survivor(ranks).out, HasSubstr("survived an NcclError"));
}

TEST_F(NcclLossTest, BlocksThatDifferAreAMismatchTheGroupSurvives) {
  RankProcesses ranks = start("blocks");
  for (const int rank : {0, 1}) {
    const Outcome outcome = ranks[rank].wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("survived"));
  }
}

}  // namespace
}  // namespace gantry
