// gantry-top beside real jobs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "core/text/json.hpp"
#include "job/flight_folder.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/rank_processes.hpp"

namespace gantry::top {
namespace {

using testing::Command;
using testing::eventually;
using testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::RankCommand;
using testing::RankProcesses;
using testing::run_command;
using testing::Subprocess;

using Variables = std::map<std::string, std::optional<std::string>>;

Command top(std::vector<std::string> arguments, Variables environment = {}) {
  arguments.insert(arguments.begin(), GANTRY_TEST_TOP);
  environment.try_emplace("GANTRY_NVML_PATH", "/nowhere/libnvidia-ml.so.1");
  return {.argv = std::move(arguments), .environment = std::move(environment)};
}

std::string output_of(std::vector<std::string> arguments, Variables environment = {}) {
  const Outcome outcome = run_command(top(std::move(arguments), std::move(environment)));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.err, "");
  return outcome.out;
}

Json look(Variables environment = {}) {
  return Json::parse(output_of({"--once", "--json"}, std::move(environment)));
}

// A job of glaunch whose ranks 0 to 2 wait for rank 3 in an all_reduce.
class WaitingJob {
 public:
  WaitingJob()
      : glaunch_(
            {.argv = {GANTRY_TEST_GLAUNCH, std::string(GANTRY_TEST_PROGRAM_DIR) + "/watchdog_actor",
                      "absence", "3", "call"},
             .environment = {{"GANTRY_SIM_DEVICES", "4"}},
             .timeout = std::chrono::seconds(100)}) {
    for (const char* line : {"[0] waiting", "[1] waiting", "[2] waiting", "[3] ready"}) {
      EXPECT_TRUE(glaunch_.wait_for_output(line)) << line;
    }
  }

  /// Ends the job.
  void end() {
    glaunch_.send_signal(SIGTERM);
    glaunch_.wait();
  }

 private:
  Subprocess glaunch_;
};

RankProcesses start(int ranks, std::vector<std::string> arguments, const std::string& job) {
  arguments.insert(arguments.begin(), std::string(GANTRY_TEST_PROGRAM_DIR) + "/watchdog_actor");
  return RankProcesses(RankCommand{
      .ranks = ranks, .argv = std::move(arguments), .environment = {{"GANTRY_JOB_ID", job}}});
}

TEST(TopCommandTest, TellsScriptsOfARunningJob) {
  const FlightFolder folder;
  WaitingJob job;
  Json sample;
  // Ranks publish their memory once a second.
  EXPECT_TRUE(eventually([&] {
    sample = look();
    for (const Json& rank : sample.at("jobs").at(0).at("ranks").elements()) {
      if (rank.at("reserved_bytes").is_null()) return false;
    }
    return true;
  }));
  EXPECT_EQ(sample.at("schema"), 1);
  ASSERT_EQ(sample.at("devices").size(), 4U);
  ASSERT_EQ(sample.at("jobs").size(), 1U);
  const Json& ranks = sample.at("jobs").at(0).at("ranks");
  ASSERT_EQ(ranks.size(), 4U);
  EXPECT_FALSE(sample.at("jobs").at(0).at("job").is_null());
  for (std::size_t i = 0; i < 4; ++i) {
    const Json& device = sample.at("devices").at(i);
    EXPECT_EQ(device.at("index"), std::to_string(i));
    EXPECT_EQ(device.at("name"), "Simulated GPU");
    EXPECT_EQ(device.at("is_simulated"), true);
    const Json& rank = ranks.at(i);
    EXPECT_EQ(rank.at("rank"), i);
    EXPECT_EQ(rank.at("state"), "alive");
    EXPECT_EQ(rank.at("device_uuid"), device.at("uuid"));
    EXPECT_EQ(rank.at("device_index"), device.at("index"));
    EXPECT_EQ(rank.at("reserved_bytes"), device.at("memory_used_bytes"));
    EXPECT_GT(rank.at("reserved_bytes").as<std::int64_t>(), 0);
    EXPECT_LE(rank.at("allocated_bytes").as<std::int64_t>(),
              rank.at("reserved_bytes").as<std::int64_t>());
    EXPECT_EQ(rank.at("call").at("group"), "world");
    EXPECT_EQ(rank.at("call").at("is_under_way"), i < 3);
    EXPECT_EQ(rank.at("call").at("call"),
              i < 3 ? "all_reduce sum f32[1000]" : "all_reduce sum f32[10]");
    EXPECT_EQ(rank.at("call").at("number"), i < 3 ? 2 : 1);
    EXPECT_GT(rank.at("call").at("age_s").as<double>(), 0);
  }
  // The ranks come from glaunch's dump.
  const Outcome dump = run_command({.argv = {GANTRY_TEST_GLAUNCH, "dump"}});
  const std::string table = output_of({"--once"});
  for (const Json& rank : ranks.elements()) {
    EXPECT_THAT(dump.out, HasSubstr(fmt::format("pid {},", rank.at("pid").as<int>())));
    EXPECT_THAT(table, HasSubstr(fmt::format(" {} ", rank.at("pid").as<int>())));
  }
  EXPECT_THAT(table, HasSubstr("4 devices, 1 job\n"));
  EXPECT_THAT(table, HasSubstr("  in #2 all_reduce sum f32[1000] by "));
  EXPECT_THAT(table, HasSubstr("\nno GPU is shown: failed to load /nowhere/libnvidia-ml.so.1: "));
  job.end();
  EXPECT_EQ(look().at("jobs").size(), 0U);
}

TEST(TopCommandTest, JoinsRanksToDevicesByUuid) {
  const FlightFolder folder;
  const RankProcesses ranks = [] {
    RankProcesses started = start(2, {"absence", "1", "call"}, "train-7");
    EXPECT_TRUE(started.says(0, "waiting"));
    return started;
  }();
  // NVML's device 0 is the one of rank 1.
  const Json sample = look({{"GANTRY_NVML_PATH", GANTRY_TEST_FAKE_NVML},
                            {"FAKE_NVML", "H200,GPU-51a051a0-0000-4000-8000-000000000001,0"},
                            {"FAKE_NVML_FACTS", "0 utilization 97 40;0 memory 80 70 10"}});
  const Json& devices = sample.at("devices");
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices.at(0).at("name"), "H200");
  EXPECT_EQ(devices.at(0).at("utilization_percent"), 97);
  EXPECT_EQ(devices.at(0).at("memory_used_bytes"), 10);
  EXPECT_EQ(devices.at(1).at("name"), "Simulated GPU");
  const Json& of_job = sample.at("jobs").at(0).at("ranks");
  EXPECT_EQ(of_job.at(1).at("device_index"), "0");
  EXPECT_EQ(of_job.at(1).at("device_uuid"), devices.at(0).at("uuid"));
  EXPECT_EQ(of_job.at(0).at("device_uuid"), devices.at(1).at("uuid"));
  EXPECT_EQ(sample.at("notes").size(), 0U);
}

