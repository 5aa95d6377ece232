// Errors of ranks that wait for a late rank, in world() or in a host call: with real processes and
// every launcher.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.hpp"
#include "tests/support/rank_processes.hpp"

namespace gantry {
namespace {

using ::testing::AnyOf;
using testing::Command;
using testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Outcome;
using testing::RankCommand;
using testing::RankProcesses;
using testing::run_command;
using testing::Subprocess;

const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/caller_actor";

// Three ranks under glaunch that run a shell script, where $actor is the actor. A deadline of ten
// minutes is never waited for.
Outcome glaunch(const std::string& script, const std::map<std::string, std::string>& variables = {},
                const std::vector<std::string>& options = {"--keep-going"}) {
  std::vector<std::string> argv{GLAUNCH_PROGRAM, "-n", "3"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"--", "sh", "-c", script});
  std::map<std::string, std::optional<std::string>> environment(variables.begin(), variables.end());
  environment["actor"] = kActor;
  return run_command({.argv = argv, .environment = environment});
}

TEST(ArrivalTest, UnderGlaunchARankThatEndsBeforeWorldIsLostToTheOthers) {
  const FlightFolder folder;
  for (const char* how : {"exit 0", "exit 1", "kill -9 $$"}) {
    const Outcome outcome =
        glaunch(fmt::format("[ $GANTRY_RANK = 1 ] && {}; exec $actor world", how));
    EXPECT_FALSE(outcome.timed_out) << how << outcome.describe();
    for (const int rank : {0, 2}) {
      EXPECT_THAT(outcome.out,
                  HasSubstr(fmt::format(
                      "[{}] lost rank 1: Communicator::world: rank 1 left the job", rank)))
          << how << outcome.describe();
    }
    EXPECT_THAT(outcome.err, HasSubstr("failed because of another rank: ranks 0, 2"))
        << outcome.describe();
  }
}

TEST(ArrivalTest, UnderGlaunchAGoodbyeToTheStoreDoesNotHideTheEndOfARank) {
  const FlightFolder folder;
  const Outcome outcome =
      glaunch("[ $GANTRY_RANK = 1 ] && exec $actor store; exec $actor store world");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(outcome.out,
                HasSubstr(fmt::format(
                    "[{}] lost rank 1: Communicator::world: rank 1 has left the job", rank)))
        << outcome.describe();
  }
}

// Rank 1 leaves, rank 0 fails because of it, and rank 2 enters after that.
TEST(ArrivalTest, UnderGlaunchTheRankThatLeftFirstIsNamed) {
  const FlightFolder folder;
  for (const char* how : {"exit 0", "exit 1"}) {
    const std::string mark = folder.path() + "/pid";
    std::filesystem::remove(mark);
    const Outcome outcome =
        glaunch(fmt::format("case $GANTRY_RANK in\n"
                            "0) echo $$ > $mark.new; mv $mark.new $mark;;\n"
                            "1) {};;\n"
                            "2) while [ ! -e $mark ]; do :; done\n"
                            "   while kill -0 $(cat $mark) 2>/dev/null; do :; done;;\n"
                            "esac\n"
                            "exec $actor world",
                            how),
                {{"mark", mark}});
    EXPECT_THAT(outcome.out, HasSubstr("[2] lost rank 1: Communicator::world: rank 1 left the job"))
        << outcome.describe();
  }
}

TEST(ArrivalTest, UnderGlaunchRanksWithoutACommunicatorExitNormally) {
  for (const char* script : {"exit 0", "exec $actor store", "[ $GANTRY_RANK = 1 ] || $actor store",
                             "exec $actor store world"}) {
    const FlightFolder folder;
    const Outcome outcome = glaunch(script, {}, {});
    EXPECT_EQ(outcome.exit_code, 0) << script << outcome.describe();
    EXPECT_THAT(outcome.out, Not(HasSubstr("lost"))) << script;
  }
}

Command rank_of(int rank, int ranks, const std::string& address) {
  return {.argv = {kActor, "world"},
          .environment = {{"RANK", std::to_string(rank)},
                          {"WORLD_SIZE", std::to_string(ranks)},
                          {"GANTRY_RDZV", address},
                          {"GANTRY_COLL_TIMEOUT", "1"}}};
}

