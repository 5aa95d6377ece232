// The communicator with real processes: the actor is one rank, started in every way there is.

#include <gantry/collectives/communicator.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include <gantry/core/error.hpp>

#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_command;

const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/communicator_actor";

class CommunicatorTest : public testing::DeviceTest {
 protected:
  static int ranks() { return std::min(device_count(), 8); }

  static Outcome glaunch(std::vector<std::string> arguments, int count = ranks(),
                         const std::map<std::string, std::optional<std::string>>& environment = {},
                         bool keep_going = false) {
    std::vector<std::string> argv{GLAUNCH_PROGRAM, "-n", std::to_string(count)};
    if (keep_going) argv.emplace_back("--keep-going");
    argv.insert(argv.end(), {"--", kActor});
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_command(
        {.argv = argv, .environment = environment, .timeout = std::chrono::seconds(240)});
  }
};

int count_of(const std::string& text, const std::string& phrase) {
  int count = 0;
  for (auto at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1))
    ++count;
  return count;
}

TEST_F(CommunicatorTest, EveryOperationUnderGlaunch) {
  const Outcome outcome = glaunch({"all"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  const std::string transport = ranks() > 1 ? "p2p" : "none";
  EXPECT_EQ(count_of(outcome.out, "ok by glaunch over " + transport), ranks()) << outcome.out;
}

TEST_F(CommunicatorTest, EveryOperationWithTwoRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  const Outcome outcome = glaunch({"all"}, 2);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
}

TEST_F(CommunicatorTest, EveryOperationWithoutEachOthersMemory) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  const Outcome outcome = glaunch({"all"}, ranks(), {{"GANTRY_P2P", "off"}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "ok by glaunch over host"), ranks()) << outcome.out;
}

TEST_F(CommunicatorTest, RegisteredMemoryIsUsedInPlaceWhereverItIs) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const int count : {2, std::min(ranks(), 4)}) {
    const Outcome outcome = glaunch({"registered"}, count);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(count_of(outcome.out, "in step"), count) << outcome.out;
  }
}

// Simulated devices can be reached where they are hidden, as GPUs can by the driver's IPC.
TEST_F(CommunicatorTest, EveryRankMaySeeNoDeviceButItsOwn) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  const Outcome outcome = run_command(
      {.argv = {GLAUNCH_PROGRAM, "-n", "2", "--", "sh", "-c",
                "CUDA_VISIBLE_DEVICES=$GANTRY_LOCAL_RANK exec " + kActor + " bad-input"}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "in step"), 2) << outcome.out;
}

TEST_F(CommunicatorTest, EveryOperationUnderMpirun) {
  if (std::string(MPIRUN_PROGRAM).empty()) GTEST_SKIP() << "needs mpirun, but there is none";
  const Outcome outcome = run_command(
      {.argv = {MPIRUN_PROGRAM, "--oversubscribe", "-n", std::to_string(ranks()), kActor, "all"},
       .timeout = std::chrono::seconds(240)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "ok by openmpi"), ranks()) << outcome.describe();
}

TEST_F(CommunicatorTest, AWrapperUnderMpirunMayExportTorchrunsNames) {
  GANTRY_REQUIRE_DEVICES(2);
  if (std::string(MPIRUN_PROGRAM).empty()) GTEST_SKIP() << "needs mpirun, but there is none";
  const Outcome outcome =
      run_command({.argv = {MPIRUN_PROGRAM, "--oversubscribe", "-n", "2", "sh", "-c",
                            "RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE exec " +
                                kActor + " bad-input"}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "in step"), 2) << outcome.out;
}

