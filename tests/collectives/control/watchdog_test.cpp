// Errors of ranks when another rank, as a process, dies, stops, leaves or is late.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <random>
#include <thread>

#include <gantry/core/env.hpp>

#include "core/text/escaped_text.hpp"
#include "job/flight_folder.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/process_state.hpp"
#include "tests/support/rank_processes.hpp"
#include "tests/support/scheduled.hpp"

namespace gantry {
namespace {

using testing::eventually;
using testing::FlightFolder;
using ::testing::HasSubstr;
using testing::is_scheduled;
using testing::Outcome;
using testing::RankCommand;
using testing::RankProcesses;
using testing::state_of;

// Within which a loss must be heard of; generous, since machines that test are busy. Who waited for
// the deadline of its call instead would hear of it after ten minutes.
constexpr auto kSoon = std::chrono::seconds(20);
// A deadline that is waited for. It holds from the first call on, for which all must come in time.
const std::map<std::string, std::optional<std::string>> kDeadline{{"GANTRY_COLL_TIMEOUT", "6"}};

const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/watchdog_actor";

RankProcesses start(int ranks, std::vector<std::string> arguments,
                    std::map<std::string, std::optional<std::string>> environment = {}) {
  arguments.insert(arguments.begin(), kActor);
  return RankProcesses(RankCommand{
      .ranks = ranks, .argv = std::move(arguments), .environment = std::move(environment)});
}

// The rest of a rank's output, after it was let go.
std::string output_of(RankProcesses& ranks, int rank) {
  ranks.go(rank);
  const Outcome outcome = ranks[rank].wait();
  EXPECT_EQ(outcome.exit_code, 0) << rank << outcome.describe();
  return outcome.out;
}

int count_of(const std::string& text, const std::string& phrase) {
  int count = 0;
  for (auto at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1))
    ++count;
  return count;
}

// Returns once the file shows that the watchdogs of these ranks have looked `times` times.
void await_looks(const std::vector<int>& ranks, int times) {
  const std::vector<std::string> files = flight::list_files();
  ASSERT_EQ(files.size(), 1U);
  // Each opening is a copy of what is there by then.
  const auto heartbeat = [&](int rank) {
    const auto file = flight::OpenFile::open(files[0]);
    return file ? file->view().rank(rank).heartbeat_ns.load() : 0;
  };
  for (const int rank : ranks) {
    for (int i = 0; i < times; ++i) {
      for (const std::int64_t before = heartbeat(rank); heartbeat(rank) == before;) {
        std::this_thread::yield();
      }
    }
  }
}

TEST(WatchdogTest, ADeathWakesKernelsThatWaitOnEveryRank) {
  const FlightFolder folder;
  RankProcesses ranks = start(4, {"absence", "1", "call"});
  for (const int rank : {0, 2, 3}) ASSERT_TRUE(ranks.says(rank, "waiting")) << rank;
  ASSERT_TRUE(ranks.says(1, "ready"));
  ranks.kill(1);
  const std::string text =
      "lost rank 1: rank 1 died; the communicator of 4 ranks is unusable (during collective #2 "
      "all_reduce sum f32[1000])";
  for (const int rank : {0, 2, 3}) EXPECT_TRUE(ranks.says(rank, text, kSoon)) << rank;
  for (const int rank : {0, 2, 3}) {
    const std::string output = output_of(ranks, rank);
    EXPECT_EQ(count_of(output, text), 2) << "the next call says so too: " << output;
  }
}

TEST(WatchdogTest, AStoppedRankIsNotDead) {
  const FlightFolder folder;
  RankProcesses ranks = start(3, {"stop"});
  for (const int rank : {0, 2}) ASSERT_TRUE(ranks.says(rank, "waiting")) << rank;
  while (state_of(ranks[1].pid()) != 'T') std::this_thread::yield();
  await_looks({0, 2}, 20);
  ranks[1].send_signal(SIGCONT);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(output_of(ranks, rank), HasSubstr("all came")) << rank;
  }
}

