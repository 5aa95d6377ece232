#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/text/json.hpp"
#include "launcher/run/failures/report.hpp"
#include "tests/launcher/launch_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/process_state.hpp"

namespace gantry::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchFailureTest : public LaunchTest {};

TEST_F(LaunchFailureTest, SuccessIsSilent) {
  const Outcome outcome = run_command(launch({"true"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out + outcome.err, "");
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchFailureTest, ExitCodeOfTheFirstFailureStopsTheOthers) {
  const Outcome outcome = run_command(act({}, {"fail", "2", "7"}));
  EXPECT_EQ(outcome.exit_code, 7) << outcome.describe();
  EXPECT_THAT(outcome.err, ContainsRegex("glaunch: rank 2 \\(pid [0-9]+, cuda:2 GPU-[-0-9a-f]+\\) "
                                         "exited with code 7\n"));
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: last 2 lines of rank 2:\n"));
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("\n  out| line before the end"), HasSubstr("\n  err| complaint")));
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: failed by itself: rank 2 (code 7)\n"));
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: stopped by glaunch: ranks 0, 1, 3 (SIGTERM)\n"));
}

TEST_F(LaunchFailureTest, SignalsBecome128PlusTheirNumber) {
  const Outcome segv = run_command(act({"-n", "2"}, {"fail", "1", "SIGSEGV"}));
  EXPECT_EQ(segv.exit_code, 139) << segv.describe();
  EXPECT_THAT(segv.err, HasSubstr("was killed by SIGSEGV"));
  const Outcome abrt = run_command(act({"-n", "2"}, {"fail", "0", "SIGABRT"}));
  EXPECT_EQ(abrt.exit_code, 134) << abrt.describe();
  EXPECT_THAT(abrt.err, HasSubstr("failed by itself: rank 0 (SIGABRT)"));
}

TEST_F(LaunchFailureTest, ARankThatIgnoresSigtermIsKilledAfterTheGraceTime) {
  const Outcome outcome = run_command(act({"--grace", "200ms"}, {"ignore-term"}));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("stopped by glaunch: ranks 1-3 (SIGKILL)"));
}

TEST_F(LaunchFailureTest, ARankMayEndWellWhenItIsStopped) {
  const Outcome outcome = run_command(act({"-n", "2"}, {"end-on-term"}));
  EXPECT_EQ(outcome.exit_code, 4) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("stopped by glaunch: rank 1 (code 0)"));
}

// glaunch stands still meanwhile: it learns of the end and of the signal at once.
TEST_F(LaunchFailureTest, ARankThatEndedBeforeASignalWasNotStopped) {
  Subprocess job(launch({"--cpu-only", "-n", "3", "sh", "-c",
                         "echo pid rank $$; [ $RANK = 0 ] && exec sleep 1000; until [ -e " +
                             path("go") + " ]; do sleep 0.01; done; exit $((3 * RANK))"}));
  for (const char* rank : {"[0]", "[1]", "[2]"}) {
    ASSERT_TRUE(job.wait_for_output(std::string(rank) + " pid rank "));
  }
  std::vector<int> ranks;
  ASSERT_TRUE(eventually([&] {
    ranks.clear();
    for (const auto& [pid, name] : children_of(job.pid())) {
      if (name == "sh") ranks.push_back(pid);
    }
    return ranks.size() == 2;  // the other one has become sleep
  }));
  job.send_signal(SIGSTOP);
  ASSERT_TRUE(eventually([&] { return state_of(job.pid()) == 'T'; }));
  job.send_signal(SIGTERM);
  std::ofstream(path("go")) << "now";
  for (const int pid : ranks) {
    EXPECT_TRUE(eventually([&] { return state_of(pid) == 'Z'; }));
  }
  job.send_signal(SIGCONT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 128 + SIGTERM) << outcome.describe();
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("glaunch: failed by itself: rank 1 (code 3), rank 2 (code 6)\n"),
                    HasSubstr("glaunch: stopped by glaunch: rank 0 (SIGTERM)\n")));
}

TEST_F(LaunchFailureTest, KeepGoingWaitsForEveryRank) {
  const Outcome outcome = run_command(act({"--keep-going"}, {"exit-with-rank"}));
  EXPECT_GE(outcome.exit_code, 1) << outcome.describe();
  EXPECT_LE(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err,
              HasSubstr("failed by itself: rank 1 (code 1), rank 2 (code 2), rank 3 (code 3)"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("stopped by glaunch")));
}