TEST(TopCommandTest, AJobEndsWhileItWatches) {
  const FlightFolder folder;
  WaitingJob job;
  Subprocess watching(top({"--json", "--interval", "0.05"}));
  ASSERT_TRUE(watching.wait_for_output(R"("call":"all_reduce sum f32[1000]")"));
  job.end();
  EXPECT_TRUE(watching.wait_for_output(R"("jobs":[])"));
  watching.send_signal(SIGTERM);
  const Outcome outcome = watching.wait();
  EXPECT_EQ(outcome.signal, SIGTERM) << outcome.describe();
  // A document a line.
  const std::string first = outcome.out.substr(0, outcome.out.find('\n'));
  EXPECT_EQ(Json::parse(first).at("jobs").at(0).at("ranks").size(), 4U);
}

TEST(TopCommandTest, ARankThatDiedIsEnded) {
  const FlightFolder folder;
  RankProcesses ranks = start(3, {"absence", "1", "call"}, "train-7");
  for (const int rank : {0, 2}) ASSERT_TRUE(ranks.says(rank, "waiting")) << rank;
  ASSERT_TRUE(ranks.says(1, "ready"));
  ranks.kill(1);
  ranks[1].wait();
  const Json sample = look();
  const Json& of_job = sample.at("jobs").at(0).at("ranks");
  EXPECT_EQ(sample.at("jobs").at(0).at("job"), "train-7");
  EXPECT_EQ(of_job.at(0).at("state"), "alive");
  EXPECT_EQ(of_job.at(1).at("state"), "ended");
  EXPECT_EQ(of_job.at(1).at("pid"), ranks[1].pid());
  // Nobody uses its device.
  EXPECT_EQ(sample.at("devices").size(), 2U);
}

TEST(TopCommandTest, AJobThatStartedAnewHasItsNewRanksOnly) {
  const FlightFolder folder;
  {
    RankProcesses first = start(2, {"absence", "1", "call"}, "train-7");
    ASSERT_TRUE(first.says(0, "waiting"));
  }
  RankProcesses second = start(2, {"absence", "1", "call"}, "train-7");
  ASSERT_TRUE(second.says(0, "waiting"));
  const Json jobs = look().at("jobs");
  ASSERT_EQ(jobs.size(), 1U);
  ASSERT_EQ(jobs.at(0).at("ranks").size(), 2U);
  EXPECT_EQ(jobs.at(0).at("ranks").at(0).at("pid"), second[0].pid());
}