// All ranks are stopped for longer than the deadline while two wait for the third, in the control
// segment, in the host links and in the store.
TEST(WatchdogTest, AJobThatWasStoppedAndGoesOnHasNotTimedOut) {
  const FlightFolder folder;
  const std::string caller = std::string(GANTRY_TEST_PROGRAM_DIR) + "/caller_actor";
  std::vector<RankProcesses> groups;
  for (const std::string& command :
       {"exec " + caller + " sum 1:await barrier",
        "GANTRY_COLL_ALGO=host exec " + caller + " barrier 1:await sum",
        "GANTRY_BOOT_ID=host-$RANK exec " + caller + " sum 1:await bytes"}) {
    groups.emplace_back(RankCommand{
        .ranks = 3, .argv = {"sh", "-c", command}, .environment = {{"GANTRY_COLL_TIMEOUT", "10"}}});
  }
  for (RankProcesses& ranks : groups) {
    for (int rank = 0; rank < 3; ++rank) ASSERT_TRUE(ranks.says(rank, "did "));
  }
  for (RankProcesses& ranks : groups) {
    for (int rank = 0; rank < 3; ++rank) ranks[rank].send_signal(SIGSTOP);
  }
  // Real time is the subject: a stop that is longer than a deadline of other processes.
  std::this_thread::sleep_for(std::chrono::seconds(11));
  for (RankProcesses& ranks : groups) {
    for (const int rank : {0, 2}) ranks[rank].send_signal(SIGCONT);
  }
  // A rank that counted the stop would end meanwhile. Nothing shows that one has read its clock.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (RankProcesses& ranks : groups) {
    ranks.go(1);
    ranks[1].send_signal(SIGCONT);
  }
  for (RankProcesses& ranks : groups) {
    for (int rank = 0; rank < 3; ++rank) {
      const Outcome outcome = ranks[rank].wait();
      EXPECT_EQ(outcome.exit_code, 0) << rank << outcome.describe();
    }
  }
}

TEST(WatchdogTest, ATimeoutNamesTheMissingRanksOnAllRanks) {
  const FlightFolder folder;
  RankProcesses ranks = start(4, {"absence", "13", "call"}, kDeadline);
  for (const int rank : {0, 2}) ASSERT_TRUE(ranks.says(rank, "timeout: ")) << rank;
  const std::string text =
      "waited 6 s, but rank(s) 1, 3 did not enter the operation #2 all_reduce sum f32[1000] "
      "(GANTRY_COLL_TIMEOUT sets the deadline)";
  for (const int rank : {1, 3}) {
    ASSERT_TRUE(ranks.says(rank, "ready"));
    ranks.go(rank);
    ASSERT_TRUE(ranks.says(rank, "timeout: ", kSoon)) << rank;
  }
  std::string first;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string output = output_of(ranks, rank);
    EXPECT_EQ(count_of(output, text), 2) << output;
    const std::string line = output.substr(output.rfind("timeout: "));
    if (rank == 0) first = line;
    EXPECT_EQ(line, first) << "all ranks say the same";
  }
}

TEST(WatchdogTest, ARankThatLeavesInOrderIsMissedByThoseThatStillCall) {
  const FlightFolder folder;
  RankProcesses ranks = start(3, {"absence", "2", "leave"});
  for (const int rank : {0, 1}) ASSERT_TRUE(ranks.says(rank, "waiting")) << rank;
  ASSERT_TRUE(ranks.says(2, "ready"));
  ranks.go(2);
  const std::string text =
      "lost rank 2: rank 2 has left the job; the communicator of 3 ranks is unusable";
  for (const int rank : {0, 1}) EXPECT_TRUE(ranks.says(rank, text, kSoon)) << rank;
  for (int rank = 0; rank < 3; ++rank) output_of(ranks, rank);
}

// Each rank on a machine of its own, by name.
TEST(WatchdogTest, ARankThatEndsInOrderBetweenHostsIsMissedOnlyByThoseThatNeedIt) {
  const FlightFolder folder;
  RankProcesses ranks(RankCommand{
      .ranks = 3, .argv = {"sh", "-c", "GANTRY_BOOT_ID=host-$RANK exec " + kActor + " early_end"}});
  const Outcome early = ranks[1].wait();
  EXPECT_EQ(early.exit_code, 0) << early.describe();
  ASSERT_TRUE(ranks.says(0, "got 1")) << ranks[0].wait().describe();
  EXPECT_EQ(output_of(ranks, 2), "");
  EXPECT_THAT(output_of(ranks, 0), HasSubstr("got 2\nlost rank 1: rank 1 has left the job; the "
                                             "communicator of 3 ranks is unusable"));
}