TEST_F(CommunicatorTest, EveryOperationWithTorchrunStyleVariables) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::string address = "unix:@gantry-test-" + std::to_string(getpid());
  std::vector<testing::Subprocess> processes;
  for (int rank = 0; rank < 2; ++rank) {
    processes.emplace_back(testing::Command{.argv = {kActor, "all"},
                                            .environment = {{"RANK", std::to_string(rank)},
                                                            {"WORLD_SIZE", "2"},
                                                            {"LOCAL_RANK", std::to_string(rank)},
                                                            {"LOCAL_WORLD_SIZE", "2"},
                                                            {"GANTRY_RDZV", address}},
                                            .timeout = std::chrono::seconds(240)});
  }
  for (testing::Subprocess& process : processes) {
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("ok by torchrun"));
  }
}

TEST_F(CommunicatorTest, OneProcessIsAGroupOfOne) {
  const Outcome outcome =
      run_command({.argv = {kActor, "all"}, .timeout = std::chrono::seconds(240)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("rank 0 of 1 ok by single over none"));
}

TEST_F(CommunicatorTest, DifferentCallsAreAnErrorThatNamesBoth) {
  GANTRY_REQUIRE_DEVICES(2);
  struct Case {
    const char* field;
    const char* common;  // what all ranks call but rank 1
    const char* odd;
  };
  const Case cases[] = {
      {"count", "called all_reduce sum i32[8]", "rank 1 called all_reduce sum i32[9]"},
      {"dtype", "called all_reduce sum i32[8]", "rank 1 called all_reduce sum f32[8]"},
      {"op", "called all_reduce sum i32[8]", "rank 1 called all_reduce max i32[8]"},
      {"root", "called broadcast i32[8] root=0", "rank 1 called broadcast i32[8] root=1"},
      {"kind", "called all_reduce sum i32[8]", "rank 1 called all_gather i32[8]"},
      {"barrier", "called all_reduce sum i32[8]", "rank 1 called barrier"}};
  for (const auto& [field, common, odd] : cases) {
    const Outcome outcome = glaunch({"mismatch", field});
    EXPECT_EQ(outcome.exit_code, 0) << field << outcome.describe();
    // Which rank stands for the others depends on who had come when the error was seen.
    EXPECT_EQ(count_of(outcome.out, common), ranks()) << field << "\n" << outcome.out;
    EXPECT_EQ(count_of(outcome.out, odd), ranks()) << field << "\n" << outcome.out;
  }
}

TEST_F(CommunicatorTest, EverySurvivorDetectsALostRank) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const char* how : {"kill", "exit", "return", "abort"}) {
    const Outcome outcome = glaunch({"loss", how}, ranks(), {}, /*keep_going=*/true);
    EXPECT_FALSE(outcome.timed_out) << how << outcome.describe();
    EXPECT_EQ(count_of(outcome.out, "lost rank 1: "), ranks() - 1) << how << outcome.describe();
  }
}

// Connections end before it is known why.
TEST_F(CommunicatorTest, EverySurvivorDetectsTheSameLostRankThroughHostMemory) {
  GANTRY_REQUIRE_DEVICES(3);
  const std::pair<const char*, const char*> cases[] = {
      {"kill", "died"}, {"exit", "died"}, {"return", "has left the job"}, {"abort", "aborted"}};
  for (const auto& [how, text] : cases) {
    const Outcome outcome =
        glaunch({"loss", how}, ranks(), {{"GANTRY_COLL_ALGO", "host"}}, /*keep_going=*/true);
    EXPECT_FALSE(outcome.timed_out) << how << outcome.describe();
    const std::string phrase = std::string("lost rank 1: rank 1 ") + text + "; ";
    EXPECT_EQ(count_of(outcome.out, phrase), ranks() - 1) << how << outcome.describe();
  }
}

