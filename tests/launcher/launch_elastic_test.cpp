#include <gmock/gmock.h>
#include <signal.h>

#include "core/text/json.hpp"
#include "tests/launcher/launch_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchElasticTest : public LaunchTest {
 protected:
  // An elastic job of a shell script, in which `await F` waits for a file.
  Command elastic(const std::string& range, const std::string& script,
                  const std::vector<std::string>& options = {"--restart-delay", "10ms"}) const {
    std::vector<std::string> arguments{"--elastic", range, "--report", path("report")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), {"--", "sh", "-c",
                                       "await() { until [ -e $TMPDIR/$1 ]; do sleep 0.01; done; }; "
                                       "process=$GANTRY_RANK.$GANTRY_RESTART; " +
                                           script});
    return launch(arguments);
  }
  void make_file(const std::string& name) const { std::ofstream(path(name)) << "x"; }
  Json report() const { return Json::parse(read_file(path("report"))); }
};

TEST_F(LaunchElasticTest, ARankThatFailsIsReplacedOnItsDevice) {
  const Outcome outcome =
      run_command(elastic("1:3",
                          "echo $process $GANTRY_ELASTIC $GANTRY_DEVICE $MASTER_PORT; "
                          "[ $process = 1.0 ] && { echo last words; exit 3; }; "
                          "[ $process = 1.1 ] && : >$TMPDIR/go; await go"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  // The port is the job's, not the process's.
  const std::string replacement = "[1] 1.1 1:3 1 ";
  ASSERT_THAT(outcome.out, HasSubstr(replacement));
  const auto at = outcome.out.find(replacement) + replacement.size();
  const std::string port = outcome.out.substr(at, outcome.out.find('\n', at) + 1 - at);
  EXPECT_THAT(outcome.out, HasSubstr("[0] 0.0 1:3 0 " + port));
  EXPECT_THAT(outcome.out, HasSubstr("[1] 1.0 1:3 1 " + port));
  EXPECT_THAT(outcome.err, HasSubstr(") exited with code 3\n"));
  EXPECT_THAT(outcome.err, HasSubstr("  out| last words\n"
                                     "glaunch: replacement 1 of 100, for rank 1, in 0.01 s\n"));
  EXPECT_EQ(report().at("outcome"), "ok");
  ASSERT_EQ(report().at("replaced").size(), 1U);
  EXPECT_EQ(report().at("replaced").at(0).at("rank"), 1);
  EXPECT_EQ(report().at("replaced").at(0).at("exit_code"), 3);
  EXPECT_EQ(report().at("ranks").at(1).at("class"), "ok");
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchElasticTest, TooFewRanksEndTheJobWithTheCodeOfTheFirst) {
  Subprocess job(merged(elastic("2:3",
                                "[ $GANTRY_RANK = 0 ] && await never; "
                                "[ $GANTRY_RANK = 2 ] && await second; exit $((GANTRY_RANK + 6))",
                                {"--max-restarts", "0"})));
  ASSERT_TRUE(job.wait_for_output("glaunch: rank 1 is not replaced: --max-restarts allows 0 "));
  make_file("second");
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 7) << outcome.describe();
  EXPECT_THAT(outcome.out, EndsWith("glaunch: failed by itself: rank 1 (code 7), rank 2 (code 8)\n"
                                    "glaunch: stopped by glaunch: rank 0 (SIGTERM)\n"));
}

TEST_F(LaunchElasticTest, WhatASecondTryDoesNotMendIsNotReplaced) {
  Subprocess job(merged(elastic("1:2", "[ $GANTRY_RANK = 1 ] && exit 126; await end")));
  ASSERT_TRUE(
      job.wait_for_output("rank 1 is not replaced: a second try does not mend exit code 126\n"));
  make_file("end");
  EXPECT_EQ(job.wait().exit_code, 0);
}

TEST_F(LaunchElasticTest, ReplacementsAreBoundedAndTheirPausesDouble) {
  Subprocess job(
      merged(elastic("1:2", "[ $GANTRY_RANK = 1 ] && exit 5; await end",
                     {"--max-restarts", "3", "--restart-delay", "10ms", "--tail", "0"})));
  ASSERT_TRUE(job.wait_for_output("is not replaced: --max-restarts allows 3 replacements\n"));
  make_file("end");
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("replacement 1 of 3, for rank 1, in 0.01 s\n"));
  EXPECT_THAT(outcome.out, HasSubstr("replacement 3 of 3, for rank 1, in 0.04 s\n"));
  EXPECT_EQ(report().at("replaced").size(), 3U);
}

