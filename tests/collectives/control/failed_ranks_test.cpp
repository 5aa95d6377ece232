// The failed ranks that glaunch and the ranks report when a job fails, with real processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>

#include "core/text/json.hpp"
#include "tests/support/rank_processes.hpp"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::RankCommand;
using testing::RankProcesses;
using testing::run_command;

const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/caller_actor";

struct Job {
  Outcome outcome;
  Json report;
};

// Three ranks under glaunch that run a shell script, where $actor is the actor.
// They all end by themselves, unless glaunch stops them.
Job glaunch(const std::string& script, const std::string& deadline = "600", bool stops = false) {
  const std::string path =
      fmt::format("{}/gantry-failed-ranks-{}.json", ::testing::TempDir(), getpid());
  Job job;
  job.outcome =
      run_command({.argv = {GLAUNCH_PROGRAM, "-n", "3", "--report", path,
                            stops ? "--grace=1" : "--keep-going", "--", "sh", "-c", script},
                   .environment = {{"actor", kActor}, {"GANTRY_COLL_TIMEOUT", deadline}},
                   .timeout = std::chrono::seconds(120)});
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  job.report = Json::try_parse(text).value_or(Json());
  unlink(path.c_str());
  return job;
}

int count_of(const std::string& text, const std::string& phrase) {
  int count = 0;
  for (auto at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1)) {
    ++count;
  }
  return count;
}

TEST(FailedRanksTest, ARankThatHangsIsNamedWithWhatItHasNotCalled) {
  struct Case {
    const char* script;
    const char* sentence;
  };
  for (const auto& [script, sentence] :
       {Case{"exec $actor sum 1:pause sum",
             "rank 1 has not called #2 all_reduce sum f32\\[8\\]; ranks 0, 2 wait for it"},
        Case{"exec $actor sum 1:pause barrier",
             "rank 1 has not called host_barrier; ranks 0, 2 wait for it"}}) {
    const FlightFolder folder;
    const Job job = glaunch(script, "6", /*stops=*/true);
    EXPECT_EQ(job.outcome.exit_code, 4) << job.outcome.describe();
    EXPECT_THAT(job.outcome.err,
                ContainsRegex(fmt::format("glaunch: rank 1 \\(pid [0-9]+, cuda:1 [^)]*\\) held up "
                                          "the job: {}\n",
                                          sentence)))
        << job.outcome.describe();
    // Another rank may be slower than glaunch.
    EXPECT_THAT(job.outcome.err, AllOf(HasSubstr("failed because of another rank: rank"),
                                       Not(HasSubstr("failed by itself"))));
    EXPECT_EQ(job.report.at("first_failure"), 1);
    EXPECT_EQ(job.report.at("exit_code"), 4);
    EXPECT_EQ(job.report.at("ranks").at(1).at("class"), "stopped_by_glaunch");
  }
}

// The wrapper's process is not the one that waits.
TEST(FailedRanksTest, ARankBehindAShellIsNamed) {
  const FlightFolder folder;
  const Job job = glaunch("$actor sum 1:pause sum; exit $?", "6", /*stops=*/true);
  EXPECT_THAT(job.outcome.err, HasSubstr("held up the job: rank 1 has not called #2"))
      << job.outcome.describe();
}

TEST(FailedRanksTest, ARankThatLeftEarlyWithCodeZeroIsNamed) {
  for (const char* next : {"sum", "barrier"}) {
    const FlightFolder folder;
    const Job job =
        glaunch(fmt::format("[ $GANTRY_RANK = 1 ] && exec $actor sum; exec $actor sum {}", next));
    EXPECT_EQ(job.outcome.exit_code, 3) << job.outcome.describe();
    EXPECT_THAT(job.outcome.err,
                ContainsRegex("glaunch: rank 1 \\(pid [0-9]+, cuda:1 [^)]*\\) ended with code 0 "
                              "while others waited\n"))
        << job.outcome.describe();
    EXPECT_THAT(job.outcome.err,
                AllOf(HasSubstr("failed because of another rank: ranks 0, 2 (code 3)"),
                      HasSubstr("rank 1 left while others still called"),
                      Not(HasSubstr("failed by itself"))));
    EXPECT_EQ(job.report.at("first_failure"), 1);
  }
}

TEST(FailedRanksTest, RanksThatMadeDifferentCallsAreNamed) {
  const FlightFolder folder;
  const Job job = glaunch("exec $actor uncaught sum 01:sum8 2:sum9");
  EXPECT_EQ(job.outcome.exit_code, 134) << job.outcome.describe();
  EXPECT_THAT(job.outcome.err,
              AllOf(HasSubstr("glaunch: ranks 0, 2 made different calls\n"),
                    HasSubstr("rank 0 called all_reduce sum f32[8] and rank 2 called all_reduce "
                              "sum f32[9]"),
                    HasSubstr("gantry::CollectiveMismatch: collective #2: ")))
      << job.outcome.describe();
}

