#include <gmock/gmock.h>
#include <signal.h>

#include <string>
#include <vector>

#include "core/text/json.hpp"
#include "tests/launcher/launch_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class LaunchRestartTest : public LaunchTest {
 protected:
  Command restart(const std::string& most, const std::vector<std::string>& what) const {
    return act({"-n", "2", "--max-restarts", most, "--restart-delay", "10ms", "--report",
                path("report.json")},
               what);
  }
  /// A job whose ranks fail at once, and which then pauses for long.
  Command pausing_job() const {
    return launch({"--cpu-only", "-n", "1", "--max-restarts", "1", "--restart-delay", "1h", "sh",
                   "-c", "echo run; exit 3"});
  }
};

TEST_F(LaunchRestartTest, TheWholeJobStartsAgainWithACleanRendezvous) {
  const Outcome outcome = run_command(restart("3", {"restart", "2", "SIGKILL"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(lines_of(outcome.out), UnorderedElementsAre("[0] run 0", "[1] run 0", "[0] run 1",
                                                          "[1] run 1", "[0] run 2", "[1] run 2"));
  EXPECT_THAT(outcome.err, HasSubstr("was killed by SIGKILL\n"));
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: restart 1 of 3 in 0.01 s\n"));
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: restart 2 of 3 in 0.02 s\n"));
  const Json report = Json::parse(read_file(path("report.json")));
  EXPECT_EQ(report.at("outcome"), "ok");
  EXPECT_EQ(report.at("restarts"), 2);
  EXPECT_EQ(report.at("earlier_runs").at(1).at("exit_code"), 128 + SIGKILL);
  EXPECT_EQ(report.at("earlier_runs").at(1).at("first_failure"), 1);
  const std::string first = report.at("earlier_runs").at(0).at("job_id").as<std::string>();
  EXPECT_EQ(report.at("earlier_runs").at(1).at("job_id"), first + ".1");
  EXPECT_EQ(report.at("job_id"), first + ".2");
  EXPECT_TRUE(scratch_is_clean());
}

// Another process could wait at an address that it foresees.
TEST_F(LaunchRestartTest, NoRunTellsTheNextOnesAddress) {
  const Outcome outcome =
      run_command(launch({"--cpu-only", "-n", "1", "--no-prefix", "--max-restarts", "2",
                          "--restart-delay", "10ms", "sh", "-c", "echo $GANTRY_RDZV; exit 3"}));
  const std::vector<std::string> addresses = lines_of(outcome.out);
  ASSERT_EQ(addresses.size(), 3u) << outcome.describe();
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    EXPECT_THAT(addresses[i], ::testing::MatchesRegex("unix:@gantry-[0-9]+-[0-9a-f]{16}"));
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(addresses[i], addresses[j]);
  }
}

TEST_F(LaunchRestartTest, TheLastFailureIsTheJobs) {
  const Outcome outcome = run_command(restart("1", {"restart", "9", "7"}));
  EXPECT_EQ(outcome.exit_code, 7) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: restart 1 of 1 in 0.01 s\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[1] run 1\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("run 2")));
  // The last lines come from the last run.
  EXPECT_THAT(outcome.err, ::testing::EndsWith("glaunch: last line of rank 1:\n"
                                               "  out| run 1\n"
                                               "glaunch: failed by itself: rank 1 (code 7)\n"
                                               "glaunch: stopped by glaunch: rank 0 (SIGTERM)\n"));
  const Json report = Json::parse(read_file(path("report.json")));
  EXPECT_EQ(report.at("exit_code"), 7);
  EXPECT_EQ(report.at("restarts"), 1);
}

TEST_F(LaunchRestartTest, LogFilesHoldEveryRun) {
  const Outcome outcome = run_command(
      act({"-n", "2", "--max-restarts", "1", "--restart-delay", "0", "--log-dir", path("logs")},
          {"restart", "1", "3"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(read_file(path("logs/rank1.out")), "run 0\nrun 1\n");
}

TEST_F(LaunchRestartTest, WhatASecondTryDoesNotMendIsNotTriedAgain) {
  for (const int code : {125, 126, 127}) {
    const Outcome outcome = run_command(restart("3", {"restart", "1", std::to_string(code)}));
    EXPECT_EQ(outcome.exit_code, code) << outcome.describe();
    EXPECT_THAT(outcome.err, Not(HasSubstr("restart 1 of")));
  }
  const Outcome missing =
      run_command(launch({"-n", "1", "--max-restarts", "3", "no-such-program"}));
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.err, Not(HasSubstr("restart 1 of")));
  const Outcome over =
      run_command(launch({"-n", "1", "--max-restarts", "3", "--timeout", "200ms", "sleep", "99"}));
  EXPECT_EQ(over.exit_code, 124) << over.describe();
  EXPECT_THAT(over.err, Not(HasSubstr("restart 1 of")));
}

TEST_F(LaunchRestartTest, CtrlCEndsThePauseAndTheJob) {
  Subprocess job(merged(pausing_job()));
  ASSERT_TRUE(job.wait_for_output("restart 1 of 1"));
  job.send_signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.describe();
  EXPECT_THAT(outcome.out, ::testing::EndsWith("glaunch: restart 1 of 1 in 3600 s\n"
                                               "glaunch: the job was stopped by SIGINT\n"));
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchRestartTest, TheTimeoutCountsPauses) {
  Command command = pausing_job();
  command.argv.insert(command.argv.begin() + 1, {"--timeout", "1s"});
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 124) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: restart 1 of 1 in 3600 s\n"));
  EXPECT_THAT(outcome.err, HasSubstr("--timeout is over\n"));
}

TEST_F(LaunchRestartTest, ALauncherThatIsKilledAfterARestartLeavesNothing) {
  expect_killed_launcher_leaves_nothing(
      launch({"--cpu-only", "-n", "2", "--max-restarts", "1", "--restart-delay", "0", "sh", "-c",
              std::string("[ $GANTRY_RESTART = 1 ] || exit 3; ") + kWithDaemon}));
}

TEST_F(LaunchRestartTest, ALauncherThatIsKilledInAPauseLeavesNothing) {
  Subprocess job(merged(pausing_job()));
  ASSERT_TRUE(job.wait_for_output("restart 1 of 1"));
  job.send_signal(SIGKILL);
  job.wait();
  EXPECT_TRUE(eventually([&] { return scratch_is_clean(); }));
}

}  // namespace
}  // namespace gantry::testing
