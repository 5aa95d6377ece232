// Traces of the processes of a job, merged by gantry-trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/text/json.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_processes.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using gantry::testing::content_of;
using gantry::testing::Outcome;
using gantry::testing::run_command;
using ::testing::HasSubstr;

constexpr int kRounds = 12;

class TraceRanksTest : public gantry::testing::DeviceTest {
 protected:
  void record(int ranks, const std::string& path) {
    gantry::testing::RankProcesses processes(
        {.ranks = ranks,
         .argv = {GANTRY_TEST_PROGRAM_DIR "/traced_rank", std::to_string(kRounds)},
         .environment = {{"GANTRY_TRACE", path}},
         .is_simulated = platform() == Platform::simulated});
    for (int rank = 0; rank < ranks; ++rank) {
      const Outcome outcome = processes[rank].wait();
      ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    }
  }
  static Outcome merge(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), GANTRY_TEST_TRACE);
    return run_command({.argv = std::move(arguments)});
  }
  [[nodiscard]] std::string file(const std::string& name) const { return (folder / name).string(); }

  const gantry::testing::TemporaryFolder folder;
};

struct Call {
  double begin = 0;
  double end = 0;
};

// The all_reduces of each rank by their numbers, from the call to the end of the wait behind it:
// the next call begins after that wait.
std::map<int, std::map<std::int64_t, Call>> all_reduces(const Json& root) {
  std::map<int, std::map<std::int64_t, Call>> calls;
  for (const Json& event : root.at("traceEvents").elements()) {
    if (event.value_or<std::string>("cat", "") != "collective") continue;
    if (event.at("name").as<std::string>() != "all_reduce") continue;
    const int rank = static_cast<int>(event.at("pid").as<std::int64_t>() / 1000);
    Call& call = calls[rank][event.at("args").at("number").as<std::int64_t>()];
    call.begin = event.at("ts").as<double>();
    call.end = call.begin + event.at("dur").as<double>();
  }
  return calls;
}

TEST_F(TraceRanksTest, EachRankWritesAFileAndTheirClocksAgree) {
  GANTRY_REQUIRE_DEVICES(2);
  const int ranks = std::min(device_count(), 3);
  record(ranks, file("rank-{rank}.json"));
  std::vector<std::string> arguments{"-o", file("all.json")};
  for (int rank = 0; rank < ranks; ++rank) {
    arguments.push_back(file("rank-" + std::to_string(rank) + ".json"));
  }
  const Outcome outcome = merge(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, "wrote " + file("all.json") + ": " + std::to_string(ranks) + " ranks\n");
  const auto calls = all_reduces(Json::parse(content_of(file("all.json"))));
  ASSERT_EQ(calls.size(), static_cast<std::size_t>(ranks));
  for (const auto& [rank, own] : calls) {
    ASSERT_EQ(own.size(), static_cast<std::size_t>(kRounds)) << "rank " << rank;
    for (const auto& [other, theirs] : calls) {
      for (auto call = own.begin(); std::next(call) != own.end(); ++call) {
        // A rank is done with a call, and so begins the next one, after every rank began it.
        const auto same = theirs.find(call->first);
        ASSERT_NE(same, theirs.end()) << "call " << call->first;
        EXPECT_LE(same->second.begin, std::next(call)->second.begin)
            << "call " << call->first << " of ranks " << rank << " and " << other;
      }
    }
  }
}

TEST_F(TraceRanksTest, AJobNeedsAPathForEachRank) {
  const Outcome outcome =
      run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/traced_rank"},
                   .environment = {{"GANTRY_TRACE", file("one.json")}, {"WORLD_SIZE", "2"}}});
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err,
              HasSubstr("GANTRY_TRACE: expected a path with {rank} or {pid} in a job"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(TraceRanksTest, MachinesArePlacedByTheirCalendarsAndProcessesByTheirMachinesClock) {
  const auto write = [&](int rank, const char* boot, std::int64_t start_ns, std::int64_t unix_ns) {
    const Json event = Json::object(
        {{"name", "x"}, {"ph", "X"}, {"ts", 1.0}, {"dur", 1.0}, {"pid", rank * 1000}, {"tid", 0}});
    const Json root = Json::object({{"gantry", Json::object({{"version", 2},
                                                             {"rank", rank},
                                                             {"boot", boot},
                                                             {"start_ns", start_ns},
                                                             {"start_unix_ns", unix_ns}})},
                                    {"traceEvents", Json(Json::Array{event})}});
    const std::string path = file("part-" + std::to_string(rank) + ".json");
    std::ofstream(path) << root.dump();
    return path;
  };
  // The calendar of machine a jumps by a second between its two processes.
  const std::vector<std::string> parts{write(0, "a", 5'000'000, 100'000'000'000),
                                       write(1, "a", 8'000'000, 101'003'000'000),
                                       write(2, "b", 77'000'000, 100'002'000'000)};
  const Outcome outcome = merge({parts[0], parts[1], parts[2], "-o", file("all.json")});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  std::map<std::int64_t, double> times;
  const Json merged = Json::parse(content_of(file("all.json")));
  for (const Json& event : merged.at("traceEvents").elements()) {
    times[event.at("pid").as<std::int64_t>() / 1000] = event.at("ts").as<double>();
  }
  EXPECT_NEAR(times[0], 1, 0.01);
  EXPECT_NEAR(times[1], 3001, 0.01) << "3 ms later by the clock of the machine";
  EXPECT_NEAR(times[2], 2001, 0.01) << "2 ms later by the calendar";
}

TEST_F(TraceRanksTest, RefusesWhatIsNoTrace) {
  std::ofstream(file("other.json")) << "{}";
  const Outcome outcome = merge({file("other.json"), "-o", file("all.json")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("gantry-trace: merge: expected a trace of gantry, but got"));
  EXPECT_FALSE(std::filesystem::exists(file("all.json")));
  EXPECT_EQ(merge({"-o", file("all.json")}).exit_code, 2);
}

}  // namespace
}  // namespace gantry