// An error that the program survived is not the cause of a later failure.
TEST(FailedRanksTest, AFailureThatTheProgramSurvivedIsNotItsReason) {
  const FlightFolder folder;
  const Job job = glaunch("$actor sum 01:sum8 2:sum9 sum; exit 7");
  EXPECT_EQ(job.outcome.exit_code, 7) << job.outcome.describe();
  EXPECT_THAT(job.outcome.err, AllOf(HasSubstr("exited with code 7"), HasSubstr("failed by itself"),
                                     Not(HasSubstr("different calls"))));
}

TEST(FailedRanksTest, AnUncaughtErrorIsOneLineWithRankAndDevice) {
  const FlightFolder folder;
  const Job job = glaunch("exec $actor uncaught sum 1:exhaust sum");
  EXPECT_EQ(job.outcome.exit_code, 134) << job.outcome.describe();
  EXPECT_EQ(count_of("\n" + job.outcome.err, "\n[1] rank 1 (cuda:1): gantry::OutOfMemoryError: "),
            1)
      << job.outcome.describe();
  EXPECT_THAT(job.outcome.err, AllOf(Not(HasSubstr("terminate called")),
                                     HasSubstr("failed by itself: rank 1 (SIGABRT)")));
  EXPECT_EQ(job.report.at("first_failure"), 1);
}

TEST(FailedRanksTest, AnUncaughtErrorEndsTheJobUnderMpirun) {
  if (std::string(MPIRUN_PROGRAM).empty()) GTEST_SKIP() << "needs mpirun, but there is none";
  const FlightFolder folder;
  const Outcome outcome = run_command({.argv = {MPIRUN_PROGRAM, "--oversubscribe", "-n", "3",
                                                kActor, "uncaught", "sum", "1:exhaust", "02:pause"},
                                       .timeout = std::chrono::seconds(120)});
  EXPECT_FALSE(outcome.timed_out) << outcome.describe();
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_EQ(count_of(outcome.err, "rank 1 (cuda:1): gantry::OutOfMemoryError: "), 1)
      << outcome.describe();
  EXPECT_THAT(outcome.err, Not(HasSubstr("terminate called")));
}

TEST(FailedRanksTest, AnUncaughtErrorEndsTheOtherRanksWithoutALauncher) {
  const FlightFolder folder;
  RankProcesses ranks(
      RankCommand{.ranks = 3, .argv = {kActor, "uncaught", "sum", "1:exhaust", "sum"}});
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome outcome = ranks[rank].wait();
    EXPECT_EQ(outcome.signal, SIGABRT) << rank << outcome.describe();
    EXPECT_THAT(
        outcome.err,
        HasSubstr(rank == 1 ? "rank 1 (cuda:1): gantry::OutOfMemoryError: "
                            : fmt::format("rank {} (cuda:{}): gantry::PeerLostError: rank 1 ", rank,
                                          rank)))
        << outcome.describe();
  }
}

TEST(FailedRanksTest, AProgramsOwnTerminateHandlerStillRuns) {
  const FlightFolder folder;
  RankProcesses ranks(RankCommand{.ranks = 1, .argv = {kActor, "handled", "sum", "exhaust"}});
  const Outcome outcome = ranks[0].wait();
  EXPECT_EQ(outcome.exit_code, 55) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("the program's own handler"));
  EXPECT_EQ(count_of(outcome.err, "gantry::OutOfMemoryError: "), 1) << outcome.describe();
}

TEST(FailedRanksTest, WithoutWorldTheTerminateHandlerStays) {
  const std::terminate_handler before = std::get_terminate();
  const std::vector<Communicator> group = Communicator::local({Device::cuda(0), Device::cuda(1)});
  EXPECT_EQ(std::get_terminate(), before);
}

// GANTRY_RANK and GANTRY_WORLD_SIZE, as glaunch sets them, but by hand.
RankProcesses by_hand(const std::map<std::string, std::optional<std::string>>& address) {
  std::map<std::string, std::optional<std::string>> environment = address;
  environment["script"] =
      "export GANTRY_RANK=$RANK GANTRY_WORLD_SIZE=$WORLD_SIZE; unset RANK WORLD_SIZE LOCAL_RANK "
      "LOCAL_WORLD_SIZE; [ -n \"$meet\" ] || unset GANTRY_RDZV; exec $actor sum";
  environment["actor"] = kActor;
  return RankProcesses(RankCommand{
      .ranks = 2, .argv = {"sh", "-c", "eval \"$script\""}, .environment = environment});
}

TEST(FailedRanksTest, RanksWithoutALauncherRendezvousOrNameTheMissingVariable) {
  const FlightFolder folder;
  RankProcesses together = by_hand({{"meet", "yes"}});
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome outcome = together[rank].wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("did sum"));
  }
  RankProcesses alone = by_hand({});
  for (int rank = 0; rank < 2; ++rank) {
    const Outcome outcome = alone[rank].wait();
    EXPECT_EQ(outcome.exit_code, 1) << outcome.describe();
    EXPECT_THAT(outcome.out,
                HasSubstr(fmt::format("failed: Communicator::world: GANTRY_RANK={} and "
                                      "GANTRY_WORLD_SIZE=2 are set, but nothing says where the "
                                      "ranks meet; set GANTRY_RDZV",
                                      rank)))
        << outcome.describe();
  }
}

}  // namespace
}  // namespace gantry
