// Ranks as processes on pretended machines, between which NCCL moves the data. On simulated devices
// NCCL is a library of the tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/env.hpp>

#include "collectives/transport.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/rank_processes.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry {
namespace {

using testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::RankCommand;
using testing::RankProcesses;

const std::string kSimulatedNccl = GANTRY_TEST_SIMULATED_NCCL;
const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/network_actor";
// A dead rank is known to all others after this time, and a stopped one so long after the deadline.
constexpr int kSlowness = testing::kIsSanitized ? 5 : 1;
constexpr std::int64_t kMostMs = 4'000 * kSlowness;
constexpr std::int64_t kDeadlineMs = 2'000 * kSlowness;
constexpr std::chrono::seconds kLongest{60 * kSlowness};

// Ranks of a job and of each machine; the last machine has the rest.
struct Layout {
  int ranks = 2;
  int per_machine = 1;
};
constexpr Layout kPair{2, 1};

class NetworkProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_DEVICES(2);
    if (platform() == Platform::cuda && !has_nccl()) GTEST_SKIP() << "needs NCCL";
  }

  // Layouts that this platform's devices allow.
  static std::vector<Layout> layouts() {
    if (platform() == Platform::cuda) return {kPair};
    return {kPair, {3, 1}, {3, 2}, {4, 2}, {6, 3}};
  }

  static RankCommand command(const Layout& layout, std::vector<std::string> arguments) {
    RankCommand made{.ranks = layout.ranks,
                     .timeout = kLongest,
                     .is_simulated = platform() != Platform::cuda,
                     .is_spread = true,
                     .ranks_per_host = layout.per_machine};
    made.argv = {kActor};
    made.argv.insert(made.argv.end(), arguments.begin(), arguments.end());
    made.environment = {{"GANTRY_LOG", "info"},
                        // Two GPUs of one machine have no other path than the network's.
                        {"NCCL_P2P_DISABLE", "1"},
                        {"NCCL_SHM_DISABLE", "1"},
                        {"NCCL_NVLS_ENABLE", "0"},
                        {"GANTRY_P2P", "on"}};
    if (platform() != Platform::cuda) made.environment["GANTRY_NCCL_LIBRARY"] = kSimulatedNccl;
    return made;
  }

  static std::vector<Outcome> outcomes(RankProcesses& ranks) {
    std::vector<Outcome> all;
    for (int rank = 0; rank < ranks.size(); ++rank) all.push_back(ranks[rank].wait());
    return all;
  }

  static std::string line_with(const std::string& text, const std::string& word) {
    const std::size_t at = text.find(word);
    return at == std::string::npos ? std::string() : text.substr(at, text.find('\n', at) - at);
  }

  static std::size_t count(const std::string& text, const std::string& word) {
    std::size_t times = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
      ++times;
    return times;
  }

  static std::int64_t now_ms() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
  }

  // Sends `signal` to a drawn rank at a drawn moment, in each of the rounds. All others must name
  // it in time.
  static void lose_ranks(int signal, const std::map<std::string, std::string>& more,
                         std::int64_t most_ms, const std::string& error) {
    const auto seed = env::get_int("GANTRY_TEST_SEED", 0, 1'000'000).value_or(1);
    const auto rounds = env::get_int("GANTRY_TEST_ROUNDS", 1, 100'000).value_or(20 / kSlowness);
    std::mt19937 random(static_cast<unsigned>(seed * 100 + signal));
    const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
    const std::vector<Layout> all = layouts();
    for (std::int64_t round = 0; round < rounds; ++round) {
      const Layout layout = all[static_cast<std::size_t>(round) % all.size()];
      RankCommand made = command(layout, {"loop"});
      for (const auto& [name, value] : more) made.environment[name] = value;
      RankProcesses ranks(std::move(made));
      const int victim = below(layout.ranks);
      const std::string moment = "round " + std::to_string(3 + below(40)) + ".";
      ASSERT_TRUE(ranks.says(victim, moment)) << ranks[victim].wait().describe();
      const std::int64_t begin = now_ms();
      ranks[victim].send_signal(signal);
      for (int rank = 0; rank < layout.ranks; ++rank) {
        if (rank == victim) continue;
        const Outcome outcome = ranks[rank].wait();
        SCOPED_TRACE(outcome.describe());
        ASSERT_FALSE(outcome.timed_out) << "it hung";
        std::smatch found;
        const std::regex pattern("at ([0-9]+) " + error + " of \\[" + std::to_string(victim) +
                                 "\\]");
        ASSERT_TRUE(std::regex_search(outcome.out, found, pattern))
            << "round " << round << ", victim " << victim << " of " << layout.ranks << ", "
            << layout.per_machine << " on a machine";
        EXPECT_LE(std::stoll(found[1]) - begin, most_ms);
      }
      ranks.kill(victim);
    }
  }

 private:
  const FlightFolder folder_;
};

