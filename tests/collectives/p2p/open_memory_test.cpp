// Collectives of several processes on memory that comes and goes, with real processes: random
// programs, graphs and deaths. GANTRY_TEST_ROUNDS makes the programs longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <gantry/core/env.hpp>
#include <gantry/device/device.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using testing::kIsSanitized;
using ::testing::Not;
using testing::Outcome;
using testing::run_command;

const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/open_memory_actor";

class OpenMemoryTest : public testing::DeviceTest {
 protected:
  static Outcome glaunch(int ranks, const std::vector<std::string>& arguments) {
    // Ranks that outlive another one are to say so: the launcher does not stop them.
    std::vector<std::string> argv{GLAUNCH_PROGRAM, "-n", std::to_string(ranks),
                                  "--keep-going",  "--", kActor};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_command({.argv = argv, .timeout = std::chrono::seconds(900)});
  }
  static std::string steps() {
    const int usual = kIsSanitized ? 20 : 60;
    return std::to_string(env::get_int("GANTRY_TEST_ROUNDS", 1, 1'000'000).value_or(usual));
  }
  static std::vector<int> numbers_of_ranks() { return {2, std::min(device_count(), 4)}; }
};

int count_of(const std::string& text, const std::string& phrase) {
  int count = 0;
  for (auto at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1)) {
    ++count;
  }
  return count;
}

TEST_F(OpenMemoryTest, RandomProgramsUseEachOthersMemoryAndGiveItBack) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const int ranks : numbers_of_ranks()) {
    const Outcome outcome = glaunch(ranks, {std::to_string(ranks), steps()});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(count_of(outcome.out, "in step, mirrored"), ranks) << outcome.out;
    EXPECT_THAT(outcome.out, Not(HasSubstr("mirrored 0"))) << outcome.out;
  }
}

TEST_F(OpenMemoryTest, GraphsFollowMemoryThatIsReleasedAndRestored) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const int ranks : {2, std::min(device_count(), 3)}) {
    const Outcome outcome = glaunch(ranks, {"graph"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(count_of(outcome.out, "in step"), ranks) << outcome.out;
  }
}

TEST_F(OpenMemoryTest, MemoryOfAnotherAllocatorIsStaged) {
  GANTRY_REQUIRE_DEVICES(2);
  const Outcome outcome = glaunch(2, {"closed"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "in step"), 2) << outcome.out;
}

TEST_F(OpenMemoryTest, MemoryStaysClosedIfOneRankWantsIt) {
  GANTRY_REQUIRE_DEVICES(2);
  const Outcome outcome = run_command(
      {.argv = {GLAUNCH_PROGRAM, "-n", "2", "--", "sh", "-c",
                "test $GANTRY_RANK = 0 || export GANTRY_COLL_OPEN=off; exec " + kActor + " 1 10"}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "in step, mirrored 0"), 2) << outcome.out;
}

TEST_F(OpenMemoryTest, ARankThatDiesIsNamedByAllOthers) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 4);
  for (int round = 0; round < (kIsSanitized ? 2 : 6); ++round) {
    const int killed = round % ranks;
    const Outcome outcome =
        glaunch(ranks, {std::to_string(100 + round), "40", std::to_string(killed)});
    EXPECT_NE(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(count_of(outcome.out, " died; the communicator"), ranks - 1) << outcome.describe();
    EXPECT_THAT(outcome.out, Not(HasSubstr("check failed"))) << outcome.describe();
  }
}

}  // namespace
}  // namespace gantry