// Two machines of two ranks each, by name.
TEST(WatchdogTest, RanksInLayersLeaveNoFlightFile) {
  const FlightFolder folder;
  RankProcesses ranks(RankCommand{
      .ranks = 4,
      .argv = {"sh", "-c", "GANTRY_BOOT_ID=host-$((RANK / 2)) exec " + kActor + " check"},
      .environment = {{"GANTRY_P2P", "on"}}});
  for (int rank = 0; rank < 4; ++rank) {
    const Outcome outcome = ranks[rank].wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  }
  EXPECT_TRUE(flight::list_files().empty());
}

TEST(WatchdogTest, AnAbortWakesKernelsThatWaitOnEveryRank) {
  const FlightFolder folder;
  RankProcesses ranks = start(3, {"absence", "0", "abort"});
  for (const int rank : {1, 2}) ASSERT_TRUE(ranks.says(rank, "waiting")) << rank;
  ASSERT_TRUE(ranks.says(0, "ready"));
  ranks.go(0);
  const std::string text = "lost rank 0: rank 0 aborted; the communicator of 3 ranks is unusable";
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(ranks.says(rank, text, kSoon)) << rank;
  for (int rank = 0; rank < 3; ++rank) output_of(ranks, rank);
}

TEST(WatchdogTest, AMessageWithoutAReceiverIsATimeout) {
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"unreceived"}, kDeadline);
  ASSERT_TRUE(ranks.says(0, "timeout: "));
  const std::string text =
      "timeout: collective: rank 0 waited 6 s, but rank(s) 1 did not enter the operation #1 send "
      "f32[8388608] to 1";
  ranks.go(1);
  EXPECT_EQ(count_of(output_of(ranks, 0), text), 2);
  EXPECT_EQ(count_of(output_of(ranks, 1), text), 1);
}

TEST(WatchdogTest, AReplayedMessageWithoutAReceiverIsATimeout) {
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"unreceived_again"}, kDeadline);
  const bool is_told = ranks.says(0, "timeout: collective: rank 0 waited 6 s");
  EXPECT_TRUE(is_told);
  ranks.go(1);
  if (is_told) output_of(ranks, 0);
  output_of(ranks, 1);
}

// The sender of a small message has gone on by then; the sender of a large one waits.
TEST(WatchdogTest, MessagesThatDifferAreAnErrorAtBothEndsAndBreakTheGroup) {
  for (const int length : {5, 8 << 20}) {
    const FlightFolder folder;
    RankProcesses ranks(
        RankCommand{.ranks = 3,
                    .argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/caller_actor", "sum",
                             fmt::format("0:send{}", length), "1:recv4", "sum"}});
    const std::string text = fmt::format(
        "mismatch: message #1: expected a recv of what is sent, but rank 0 called send f32[{}] to "
        "1 and rank 1 called recv f32[4] from 0\n",
        length);
    for (int rank = 0; rank < 3; ++rank) {
      const Outcome outcome = ranks[rank].wait();
      EXPECT_TRUE(outcome.out.ends_with(text)) << rank << outcome.describe();
    }
  }
}

TEST(WatchdogTest, MismatchedMessagesBetweenHostsAreAnErrorAtBothEndsAndTheGroupStaysIntact) {
  for (const int length : {5, 8 << 20}) {
    const FlightFolder folder;
    RankProcesses ranks(
        RankCommand{.ranks = 3,
                    .argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/caller_actor", "sum",
                             fmt::format("0:send{}", length), "1:recv4", "sum", "sum"},
                    .environment = {{"GANTRY_P2P", "off"}}});
    const std::string text = fmt::format(
        "mismatch: message #1: expected a recv of what is sent, but rank 0 called send f32[{}] to "
        "1 and rank 1 called recv f32[4] from 0\n",
        length);
    for (int rank = 0; rank < 3; ++rank) {
      const std::string output = ranks[rank].wait().out;
      EXPECT_EQ(count_of(output, text), rank < 2 ? 1 : 0) << rank << output;
      EXPECT_TRUE(output.ends_with("did sum\n")) << rank << output;
    }
  }
}