TEST_F(NetworkProcessesTest, ResultsHaveTheBitsOfOneMachineAndNcclMovesThem) {
  for (const Layout& layout : layouts()) {
    RankCommand one = command(layout, {"results", "5"});
    one.is_spread = false;
    RankProcesses together(std::move(one));
    RankProcesses apart(command(layout, {"results", "5"}));
    const std::vector<Outcome> expected = outcomes(together);
    const std::vector<Outcome> found = outcomes(apart);
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      ASSERT_EQ(found[rank].exit_code, 0) << found[rank].describe();
      ASSERT_EQ(expected[rank].exit_code, 0) << expected[rank].describe();
      EXPECT_THAT(found[rank].out, HasSubstr("transport nccl"));
      EXPECT_THAT(expected[rank].out, HasSubstr("transport p2p"));
      const std::string digest = line_with(expected[rank].out, "digest");
      EXPECT_EQ(line_with(found[rank].out, "digest"), digest);
      EXPECT_FALSE(digest.empty());
      if (platform() == Platform::cuda) continue;
      EXPECT_THAT(found[rank].out, Not(HasSubstr("NCCL sent 0 bytes")));
      EXPECT_THAT(expected[rank].out, HasSubstr("NCCL sent 0 bytes"));
    }
    EXPECT_EQ(count(found[0].err, "NCCL moves the data between machines"), 1U) << found[0].err;
    EXPECT_EQ(count(found[1].err, "NCCL moves the data between machines"), 0U) << found[1].err;
  }
}

TEST_F(NetworkProcessesTest, ADeadRankIsNamedByAllOthers) {
  lose_ranks(SIGKILL, {{"GANTRY_COLL_TIMEOUT", "600"}}, kMostMs, "PeerLostError");
}

TEST_F(NetworkProcessesTest, ADeadRankThatNcclFindsFirstIsNamedToo) {
  GANTRY_REQUIRE_SIM();  // There NCCL finds it when it likes.
  lose_ranks(SIGKILL, {{"GANTRY_COLL_TIMEOUT", "600"}, {"SIMULATED_NCCL_REPORTS", "losses"}},
             kMostMs, "PeerLostError");
}

TEST_F(NetworkProcessesTest, AStoppedRankIsNamedByAllOthersAtTheDeadline) {
  lose_ranks(SIGSTOP, {{"GANTRY_COLL_TIMEOUT", std::to_string(kDeadlineMs / 1000)}},
             kDeadlineMs + kMostMs, "TimeoutError");
}

// Starts four ranks on two machines, of which rank 2 has other variables, and returns what they
// did.
std::vector<Outcome> with_another_rank_2(const std::string& variables) {
  RankCommand made{.ranks = 4, .timeout = kLongest, .is_spread = true, .ranks_per_host = 2};
  made.argv = {"sh", "-c",
               "[ $RANK = 2 ] && export " + variables + "; exec " + kActor + " results 3"};
  made.environment = {{"GANTRY_LOG", "info"}, {"GANTRY_NCCL_LIBRARY", kSimulatedNccl}};
  RankProcesses ranks(std::move(made));
  std::vector<Outcome> all;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    all.push_back(ranks[rank].wait());
    EXPECT_EQ(all.back().exit_code, 0) << all.back().describe();
    EXPECT_THAT(all.back().out, HasSubstr("transport host"));
    EXPECT_THAT(all.back().out, HasSubstr("NCCL sent 0 bytes"));
  }
  return all;
}

TEST_F(NetworkProcessesTest, WithoutNcclOnOneMachineTheLinksMoveAllData) {
  GANTRY_REQUIRE_SIM();
  const auto all = with_another_rank_2("GANTRY_NCCL_LIBRARY=/no/such/libnccl.so.2");
  EXPECT_THAT(all[0].err,
              HasSubstr("links by tcp move the data between machines, without NCCL: rank 2: failed "
                        "to load /no/such/libnccl.so.2"));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    EXPECT_EQ(count(all[rank].err, "without NCCL"), rank == 0 ? 1U : 0U) << all[rank].err;
}

TEST_F(NetworkProcessesTest, IfNcclDoesNotStartOnOneRankTheLinksMoveAllData) {
  GANTRY_REQUIRE_SIM();
  const auto all = with_another_rank_2("SIMULATED_NCCL_FAILS=init");
  EXPECT_THAT(all[0].err,
              HasSubstr("links by tcp move the data between machines, without NCCL: rank 2: Failed "
                        "starting NCCL"));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    EXPECT_EQ(count(all[rank].err, "without NCCL"), rank == 0 ? 1U : 0U) << all[rank].err;
}

TEST_F(NetworkProcessesTest, AVariableGivesAllDataToTheLinks) {
  for (const char* how : {"tcp", "nccl"}) {
    RankCommand made = command(kPair, {"results", "5"});
    made.environment["GANTRY_HOST_LINKS"] = how;
    RankProcesses ranks(std::move(made));
    for (const Outcome& outcome : outcomes(ranks)) {
      EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
      EXPECT_THAT(outcome.out,
                  HasSubstr(how == std::string("tcp") ? "transport host" : "transport nccl"));
    }
  }
}

TEST_F(NetworkProcessesTest, GroupsOfGroupsTakeNcclBetweenMachines) {
  GANTRY_REQUIRE_DEVICES(4);
  RankProcesses ranks(command({4, 2}, {"groups"}));
  for (const Outcome& outcome : outcomes(ranks))
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
}

TEST_F(NetworkProcessesTest, ASmallerGroupGoesOnWithoutALostRank) {
  GANTRY_REQUIRE_DEVICES(3);
  for (const Layout layout : {Layout{3, 1}, Layout{4, 2}}) {
    if (layout.ranks > device_count()) continue;
    RankProcesses ranks(command(layout, {"shrink"}));
    const auto all = outcomes(ranks);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (rank == 1) continue;
      EXPECT_EQ(all[rank].exit_code, 0) << all[rank].describe();
    }
  }
}

}  // namespace
}  // namespace gantry