TEST(ArrivalTest, WithoutALauncherLateRanksAreNamed) {
  const FlightFolder folder;
  const std::string address = fmt::format("unix:@gantry-arrival-{}", getpid());
  EXPECT_THAT(run_command(rank_of(0, 3, address)).out,
              HasSubstr("timeout: Communicator::world: rank 0 waited 1 s, but rank(s) 1, 2 did not "
                        "come (GANTRY_COLL_TIMEOUT sets the deadline)\n"));
  EXPECT_THAT(run_command(rank_of(1, 3, address)).out,
              HasSubstr(fmt::format("timeout: Communicator::world: rank 1 waited 1 s, but rank(s) "
                                    "0, which serves the job's store at {}, did not come "
                                    "(GANTRY_COLL_TIMEOUT sets the deadline)\n",
                                    address)));
}

TEST(ArrivalTest, WithoutALauncherTheEndOfTheRankThatServesTheStoreIsALoss) {
  const FlightFolder folder;
  const std::string address = fmt::format("unix:@gantry-arrival-server-{}", getpid());
  Command late = rank_of(1, 3, address);
  late.environment["GANTRY_COLL_TIMEOUT"] = "50";
  Command server = rank_of(0, 3, address);
  server.environment["GANTRY_COLL_TIMEOUT"] = "10";  // in which the other must find it
  Subprocess second(late);
  Subprocess first(server);
  EXPECT_THAT(first.wait().out, HasSubstr("timeout: Communicator::world"));
  EXPECT_THAT(second.wait().out,
              HasSubstr("lost rank 0: Communicator::world: rank 0, which served the job's store, "
                        "has ended"));
}

TEST(ArrivalTest, UnderMpirunARankThatEndsBeforeWorldEndsTheJob) {
  if (std::string(MPIRUN_PROGRAM).empty()) GTEST_SKIP() << "needs mpirun, but there is none";
  if (!has_mpi()) GTEST_SKIP() << "needs MPI, but this build has none";
  const FlightFolder folder;
  const Outcome outcome =
      run_command({.argv = {MPIRUN_PROGRAM, "--oversubscribe", "-n", "3", "sh", "-c",
                            "[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 0; exec $actor world"},
                   .environment = {{"actor", kActor}, {"GANTRY_COLL_TIMEOUT", "2"}}});
  EXPECT_FALSE(outcome.timed_out) << outcome.describe();
  EXPECT_NE(outcome.exit_code, 0) << outcome.describe();
  // mpirun notices by itself if rank 1 ends after another one has begun MPI_Init. If it ends so
  // early that mpirun still starts the others, some versions of mpirun say nothing.
  EXPECT_THAT(outcome.err, AnyOf(HasSubstr("Communicator::world: waited 2 s in MPI_Init, but other "
                                           "ranks did not come"),
                                 HasSubstr("exiting improperly"), IsEmpty()))
      << outcome.describe();
}

// Starts ranks without a launcher.
RankProcesses start(int ranks, std::vector<std::string> arguments,
                    std::map<std::string, std::optional<std::string>> environment = {}) {
  arguments.insert(arguments.begin(), kActor);
  return RankProcesses(RankCommand{
      .ranks = ranks, .argv = std::move(arguments), .environment = std::move(environment)});
}

TEST(ArrivalTest, AHostCallAgainstACollectiveIsAnErrorOnAllRanks) {
  struct Case {
    const char* command;
    const char* name;
  };
  const Case cases[] = {{"0:split", "split"},
                        {"0:barrier", "host_barrier"},
                        {"0:bytes", "all_gather_bytes"},
                        {"0:register", "register_memory"}};
  for (const char* peers : {"probe", "off"}) {
    for (const auto& [command, called] : cases) {
      const FlightFolder folder;
      RankProcesses ranks =
          start(3, {"sum", "await", command, "12:sum", "sum"}, {{"GANTRY_P2P", peers}});
      // All ranks have completed the first call; a rank still in it would throw the loss.
      for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(ranks.says(rank, "did sum"));
      for (int rank = 0; rank < 3; ++rank) ranks.go(rank);
      std::string first;
      for (int rank = 0; rank < 3; ++rank) {
        const Outcome outcome = ranks[rank].wait();
        EXPECT_FALSE(outcome.timed_out) << outcome.describe();
        // The next call throws the same error.
        for (const auto& phrase :
             {fmt::format("did sum\nmismatch: collective #2: expected the same call on every rank, "
                          "but rank 0 called {} and rank ",
                          called),
              std::string(" called all_reduce sum f32[8]\nmismatch: ")}) {
          EXPECT_THAT(outcome.out, HasSubstr(phrase)) << rank << " " << peers << outcome.describe();
        }
        if (rank == 0) first = outcome.out;
        EXPECT_EQ(outcome.out, first) << "all ranks print the same";
      }
    }
  }
}