// As daemons do. A closed descriptor gives no information about its process.
TEST(WatchdogTest, AProgramThatClosesAllDescriptorsLosesNoRank) {
  const FlightFolder folder;
  RankProcesses ranks(RankCommand{.ranks = 3,
                                  .argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/caller_actor",
                                           "sum", "1:close-files", "await", "sum"}});
  ASSERT_TRUE(ranks.says(1, "did close-files"));
  for (const int rank : {0, 2}) ASSERT_TRUE(ranks.says(rank, "did sum"));
  await_looks({0, 1, 2}, 4);
  for (int rank = 0; rank < 3; ++rank) ranks.go(rank);
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome outcome = ranks[rank].wait();
    EXPECT_EQ(outcome.exit_code, 0) << rank << outcome.describe();
    EXPECT_EQ(count_of(outcome.out, "did sum"), 2) << rank << outcome.describe();
  }
}

TEST(WatchdogTest, AForkedChildEndsWhateverItsParentsThreadsDoAndLeavesNoGroup) {
  for (const char* algorithm : {"auto", "host"}) {
    const FlightFolder folder;
    // The child leaves to the system what belongs to threads that it does not have.
    RankProcesses ranks =
        start(2, {"fork"}, {{"GANTRY_COLL_ALGO", algorithm}, {"ASAN_OPTIONS", "detect_leaks=0"}});
    EXPECT_TRUE(ranks.says(0, "child ")) << algorithm;
    EXPECT_THAT(output_of(ranks, 1), HasSubstr("went on")) << algorithm;
    const Outcome outcome = ranks[0].wait();
    EXPECT_THAT(outcome.out, HasSubstr("child ended\nwent on")) << algorithm << outcome.describe();
  }
}

TEST(WatchdogTest, TheFlightFileTellsTheDeviceAndTheMemoryThatARankUses) {
  constexpr std::int64_t kHeld = 64 << 20;
  const FlightFolder folder;
  RankProcesses ranks = start(2, {"memory"});
  for (const int rank : {0, 1}) ASSERT_TRUE(ranks.says(rank, "holds")) << rank;
  const auto bytes = [](std::atomic<std::int64_t> flight::Rank::*member) {
    const auto file = flight::OpenFile::open(flight::list_files().at(0));
    return file ? (file->view().rank(0).*member).load() : -1;
  };
  const auto uuid = [](int rank) {
    const auto file = flight::OpenFile::open(flight::list_files().at(0));
    return file ? escaped_field(file->view().rank(rank).uuid) : "";
  };
  EXPECT_TRUE(eventually([&] { return bytes(&flight::Rank::allocated_bytes) >= kHeld; }));
  EXPECT_GE(bytes(&flight::Rank::reserved_bytes), bytes(&flight::Rank::allocated_bytes));
  EXPECT_EQ(uuid(0), "GPU-51a051a0-0000-4000-8000-000000000000");
  EXPECT_EQ(uuid(1), "GPU-51a051a0-0000-4000-8000-000000000001");
  ranks.go(0);
  ASSERT_TRUE(ranks.says(0, "freed"));
  EXPECT_TRUE(eventually([&] { return bytes(&flight::Rank::allocated_bytes) < kHeld; }));
  ranks.go(1);
  ASSERT_TRUE(ranks.says(1, "freed"));
  for (const int rank : {0, 1}) ranks.go(rank);
  for (const int rank : {0, 1}) EXPECT_EQ(ranks[rank].wait().exit_code, 0);
}