TEST_F(LaunchFailureTest, ShowsWhatTheRankWroteToItsErrorFile) {
  const Outcome plain =
      run_command(act({"-n", "2"}, {"fail", "1", "8", "step 12: NaN\nin loss\n"}));
  EXPECT_EQ(plain.exit_code, 8);
  EXPECT_THAT(plain.err, HasSubstr("glaunch: rank 1 says:\n  step 12: NaN\n  in loss\n"));
  const Outcome json =
      run_command(act({"-n", "2"}, {"fail", "1", "8", R"({"message": "all_reduce 7 timed out"})"}));
  EXPECT_THAT(json.err, HasSubstr("glaunch: rank 1 says:\n  all_reduce 7 timed out\n"));
  // A pipe says nothing, and nobody waits for it.
  const Outcome pipe =
      run_command(launch({"-n", "1", "sh", "-c", "mkfifo $GANTRY_ERROR_FILE; exit 3"}));
  EXPECT_EQ(pipe.exit_code, 3) << pipe.describe();
}

TEST_F(LaunchFailureTest, AnEarlierJobsErrorFileIsNotRead) {
  run_command(act({"-n", "1", "--log-dir", path("logs")}, {"fail", "0", "8", "old news"}));
  EXPECT_EQ(read_file(path("logs/rank0.error")), "old news");
  const Outcome outcome =
      run_command(act({"-n", "1", "--log-dir", path("logs")}, {"fail", "0", "8"}));
  EXPECT_THAT(outcome.err, Not(HasSubstr("old news")));
  // Nor is it the note of a rank which does not start.
  run_command(act({"-n", "1", "--log-dir", path("logs")}, {"fail", "0", "8", "old news"}));
  run_command(launch(
      {"-n", "1", "--log-dir", path("logs"), "--report", path("report.json"), "no-such-program"}));
  EXPECT_THAT(read_file(path("report.json")),
              AllOf(HasSubstr("no-such-program"), Not(HasSubstr("old news"))));
}

TEST_F(LaunchFailureTest, ATemporaryDirectoryMayBeNamedFromWhereGlaunchStands) {
  const auto relative = [&](const std::string& script) {
    Command command = launch({});
    command.argv = {"sh", "-c",
                    "cd " + directory_ + " && TMPDIR=. exec " + GANTRY_TEST_GLAUNCH +
                        " --cpu-only -n 1 sh -c '" + script + "'"};
    return command;
  };
  const Outcome outcome =
      run_command(relative("cd / && echo elsewhere > $GANTRY_ERROR_FILE; exit 3"));
  EXPECT_EQ(outcome.exit_code, 3) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: rank 0 says:\n  elsewhere\n"));
  Subprocess job(relative("echo started; exec sleep 1000"));
  ASSERT_TRUE(job.wait_for_output("started"));
  job.send_signal(SIGKILL);
  job.wait();
  EXPECT_TRUE(eventually([&] { return scratch_is_clean(); }));
}

TEST_F(LaunchFailureTest, ManyRanksNeedManyDescriptors) {
  const auto limited = [&](const std::string& limit) {
    return run_command({.argv = {"sh", "-c",
                                 limit + "; exec " + GANTRY_TEST_GLAUNCH +
                                     " --no-prefix --cpu-only -n 12 sh -c 'ulimit -Sn'"},
                        .environment = {{"TMPDIR", directory_}}});
  };
  const Outcome hard = limited("ulimit -n 100");
  EXPECT_EQ(hard.exit_code, 125) << hard.describe();
  EXPECT_EQ(hard.err, "glaunch: 12 ranks need 120 open files, but the limit is 100 (ulimit -n)\n");
  // A soft limit is raised for glaunch, but not for the ranks.
  const Outcome soft = limited("ulimit -Sn 40");
  EXPECT_EQ(soft.exit_code, 0) << soft.describe();
  EXPECT_THAT(lines_of(soft.out), ::testing::AllOf(::testing::SizeIs(12), ::testing::Each("40")));
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchFailureTest, RanksMayConnectToTheStoreMoreOftenThanTheSoftLimitOfDescriptorsAllows) {
  Command command = act({"--cpu-only", "-n", "8"}, {"connect-often", "10"});
  command.argv.insert(command.argv.begin(), {"sh", "-c", "ulimit -Sn 97; exec \"$@\"", "sh"});
  const Outcome outcome = run_command(std::move(command));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
}