TEST_F(LaunchElasticTest, WhatAFailedRankHadStartedIsKilled) {
  Subprocess job(elastic("1:2",
                         "[ $GANTRY_RESTART = 0 ] || { echo replaced; exec sleep 1000; }; "
                         "[ $GANTRY_RANK = 0 ] && exec sleep 1000; "
                         "sleep 1000 & echo pid child $!; exit 1"));
  ASSERT_TRUE(job.wait_for_output("[1] replaced\n"));
  job.send_signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.describe();
  const std::vector<int> children = pids_in(outcome.out, "child");
  ASSERT_EQ(children.size(), 1U);
  EXPECT_TRUE(ends(children[0]));
}

TEST_F(LaunchElasticTest, CtrlCEndsAJobThatWaitsForAReplacement) {
  Subprocess job(merged(
      elastic("1:2", "[ $GANTRY_RANK = 1 ] && exit 3; await never", {"--restart-delay", "1h"})));
  ASSERT_TRUE(job.wait_for_output("replacement 1 of 100, for rank 1, in 3600 s"));
  job.send_signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.describe();
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchElasticTest, TheTimeoutCountsTheWholeJob) {
  const Outcome outcome =
      run_command(elastic("1:2", "[ $GANTRY_RANK = 1 ] && exit 3; exec sleep 1000",
                          {"--timeout", "1s", "--tail", "0"}));
  EXPECT_EQ(outcome.exit_code, 124) << outcome.describe();
}

TEST_F(LaunchElasticTest, ALauncherThatIsKilledLeavesNoReplacement) {
  expect_killed_launcher_leaves_nothing(elastic(
      "1:2", std::string("[ $GANTRY_RANK$GANTRY_RESTART = 10 ] && exit 3; ") + kWithDaemon));
}

TEST_F(LaunchElasticTest, ContradictoryOptionsAreRefused) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--elastic", "3"}, "--elastic: expected MIN:MAX ranks, such as 2:4, but got '3'"},
      {{"--elastic", "4:2"},
       "--elastic: expected MIN:MAX with at most MAX ranks as MIN, but got '4:2'"},
      {{"--elastic", "0:2"}, "--elastic: expected a whole number from 1 to 4096, but got '0'"},
      {{"--elastic", "1:1"}, "--elastic: expected a whole number from 2 to 4096, but got '1'"},
      {{"--elastic", "1:x"}, "--elastic: expected a whole number from 2 to 4096, but got 'x'"},
      {{"--elastic", "1:4", "-n", "3"},
       "-n 3 and --elastic 1:4 contradict each other: an elastic job starts with MAX ranks"},
      {{"--elastic", "1:4", "--keep-going"}, "--keep-going and --elastic contradict each other"},
      {{"--elastic", "1:4", "--hosts", "a:2,b:2"},
       "--elastic: expected one machine, but got a job on several"},
      {{"--elastic", "1:4", "--max-restarts", "0", "--restart-delay", "1s"},
       "--restart-delay needs --max-restarts or --elastic"},
  };
  for (auto [arguments, text] : cases) {
    arguments.insert(arguments.end(), {"--", "true"});
    const Outcome outcome = run_command(launch(arguments));
    EXPECT_EQ(outcome.exit_code, 125) << text << outcome.describe();
    EXPECT_EQ(outcome.err, "glaunch: " + text + "\n");
  }
}

TEST_F(LaunchElasticTest, ADryRunSaysWhatIsReplaced) {
  const Outcome outcome = run_command(launch({"--elastic", "2:4", "--dry-run", "--", "true"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("\nelastic: the job goes on while 2 of 4 ranks are left; 100 "
                                     "replacements at most\n"));
  const Outcome json = run_command(
      launch({"--elastic", "2:4", "--max-restarts", "7", "--dry-run", "--json", "--", "true"}));
  const Json plan = Json::parse(json.out);
  EXPECT_EQ(plan.at("ranks").at(3).at("environment").at("GANTRY_ELASTIC"), "2:4");
  EXPECT_THAT(json.out, HasSubstr("; 7 replacements at most"));
  const Outcome rigid = run_command(launch({"--dry-run", "--json", "--", "true"}));
  EXPECT_THAT(rigid.out, Not(HasSubstr("GANTRY_ELASTIC")));
}

}  // namespace
}  // namespace gantry::testing
