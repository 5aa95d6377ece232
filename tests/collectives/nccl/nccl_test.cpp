// Groups whose every operation NCCL carries. Two GPUs do, or one that ranks share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/transport.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_processes.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::RankCommand;
using testing::RankProcesses;

class NcclTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_CUDA();
    GANTRY_REQUIRE_DEVICES(1);
    if (!has_nccl()) GTEST_SKIP() << "needs a build with NCCL (GANTRY_NCCL)";
  }
  static RankProcesses start(const std::string& what) {
    RankCommand command{
        .argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/communicator_actor", what},
        .timeout = std::chrono::seconds(400),
        .is_simulated = false,
        .shares_device = device_count() < 2,
        .is_spread = GetParam()};
    command.environment["GANTRY_COLL_ALGO"] = "nccl";
    return RankProcesses(std::move(command));
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, NcclTest, ::testing::Values(false, true), [](const auto& test) {
  return test.param ? "OnSeveralHosts" : "OnOneHost";
});

TEST_P(NcclTest, CarriesEveryOperation) {
  RankProcesses ranks = start("all");
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const Outcome outcome = ranks[rank].wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("over nccl")) << outcome.describe();
  }
}

}  // namespace
}  // namespace gantry