TEST_F(LaunchFailureTest, ASecondaryFailureIsNotTheRoot) {
  // Rank 0 learns from the store that rank 1 died, and says so. It may be slow, and is not stopped.
  const Outcome outcome = run_command(act({"-n", "2", "--keep-going"}, {"lose-peer"}));
  EXPECT_EQ(outcome.exit_code, 9) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("failed by itself: rank 1 (code 9)"));
  EXPECT_THAT(outcome.err, HasSubstr("failed because of another rank: rank 0 (code 6)"));
}

TEST_F(LaunchFailureTest, WhoWaitsForARankLearnsThatItEndedWithCodeZero) {
  const Outcome outcome = run_command(act({"-n", "2"}, {"wait-for-the-silent"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("rank 1")) << outcome.describe();
}

TEST_F(LaunchFailureTest, TailLimitsTheLinesShown) {
  const Outcome outcome = run_command(act({"-n", "1", "--tail", "1"}, {"fail", "0", "7"}));
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: last line of rank 0:"));
}

TEST_F(LaunchFailureTest, TimeoutIs124) {
  const Outcome outcome = run_command(act({"--timeout", "700ms", "-n", "2"}, {"wait"}));
  EXPECT_EQ(outcome.exit_code, 124) << outcome.describe();
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--timeout is over"),
                                 HasSubstr("stopped by glaunch: ranks 0, 1 (SIGTERM)")));
}

TEST_F(LaunchFailureTest, ProgramsThatCannotStart) {
  const Outcome absent = run_command(launch({"no-such-program"}));
  EXPECT_EQ(absent.exit_code, 127);
  EXPECT_EQ(absent.err,
            "glaunch: cannot start 'no-such-program': No such file or directory in PATH\n");
  const Outcome forbidden = run_command(launch({"/etc/passwd"}));
  EXPECT_EQ(forbidden.exit_code, 126);
  EXPECT_EQ(forbidden.err, "glaunch: cannot start '/etc/passwd': Permission denied\n");
  EXPECT_EQ(run_command(launch({"/tmp"})).exit_code, 126);

  std::ofstream(path("script")) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(path("script"), std::filesystem::perms::owner_all);
  const Outcome interpreter = run_command(launch({path("script")}));
  EXPECT_EQ(interpreter.exit_code, 127);
  EXPECT_THAT(interpreter.err, HasSubstr("No such file or directory (its interpreter is missing)"));
  std::ofstream(path("garbage")) << "not a program";
  std::filesystem::permissions(path("garbage"), std::filesystem::perms::owner_all);
  const Outcome garbage = run_command(launch({path("garbage")}));
  EXPECT_EQ(garbage.exit_code, 126);
  EXPECT_THAT(garbage.err, HasSubstr("Exec format error"));
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchFailureTest, AnEmptyEntryOfPathIsTheCurrentDirectory) {
  std::ofstream(path("tool")) << "#!/bin/sh\necho found\n";
  std::filesystem::permissions(path("tool"), std::filesystem::perms::owner_all);
  for (const char* directories : {":/nowhere", "/nowhere::/nowhere", "/nowhere:", ""}) {
    Command command = launch({});
    command.argv = {"/bin/sh", "-c",
                    "cd " + directory_ + " && PATH=" + directories + " exec " +
                        GANTRY_TEST_GLAUNCH + " --cpu-only -n 1 tool"};
    EXPECT_EQ(run_command(std::move(command)).out, "[0] found\n") << directories;
  }
}