TEST(TopCommandTest, AProcessInSeveralGroupsIsOneRank) {
  const FlightFolder folder;
  RankProcesses ranks = start(4, {"groups"}, "train-7");
  ASSERT_TRUE(eventually([] { return flight::list_files().size() > 1; }));
  const Json jobs = look().at("jobs");
  ASSERT_EQ(jobs.size(), 1U);
  ASSERT_EQ(jobs.at(0).at("ranks").size(), 4U);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(jobs.at(0).at("ranks").at(static_cast<std::size_t>(rank)).at("pid"),
              ranks[rank].pid());
  }
}

TEST(TopCommandTest, BrokenFilesAreCountedAndHideNothing) {
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"absence", "1", "call"}, "train-7");
  ASSERT_TRUE(ranks.says(0, "waiting"));
  const std::string whole = flight::list_files().at(0);
  const std::string copy = flight::folder() + "/copy.flight";
  std::ofstream(flight::folder() + "/noise.flight") << std::string(100'000, 'x');
  std::ofstream(flight::folder() + "/empty.flight");
  std::filesystem::copy(whole, copy);
  std::filesystem::resize_file(copy, std::filesystem::file_size(whole) / 2);
  // Neither a pipe nor a folder is a file.
  ASSERT_EQ(mkfifo((flight::folder() + "/pipe.flight").c_str(), 0600), 0);
  std::filesystem::create_directory(flight::folder() + "/folder.flight");
  const Json sample = look();
  EXPECT_EQ(sample.at("jobs").size(), 1U);
  EXPECT_THAT(sample.at("notes").dump(),
              HasSubstr(fmt::format("3 file(s) in {} are broken or of another version of gantry",
                                    flight::folder())));
}

TEST(TopCommandTest, NothingInAFileReachesTheTerminalAsAControl) {
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"absence", "1", "call"}, "x\x1b[2J\ny\x9b");
  ASSERT_TRUE(ranks.says(0, "waiting"));
  const std::string table = output_of({"--once"}, {{"GANTRY_NVML_PATH", GANTRY_TEST_FAKE_NVML},
                                                   {"FAKE_NVML", "odd\x1b[2J,GPU-a\x9b,0"}});
  EXPECT_THAT(table, HasSubstr("job x\\x1b[2J\\x0ay\\x9b: 2 rank(s)"));
  EXPECT_THAT(table, HasSubstr("  odd\\x1b[2J     GPU-a\\x9b "));
  for (const char c : table) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
  EXPECT_THAT(table, Not(HasSubstr("\x9b")));
}

TEST(TopCommandTest, AFolderThatOthersMayEnterIsANote) {
  const FlightFolder folder;
  std::filesystem::create_directory(flight::folder());
  ASSERT_EQ(chmod(flight::folder().c_str(), 0755), 0);
  EXPECT_THAT(output_of({"--once"}),
              HasSubstr("no job is shown: failed to read the flight folder: " + flight::folder() +
                        " is open to other users\n"));
}

TEST(TopCommandTest, AMachineWithNothingIsNoError) {
  const FlightFolder folder;
  const Json sample = look();
  EXPECT_EQ(sample.at("devices"), Json::array());
  EXPECT_EQ(sample.at("jobs"), Json::array());
  EXPECT_EQ(sample.at("notes").size(), 1U);
}

TEST(TopCommandTest, WithoutATerminalItSaysWhatToDo) {
  const Outcome outcome = run_command(top({}));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
  EXPECT_EQ(outcome.err,
            "gantry-top: expected a terminal as standard output, but got a file or pipe; use "
            "--once or --json\n");
  EXPECT_EQ(outcome.out, "");
}

TEST(TopCommandTest, TellsItsVersionAndOptions) {
  EXPECT_THAT(output_of({"--version"}), ::testing::MatchesRegex("gantry-top [0-9.]+\n"));
  EXPECT_THAT(output_of({"--help"}), HasSubstr("Exit code: 0; 2 for errors."));
  const Outcome outcome = run_command(top({"--interval", "never"}));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("gantry-top: "));
}

TEST(TopCommandTest, OutputThatDoesNotArriveIsAnError) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "needs /dev/full";
  const Outcome outcome =
      run_command({.argv = {"/bin/sh", "-c", GANTRY_TEST_TOP " --once > /dev/full"}});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("failed to write to standard output: No space left"));
}

}  // namespace
}  // namespace gantry::top
