// Windows between processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_command;

class WindowProcessesTest : public testing::DeviceTest {
 protected:
  static int ranks() { return std::min(device_count(), 4); }
  static Outcome glaunch(const std::string& what, const char* timeout = nullptr) {
    return run_command(
        {.argv = {GLAUNCH_PROGRAM, "--keep-going", "-n", std::to_string(ranks()), "--",
                  std::string(GANTRY_TEST_PROGRAM_DIR) + "/window_actor", what},
         .environment = {{"GANTRY_COLL_TIMEOUT",
                          timeout == nullptr ? std::optional<std::string>() : timeout}},
         .timeout = std::chrono::seconds(60)});
  }
};

TEST_F(WindowProcessesTest, SignalsOrderWritesOfOtherProcesses) {
  GANTRY_REQUIRE_DEVICES(2);
  const Outcome outcome = glaunch("ring");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  for (int rank = 0; rank < ranks(); ++rank) {
    EXPECT_THAT(outcome.out, HasSubstr("[" + std::to_string(rank) + "] ok\n"));
  }
}

TEST_F(WindowProcessesTest, AWaitForARankThatDiesNamesIt) {
  GANTRY_REQUIRE_DEVICES(2);
  const Outcome outcome = glaunch("dies");
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == 1) continue;
    EXPECT_THAT(outcome.out, HasSubstr("[" + std::to_string(rank) + "] lost rank 1: "))
        << outcome.describe();
  }
}

TEST_F(WindowProcessesTest, AKernelLeavesWhenARankDiesInsideItsOwn) {
  GANTRY_REQUIRE_DEVICES(2);
  for (int round = 0; round < 5; ++round) {
    const Outcome outcome = glaunch("kernel-dies");
    for (int rank = 0; rank < ranks(); ++rank) {
      if (rank == 1) continue;
      EXPECT_THAT(outcome.out, HasSubstr("[" + std::to_string(rank) + "] lost rank 1: "))
          << outcome.describe();
    }
  }
}

TEST_F(WindowProcessesTest, AKernelLeavesWhenARankStopsInsideItsOwn) {
  GANTRY_REQUIRE_DEVICES(2);
  GANTRY_REQUIRE_SIM();  // a GPU's kernel goes on without its process
  const Outcome outcome = glaunch("kernel-stops", "1");
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == 1) continue;
    EXPECT_THAT(outcome.out, HasSubstr("[" + std::to_string(rank) + "] late rank 1: PeerView: "))
        << outcome.describe();
  }
}

// It does not hang, and the others learn about it.
TEST_F(WindowProcessesTest, AProcessEndsWithAPendingWait) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const auto& [how, end] : {std::pair("returns", "ok"), std::pair("exits", "exits")}) {
    const Outcome outcome = glaunch(how);
    EXPECT_THAT(outcome.out, HasSubstr("[0] " + std::string(end) + "\n")) << outcome.describe();
    EXPECT_THAT(outcome.err, Not(HasSubstr("rank 0 (SIG"))) << outcome.describe();
    for (int rank = 1; rank < ranks(); ++rank) {
      EXPECT_THAT(outcome.out, HasSubstr("[" + std::to_string(rank) + "] lost rank 0: "))
          << outcome.describe();
    }
  }
}

}  // namespace
}  // namespace gantry
