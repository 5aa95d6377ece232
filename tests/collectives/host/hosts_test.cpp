// Jobs on several hosts, which are network namespaces of this one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <gantry/core/env.hpp>

#include "collectives/bootstrap/bootstrap.hpp"

#include "tests/support/subprocess.hpp"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

const std::string kActor = GANTRY_TEST_PROGRAM_DIR "/hosts_actor";

// The command for a new network namespace; empty if the system does not allow it.
std::optional<std::vector<std::string>> own_network() {
  for (const char* flags : {"-n", "-Urn"}) {
    // What the script needs: links, and namespaces inside.
    const Outcome outcome =
        run_command({{"unshare", flags, "sh", "-c",
                      "ip link add br0 type bridge && ip link add v0 type veth peer name v1 && "
                      "unshare -n true && command -v nsenter"}});
    if (outcome.exit_code == 0) return std::vector<std::string>{"unshare", flags};
  }
  return std::nullopt;
}

Command on_hosts(const std::vector<std::string>& network, int hosts, int ranks,
                 const std::string& mode) {
  std::vector<std::string> argv = network;
  argv.insert(argv.end(), {"bash", SEVERAL_HOSTS_SCRIPT, std::to_string(hosts),
                           std::to_string(ranks), kActor, mode});
  return {.argv = std::move(argv),
          .environment = {{"GANTRY_COLL_TIMEOUT", "60"}},
          .timeout = std::chrono::seconds(100)};
}

#define REQUIRE_NETWORK(name)      \
  const auto name = own_network(); \
  if (!name) GTEST_SKIP() << "needs network namespaces (root or user namespaces, and iproute2)"

TEST(HostsTest, RanksOnSeveralHostsReduceAndGather) {
  REQUIRE_NETWORK(network);
  for (const int ranks : {1, 2}) {
    const Outcome outcome = run_command(on_hosts(*network, 3, ranks, "check"));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    for (int rank = 0; rank < 3 * ranks; ++rank) {
      EXPECT_THAT(outcome.out, HasSubstr("rank " + std::to_string(rank) + ": ok"))
          << outcome.describe();
    }
  }
}

TEST(HostsTest, ARankThatDiesIsAnErrorOnEveryOther) {
  REQUIRE_NETWORK(network);
  const Outcome outcome = run_command(on_hosts(*network, 2, 2, "die"));
  ASSERT_FALSE(outcome.timed_out) << outcome.describe();
  for (const int rank : {0, 2, 3}) {
    EXPECT_THAT(outcome.out, HasSubstr("rank " + std::to_string(rank) +
                                       ": PeerLostError rank 1 died or was cut off"))
        << outcome.describe();
  }
  EXPECT_THAT(outcome.out, HasSubstr("rank 1 ended with 137"));
}

// Most ranks of a large group have no connection to it before they need one.
TEST(HostsTest, ARankOfALargeGroupThatDiesIsAnErrorOnEveryOther) {
  REQUIRE_NETWORK(network);
  constexpr int kRanks = 20;
  const Outcome outcome = run_command(on_hosts(*network, 5, kRanks / 5, "die"));
  ASSERT_FALSE(outcome.timed_out) << outcome.describe();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == 1) continue;
    EXPECT_THAT(outcome.out, HasSubstr("rank " + std::to_string(rank) +
                                       ": PeerLostError rank 1 died or was cut off"))
        << outcome.describe();
  }
}

TEST(HostsTest, AHostThatIsCutOffIsAnErrorOnEveryRank) {
  REQUIRE_NETWORK(network);
  Subprocess job(on_hosts(*network, 3, 2, "loop"));
  for (int rank = 0; rank < 6; ++rank) {
    ASSERT_TRUE(job.wait_for_output("rank " + std::to_string(rank) + ": sums"))
        << job.wait().describe();
  }
  job.send_signal(SIGUSR1);
  const Outcome outcome = job.wait();
  ASSERT_FALSE(outcome.timed_out) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("cut off"));
  for (int rank = 0; rank < 6; ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    EXPECT_THAT(outcome.out, HasSubstr(name + ": PeerLostError")) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr(name + " ended with 3"));
  }
  // Ranks that can still communicate name one of the two lost ranks.
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(outcome.out,
                ::testing::ContainsRegex("rank " + std::to_string(rank) +
                                         ": PeerLostError rank [45] died or was cut off"));
  }
}

TEST(HostsTest, MessagesGoByMpiOrTcpUnderMpirun) {
  if (std::string(MPIRUN_PROGRAM).empty()) GTEST_SKIP() << "needs mpirun, but there is none";
  if (!has_mpi()) GTEST_SKIP() << "needs a build with MPI";
  for (const char* links : {"mpi", "tcp"}) {
    const Outcome outcome = run_command(
        {.argv = {MPIRUN_PROGRAM, "--oversubscribe", "-n", "4", kActor, "check"},
         .environment = {
             {"GANTRY_COLL_ALGO", "host"}, {"GANTRY_HOST_LINKS", links}, {"GANTRY_LOG", "info"}}});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr(std::string("ranks' hosts go by ") + links));
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_THAT(outcome.out, HasSubstr("rank " + std::to_string(rank) + ": ok"));
    }
  }
}

// Each rank on its own machine, by name.
Command by_mpirun(int ranks, const std::string& links, const std::string& mode,
                  const std::string& deadline = "600") {
  return {.argv = {MPIRUN_PROGRAM, "--oversubscribe", "-n", std::to_string(ranks), "sh", "-c",
                   "GANTRY_BOOT_ID=host-$OMPI_COMM_WORLD_RANK GANTRY_COLL_TIMEOUT=" + deadline +
                       " exec " + kActor + " " + mode},
          .environment = {{"GANTRY_HOST_LINKS", links}},
          .timeout = std::chrono::seconds(100)};
}

void expect_ok(const Outcome& outcome, int ranks) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_THAT(outcome.out, HasSubstr("rank " + std::to_string(rank) + ": ok"));
  }
}

TEST(HostsTest, AllRanksDetectLeaveAbortAndLatenessByMpiAsByTcp) {
  if (std::string(MPIRUN_PROGRAM).empty()) GTEST_SKIP() << "needs mpirun, but there is none";
  if (!has_mpi()) GTEST_SKIP() << "needs a build with MPI";
  for (const char* links : {"mpi", "tcp"}) {
    expect_ok(run_command(by_mpirun(3, links, "part", "$((5 + 600 * OMPI_COMM_WORLD_RANK))")), 3);
  }
}

TEST(HostsTest, GroupsThatTwoThreadsMakeAtOnceDoNotGetEachOthersMessages) {
  if (std::string(MPIRUN_PROGRAM).empty()) GTEST_SKIP() << "needs mpirun, but there is none";
  if (!has_mpi()) GTEST_SKIP() << "needs a build with MPI";
  expect_ok(run_command(by_mpirun(2, "mpi", "splits")), 2);
}

// Rank 0 times out.
TEST(HostsTest, AGroupThatIsDroppedLeavesMpiWhatItStillReadsAndTakesWhatItWouldWrite) {
  if (std::string(MPIRUN_PROGRAM).empty()) GTEST_SKIP() << "needs mpirun, but there is none";
  if (!has_mpi()) GTEST_SKIP() << "needs a build with MPI";
  for (const char* mode : {"sent", "unsent"}) {
    expect_ok(run_command(by_mpirun(2, "mpi", mode, "$((8 + 60 * OMPI_COMM_WORLD_RANK))")), 2);
  }
}

}  // namespace
}  // namespace gantry::testing