TEST(ArrivalTest, TheGroupSurvivesHostCallsThatDiffer) {
  for (const char* peers : {"probe", "off"}) {
    const FlightFolder folder;
    RankProcesses ranks = start(
        3, {"0:split", "1:barrier", "2:bytes", "split", "register", "barrier", "bytes", "sum"},
        {{"GANTRY_P2P", peers}});
    for (int rank = 0; rank < 3; ++rank) {
      const Outcome outcome = ranks[rank].wait();
      EXPECT_EQ(outcome.out,
                "mismatch: collective #1: expected the same call on every rank, but rank 0 called "
                "split and rank 1 called host_barrier\n"
                "did split\ndid register\ndid barrier\ndid bytes\ndid sum\n")
          << outcome.describe();
    }
  }
}

// Ranks on different machines rendezvous over the store only.
TEST(ArrivalTest, BetweenMachinesARankLateForAHostCallIsNamed) {
  const FlightFolder folder;
  const Outcome late = glaunch("GANTRY_BOOT_ID=$GANTRY_RANK exec $actor world 1:pause split",
                               {{"GANTRY_COLL_TIMEOUT", "6"}}, {});
  EXPECT_THAT(late.out, HasSubstr(" waited 6 s, but rank(s) 1 did not come (GANTRY_COLL_TIMEOUT "
                                  "sets the deadline)"))
      << late.describe();
  EXPECT_THAT(late.out, HasSubstr("timeout: split: rank ")) << late.describe();
  const Outcome gone = glaunch("GANTRY_BOOT_ID=$GANTRY_RANK exec $actor world 02:split");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(gone.out,
                HasSubstr(fmt::format("[{}] lost rank 1: split: rank 1 has left the job", rank)))
        << gone.describe();
  }
}

TEST(ArrivalTest, ARankThatHasLeftIsLostToHostCalls) {
  const FlightFolder folder;
  const Outcome outcome = glaunch("exec $actor world 02:split");
  for (const int rank : {0, 2}) {
    EXPECT_THAT(outcome.out,
                HasSubstr(fmt::format("[{}] lost rank 1: rank 1 has left the job", rank)))
        << outcome.describe();
  }
}

TEST(ArrivalTest, AHostCallAtAnotherPlaceAmongCollectivesIsAnError) {
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"sum", "0:split", "sum", "1:split"});
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(ranks[rank].wait().out,
                HasSubstr("mismatch: collective #2: expected the same call on every rank, but rank "
                          "0 called split and rank 1 called all_reduce sum f32[8]\n"))
        << rank;
  }
}

TEST(ArrivalTest, ARankLateForAHostCallIsATimeoutThatNamesItAndItsLastCall) {
  struct Case {
    const char* command;
    const char* name;
  };
  const Case cases[] = {{"02:split", "split"},
                        {"02:barrier", "host_barrier"},
                        {"02:bytes", "all_gather_bytes"},
                        {"02:register", "register_memory"}};
  const FlightFolder folder;
  // The deadline holds for what comes before, too. The groups wait for it at the same time.
  std::vector<RankProcesses> groups;
  for (const Case& one : cases) {
    groups.push_back(start(3, {"sum", "1:pause", one.command}, {{"GANTRY_COLL_TIMEOUT", "6"}}));
  }
  const std::string text =
      " waited 6 s, but rank(s) 1 did not come (GANTRY_COLL_TIMEOUT sets the deadline); rank 1's "
      "last call is #1 all_reduce sum f32[8]\n";
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const int rank : {0, 2}) {
      const char* const called = cases[i].name;
      EXPECT_TRUE(groups[i].says(rank, fmt::format("timeout: {}: rank ", called))) << called;
      EXPECT_TRUE(groups[i].says(rank, text)) << called;
    }
  }
}

}  // namespace
}  // namespace gantry