TEST(WatchdogTest, ADeathBreaksEveryGroupOfTheRankAndNoOther) {
  const FlightFolder folder;
  RankProcesses ranks = start(4, {"groups"});
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(ranks.says(rank, "ready")) << rank;
  ranks.kill(3);
  ranks[3].wait();
  const std::string of_world = "lost rank 3: rank 3 died; the communicator of 4 ranks is unusable";
  const std::string of_part = "lost rank 1: rank 1 died; the communicator of 2 ranks is unusable";
  // Both members of the group without it must call.
  for (const int rank : {0, 1, 2}) ranks.go(rank);
  for (const int rank : {0, 1, 2}) {
    const std::string output = ranks[rank].wait().out;
    EXPECT_THAT(output, HasSubstr(of_world)) << rank;
    EXPECT_THAT(output, HasSubstr(rank == 1 ? of_part : "no error")) << rank;
  }
}

// One rank is killed at a chosen signal, in whatever it does by then; all others must hear of it,
// and then go on without it.
// Hosts that hear of a loss in different calls have begun to make different numbers of groups.
TEST(WatchdogTest, SurvivorsOnSeveralHostsGoOnWhateverTheyWereCalling) {
  const std::string command = "GANTRY_BOOT_ID=host-$RANK exec " GANTRY_TEST_PROGRAM_DIR
                              "/caller_actor sum 2:await 2:die 0:lose-split 1:lose-sum 01:shrink2";
  RankProcesses ranks(RankCommand{.ranks = 3, .argv = {"sh", "-c", command}});
  // A rank that dies after its own sum may be missed in the sum of another.
  for (const int rank : {0, 1, 2}) ASSERT_TRUE(ranks.says(rank, "did sum")) << rank;
  ranks.go(2);
  for (const int rank : {0, 1}) {
    const Outcome outcome = ranks[rank].wait();
    EXPECT_EQ(outcome.exit_code, 0) << rank << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("did shrink2"));
  }
}

TEST(WatchdogTest, SurvivorsGoOnWhereverARankWasKilled) {
  struct Kind {
    const char* operation;
    const char* algorithm;
  };
  const Kind kinds[] = {{"all_reduce", "ll"},       {"all_reduce", "one_shot"},
                        {"all_reduce", "ll128"},    {"all_reduce", "ll128_two_shot"},
                        {"all_reduce", "two_shot"}, {"all_gather", "auto"},
                        {"messages", "auto"},       {"all_reduce", "copy"},
                        {"all_gather", "copy"},     {"all_reduce", "zero_copy"},
                        {"rooted", "two_shot"},     {"rooted", "copy"}};
  const std::int64_t rounds =
      env::get_int("GANTRY_TEST_ROUNDS", 1, 1'000'000).value_or(is_scheduled() ? 13 : 40);
  std::mt19937 random(
      static_cast<unsigned>(env::get_int("GANTRY_TEST_SEED", 0, 1 << 30).value_or(20)));
  for (std::int64_t round = 0; round < rounds; ++round) {
    const Kind& kind = kinds[static_cast<std::size_t>(round) % std::size(kinds)];
    const int dying = static_cast<int>(random() % 3);
    // Every step of the first operation, and some of later ones: from 1 to 4,000.
    const double most = is_scheduled() ? 3.0 : 8.3;
    const auto point = std::int64_t(std::exp(std::uniform_real_distribution(0.0, most)(random)));
    const std::int64_t lengths[] = {1, 100, 5000, 40'000};
    const std::int64_t length = lengths[random() % std::size(lengths)];
    const std::string what =
        fmt::format("round {}: {} {} of {} elements, rank {} at point {}", round, kind.operation,
                    kind.algorithm, length, dying, point);
    const std::string algorithm = kind.algorithm;
    const bool is_registered = algorithm == "copy" || algorithm == "zero_copy";
    const FlightFolder folder;
    RankProcesses ranks =
        start(3,
              {"step", kind.operation, std::to_string(dying), std::to_string(point),
               std::to_string(length), is_registered ? "registered" : ""},
              {{"GANTRY_COLL_ALGO", kind.algorithm}});
    for (int rank = 0; rank < 3; ++rank) {
      const Outcome outcome = ranks[rank].wait();
      if (rank == dying) {
        EXPECT_EQ(outcome.signal, SIGKILL) << what << outcome.describe();
      } else {
        EXPECT_THAT(outcome.out, HasSubstr("survived"))
            << what << " on " << rank << outcome.describe();
        EXPECT_EQ(outcome.exit_code, 0) << what << " on " << rank << outcome.describe();
      }
    }
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace gantry