TEST_F(LaunchFailureTest, OwnErrorsAre125) {
  const Outcome log = run_command(launch({"--log-dir", "/proc/none", "true"}));
  EXPECT_EQ(log.exit_code, 125);
  const Outcome report = run_command(launch({"--report", "/proc/none/file", "true"}));
  EXPECT_EQ(report.exit_code, 125);
  EXPECT_THAT(report.err, HasSubstr("glaunch: --report: cannot write '/proc/none/file'"));
  const Outcome full = run_command(launch({"--report", "/dev/full", "true"}));
  EXPECT_EQ(full.exit_code, 0);
  EXPECT_EQ(full.err,
            "glaunch: warning: --report: cannot write '/dev/full': No space left on device\n");
  const Outcome prefix = run_command(launch({"--prefix", "{colour}", "true"}));
  EXPECT_EQ(prefix.exit_code, 125);
  EXPECT_THAT(prefix.err, HasSubstr("but got '{colour}'"));
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchFailureTest, AnErrorThatCannotBePrintedIsAnErrorAllTheSame) {
  const auto code = [&](const std::string& arguments) {
    Command command = launch({});
    command.argv = {"sh", "-c", std::string(GANTRY_TEST_GLAUNCH) + " " + arguments};
    return run_command(std::move(command)).exit_code;
  };
  EXPECT_EQ(code("--bogus 2> /dev/full"), 125);
  EXPECT_EQ(code("--log-dir /proc/none true 2> /dev/full"), 125);
  EXPECT_EQ(code("--dry-run -n 100 true 2> /dev/full"), 2);
  // What was asked for and cannot be printed is one, too.
  EXPECT_EQ(code("env > /dev/full"), 125);
  EXPECT_EQ(code("dump > /dev/full"), 125);
  EXPECT_EQ(code("--help > /dev/full"), 125);
  EXPECT_EQ(code("--dry-run true > /dev/full"), 125);
}

TEST_F(LaunchFailureTest, ReportTellsProgramsTheSame) {
  run_command(act({"--report", path("report.json"), "-n", "3"}, {"fail", "1", "SIGSEGV"}));
  const auto report = Json::parse(read_file(path("report.json")));
  EXPECT_EQ(report.at("schema"), 1);
  EXPECT_EQ(report.at("outcome"), "rank_failed");
  EXPECT_EQ(report.at("exit_code"), 139);
  EXPECT_EQ(report.at("first_failure"), 1);
  ASSERT_EQ(report.at("ranks").size(), 3U);
  EXPECT_EQ(report.at("ranks").at(1).at("class"), "failed_by_itself");
  EXPECT_EQ(report.at("ranks").at(1).at("signal"), "SIGSEGV");
  EXPECT_EQ(report.at("ranks").at(0).at("class"), "stopped_by_glaunch");
  EXPECT_EQ(report.at("ranks").at(0).at("device"), 0);
  EXPECT_GT(report.at("ranks").at(2).at("pid").as<int>(), 0);

  run_command(launch({"--report", path("report.json"), "--cpu-only", "-n", "2", "true"}));
  const auto good = Json::parse(read_file(path("report.json")));
  EXPECT_EQ(good.at("outcome"), "ok");
  EXPECT_TRUE(good.at("first_failure").is_null());
  EXPECT_EQ(good.at("ranks").at(1).at("class"), "ok");
  EXPECT_TRUE(good.at("ranks").at(1).at("device").is_null());
}

// A job of three ranks that failed; the tests fill in how.
launcher::JobResult job_of_three() {
  launcher::JobResult job;
  job.outcome = launcher::Outcome::rank_failed;
  job.ranks.resize(3);
  for (int rank = 0; rank < 3; ++rank) {
    launcher::RankResult& result = job.ranks[static_cast<std::size_t>(rank)];
    result.rank = rank;
    result.pid = 4711 + rank;
    result.started = result.ended = true;
    result.order = rank;
  }
  return job;
}

void fail_because_of(launcher::RankResult& rank, launcher::FailureCause cause,
                     std::vector<int> others) {
  rank.exit_code = 9;
  rank.cause = cause;
  rank.named_ranks = std::move(others);
  rank.error = "said by rank " + std::to_string(rank.rank);
}

TEST_F(LaunchFailureTest, TheRankThatOthersWaitedForIsNamedWithWhatItHasNotCalled) {
  launcher::JobResult job = job_of_three();
  fail_because_of(job.ranks[0], launcher::FailureCause::timed_out, {1});
  fail_because_of(job.ranks[2], launcher::FailureCause::timed_out, {1});
  job.ranks[1].signal = SIGTERM;
  job.ranks[1].stopped_by_glaunch = true;
  job.sentences = {"rank 1 has not called #2 barrier; ranks 0, 2 wait for it"};
  EXPECT_EQ(job.exit_code(), 9);
  EXPECT_THAT(
      launcher::describe_failure(job),
      ::testing::ElementsAre(
          "rank 1 (pid 4712) held up the job: rank 1 has not called #2 barrier; ranks 0, 2 "
          "wait for it",
          "rank 0 says:\n  said by rank 0", "failed because of another rank: ranks 0, 2 (code 9)",
          "stopped by glaunch: rank 1 (SIGTERM)"));
  const auto report = Json::parse(launcher::report_json(job, {}));
  EXPECT_EQ(report.at("first_failure"), 1);
  EXPECT_EQ(report.at("ranks").at(2).at("blames"), std::vector<int>{1});
  EXPECT_EQ(report.at("findings").size(), 1U);
}