TEST_F(CommunicatorTest, ALateRankIsATimeoutThatNamesIt) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const char* algorithm : {"auto", "host"}) {
    const testing::FlightFolder folder;
    // A deadline for world(), too.
    const Outcome outcome =
        glaunch({"timeout", folder.path() + "/given-up"}, 2,
                {{"GANTRY_COLL_TIMEOUT", "6"}, {"GANTRY_COLL_ALGO", algorithm}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    const std::string text = "collective: rank 0 waited 6 s, but rank(s) 1 did not";
    EXPECT_THAT(outcome.out, HasSubstr("timeout: " + text)) << algorithm;
    EXPECT_THAT(outcome.out, HasSubstr("late: " + text)) << algorithm;
  }
}

TEST_F(CommunicatorTest, TheGroupsDeadlineTakesPrecedenceOverTheVariable) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const char* algorithm : {"auto", "host"}) {
    const testing::FlightFolder folder;
    const Outcome outcome =
        glaunch({"timeout", folder.path() + "/given-up", "700"}, 2,
                {{"GANTRY_COLL_TIMEOUT", "100"}, {"GANTRY_COLL_ALGO", algorithm}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    for (const char* rank : {"timeout: ", "late: "}) {
      EXPECT_THAT(outcome.out, HasSubstr(std::string(rank) + "collective: rank 0 waited "));
    }
    EXPECT_THAT(outcome.out, HasSubstr("the group's timeout sets the deadline")) << algorithm;
  }
}

TEST_F(CommunicatorTest, BadInputOnOneRankLeavesTheGroupInStep) {
  const Outcome outcome = glaunch({"bad-input"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "in step"), ranks()) << outcome.describe();
}

TEST_F(CommunicatorTest, MalformedSurroundingsAreErrors) {
  const auto run = [](const std::map<std::string, std::optional<std::string>>& environment) {
    return run_command({.argv = {kActor, "all"}, .environment = environment}).out;
  };
  EXPECT_THAT(run({{"GANTRY_COLL_ALGO", "fast"}}),
              HasSubstr("GANTRY_COLL_ALGO: expected auto, p2p, ll, ll128, ll128_two_shot, "
                        "one_shot, two_shot, "
                        "zero_copy, copy, "
                        "nccl or host, but got 'fast'"));
  const Outcome allocator =
      glaunch({"all"}, device_count() > 1 ? 2 : 1, {{"GANTRY_ALLOC_CONF", "x"}});
  EXPECT_THAT(allocator.out, HasSubstr("GANTRY_ALLOC_CONF: expected key:value, but got 'x'"));
  EXPECT_THAT(allocator.out + allocator.err, Not(HasSubstr("no peer-to-peer collectives")));
  EXPECT_THAT(run({{"GANTRY_COLL_TIMEOUT", "soon"}}), HasSubstr("GANTRY_COLL_TIMEOUT"));
  EXPECT_THAT(run({{"RANK", "0"}, {"WORLD_SIZE", "two"}}), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(run({{"GANTRY_RANK", "0"},
                   {"GANTRY_WORLD_SIZE", "1"},
                   {"GANTRY_LOCAL_RANK", "0"},
                   {"GANTRY_LOCAL_SIZE", "1"},
                   {"GANTRY_DEVICE", "99"}}),
              HasSubstr(device_count() > 1 ? "GANTRY_DEVICE is 99" : "ok by"));
}

TEST_F(CommunicatorTest, TooManyRanksForTheSimulatedDevicesNameTheVariable) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(2);
  const auto text_of = [](int local_rank, int ranks) {
    return run_command({.argv = {kActor, "all"},
                        .environment = {{"GANTRY_RANK", std::to_string(local_rank)},
                                        {"GANTRY_WORLD_SIZE", std::to_string(ranks)},
                                        {"GANTRY_LOCAL_RANK", std::to_string(local_rank)},
                                        {"GANTRY_LOCAL_SIZE", std::to_string(ranks)}}})
        .out;
  };
  const std::string count = std::to_string(device_count());
  const std::string before = "local rank 6 needs a device of its own, but this node shows only " +
                             count + " device(s); start at most " + count + " ranks per node";
  EXPECT_THAT(text_of(6, 8), HasSubstr(before + ", or set GANTRY_SIM_DEVICES=8\n"));
  EXPECT_THAT(text_of(6, 65), HasSubstr(before + "\n"));  // more than there can be
}

}  // namespace
}  // namespace gantry