TEST_F(LaunchFailureTest, ARankThatEndedWellIsNamedIfOthersWaitedForIt) {
  launcher::JobResult job = job_of_three();
  fail_because_of(job.ranks[0], launcher::FailureCause::peer_lost, {2});
  // A failure that names a secondary one.
  fail_because_of(job.ranks[2], launcher::FailureCause::timed_out, {1});
  EXPECT_THAT(launcher::describe_failure(job),
              ::testing::ElementsAre("rank 1 (pid 4712) ended with code 0 while others waited",
                                     "rank 0 says:\n  said by rank 0",
                                     "failed because of another rank: ranks 0, 2 (code 9)"));
}

TEST_F(LaunchFailureTest, RanksThatMadeDifferentCallsAreNamedTogether) {
  launcher::JobResult job = job_of_three();
  for (launcher::RankResult& rank : job.ranks) {
    fail_because_of(rank, launcher::FailureCause::mismatch, {2, 0});
  }
  EXPECT_THAT(launcher::describe_failure(job),
              ::testing::ElementsAre(
                  "ranks 0, 2 made different calls", "rank 0 (pid 4711) exited with code 9",
                  "rank 0 says:\n  said by rank 0", "failed by itself: ranks 0, 2 (code 9)",
                  "failed because of another rank: rank 1 (code 9)"));
}

TEST_F(LaunchFailureTest, RanksThatNameEachOtherOrNobodyStillMakeAReport) {
  launcher::JobResult job = job_of_three();
  fail_because_of(job.ranks[0], launcher::FailureCause::peer_lost, {1});
  fail_because_of(job.ranks[1], launcher::FailureCause::peer_lost, {0});
  fail_because_of(job.ranks[2], launcher::FailureCause::timed_out, {});
  EXPECT_EQ(job.exit_code(), 9);
  EXPECT_FALSE(launcher::describe_failure(job).empty());
  // A rank that failed by itself is the reason, whenever it did.
  job.ranks[2].cause = launcher::FailureCause::itself;
  job.ranks[2].exit_code = 5;
  EXPECT_EQ(job.exit_code(), 5);
  EXPECT_EQ(job.root_failure()->rank, 2);
}

// As for a process that hangs in the kernel.
TEST_F(LaunchFailureTest, ARankThatDidNotEndIsStillRunning) {
  launcher::JobResult job;
  job.outcome = launcher::Outcome::rank_failed;
  job.ranks.resize(3);
  for (int rank = 0; rank < 2; ++rank) {
    job.ranks[static_cast<std::size_t>(rank)].rank = rank;
    job.ranks[static_cast<std::size_t>(rank)].pid = 4711 + rank;
    job.ranks[static_cast<std::size_t>(rank)].started = true;
  }
  job.ranks[0].ended = true;
  job.ranks[0].exit_code = 7;
  job.ranks[1].stopped_by_glaunch = true;
  job.ranks[2].rank = 2;
  const auto report = Json::parse(launcher::report_json(job, {}));
  EXPECT_EQ(report.at("ranks").at(0).at("class"), "failed_by_itself");
  EXPECT_EQ(report.at("ranks").at(0).at("exit_code"), 7);
  EXPECT_EQ(report.at("ranks").at(1).at("class"), "still_running");
  EXPECT_TRUE(report.at("ranks").at(1).at("exit_code").is_null());
  EXPECT_EQ(report.at("ranks").at(2).at("class"), "not_started");
  EXPECT_TRUE(report.at("ranks").at(2).at("exit_code").is_null());
  EXPECT_THAT(launcher::describe_failure(job),
              ::testing::ElementsAre("rank 0 (pid 4711) exited with code 7",
                                     "failed by itself: rank 0 (code 7)",
                                     "still running: rank 1 (pid 4712)"));
}

}  // namespace
}  // namespace gantry::testing
