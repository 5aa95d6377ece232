// Elastic groups without a launcher: processes are killed, and started again by a supervisor.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "job/elastic_job.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using testing::Command;
using testing::FlightFolder;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::Subprocess;

using Steps = std::vector<std::string>;
using Variables = std::map<std::string, std::optional<std::string>>;

const std::string kToken = "0123456789abcdef0123456789abcdef";

class RejoinTest : public testing::DeviceTest {
 protected:
  static constexpr int kRanks = 3;

  RejoinTest() : address_(fmt::format("unix:@gantry-rejoin-{}-{}", getpid(), ++jobs_)) {}

  // Lets the test serve the store, so that any rank may be lost.
  void serve() { server_ = std::make_unique<StoreServer>(StoreServerOptions{.address = address_}); }

  // Starts a process as a supervisor does: every time with the same arguments.
  Subprocess start(int rank, Steps steps, Variables variables = {}) const {
    steps.insert(steps.begin(), std::string(GANTRY_TEST_PROGRAM_DIR) + "/rejoin_actor");
    variables.emplace("ADDRESS", address_);
    variables.emplace("RANK", std::to_string(rank));
    variables.emplace("GANTRY_COLL_TIMEOUT", "100");
    return Subprocess(Command{.argv = std::move(steps),
                              .environment = std::move(variables),
                              .timeout = std::chrono::seconds(200)});
  }
  std::vector<Subprocess> start_all(const Steps& steps, const Variables& variables = {}) const {
    std::vector<Subprocess> ranks;
    for (int rank = 0; rank < kRanks; ++rank) ranks.push_back(start(rank, steps, variables));
    return ranks;
  }
  static void kill(Subprocess& process) {
    process.send_signal(SIGKILL);
    EXPECT_EQ(process.wait().signal, SIGKILL);
  }
  static void expect_said(Subprocess& process, const std::vector<std::string>& texts,
                          int code = 0) {
    const Outcome outcome = process.wait();
    EXPECT_EQ(outcome.exit_code, code) << outcome.describe();
    for (const std::string& text : texts) {
      EXPECT_THAT(outcome.out, HasSubstr(text)) << outcome.describe();
    }
  }
  static void await_arrivals(Store& store, std::size_t count) {
    while (arrivals(store).size() < count) std::this_thread::yield();
  }
  // Options of a process that joins from within the test.
  ConnectOptions options(int rank, milliseconds timeout) const {
    return {.address = address_,
            .rank = rank,
            .size = kRanks,
            .device = Device::cuda(0),
            .serves = false,
            .timeout = timeout,
            .elastic = true};
  }

  static inline int jobs_ = 0;
  const std::string address_;
  std::unique_ptr<StoreServer> server_;
  FlightFolder flights_;
};

const Steps kSurvive{"connect", "group", "lose", "shrink", "grow=60000", "group", "sum"};
const Steps kJoin{"connect", "group", "sum"};

TEST_F(RejoinTest, AProcessWithTheSameArgumentsTakesTheLostRank) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  auto ranks = start_all(kSurvive);
  ASSERT_TRUE(ranks[1].wait_for_output("rank 1 of 3 in connect\n"));
  kill(ranks[1]);
  Subprocess again = start(1, kJoin);
  expect_said(again, {"rank 1 of 3 in connect.grow1\n"});
  expect_said(ranks[0], {"lost 1\n", "grow: nothing\n", "rank 0 of 3 in connect.grow1\n"});
  expect_said(ranks[2], {"lost 1\n", "grow: nothing\n", "rank 2 of 3 in connect.grow1\n"});
}

TEST_F(RejoinTest, OverTcpTheSecretAdmitsTheProcess) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  const StoreServer server({.address = "tcp:127.0.0.1:0", .token = kToken});
  const Variables variables{{"ADDRESS", server.address()}, {"TOKEN", kToken}, {"NAME", "layers"}};
  auto ranks = start_all(kSurvive, variables);
  ASSERT_TRUE(ranks[0].wait_for_output("rank 0 of 3 in layers\n"));
  kill(ranks[0]);
  Variables wrong = variables;
  wrong["TOKEN"] = "fedcba9876543210fedcba9876543210";
  wrong["TIMEOUT"] = "300";
  Subprocess foe = start(0, kJoin, wrong);
  expect_said(foe,
              {"connect: TimeoutError: Communicator::connect: rank 0 waited 300 ms for the "
               "job's store at tcp:127.0.0.1:"},
              1);
  Subprocess again = start(0, kJoin, variables);
  expect_said(again, {"rank 0 of 3 in layers.grow1\n"});
  expect_said(ranks[1], {"grow: nothing\n", "rank 1 of 3 in layers.grow1\n"});
  expect_said(ranks[2], {"grow: nothing\n", "rank 2 of 3 in layers.grow1\n"});
}

TEST_F(RejoinTest, AProcessWithoutARankGetsTheFirstFreeOne) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  auto ranks = start_all({"connect", "group", "lose", "alone", "grow=60000", "group", "sum"});
  for (const int rank : {1, 2}) {
    ASSERT_TRUE(ranks[static_cast<std::size_t>(rank)].wait_for_output("in connect\n"));
  }
  kill(ranks[1]);
  kill(ranks[2]);
  Subprocess second = start(-1, kJoin, {{"DEVICE", "1"}});
  ASSERT_TRUE(ranks[0].wait_for_output("grows\n"));
  Subprocess third = start(-1, kJoin, {{"DEVICE", "2"}});
  expect_said(ranks[0], {"grow: nothing\n", "rank 0 of 3"});
  const std::string one = second.wait().out;
  const std::string other = third.wait().out;
  EXPECT_THAT(one + other, HasSubstr("rank 1 of 3"));
  EXPECT_THAT(one + other, HasSubstr("rank 2 of 3"));
}

// The store ends with rank 0, which serves it.
TEST_F(RejoinTest, AfterTheLossOfTheRankThatServesTheRestGoOnAndCannotGrow) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  auto ranks = start_all({"connect", "group", "lose", "shrink", "grow=60000", "sum", "group"});
  ASSERT_TRUE(ranks[0].wait_for_output("in connect\n"));
  kill(ranks[0]);
  for (const int rank : {1, 2}) {
    expect_said(
        ranks[static_cast<std::size_t>(rank)],
        {"grow: PeerLostError -1: grow: failed to reach the job's store at " + address_ +
             ": rank 0 of the job, which served it, is lost, and no process can join "
             "without it; end all ranks and start them again, or serve the store by another "
             "process\n",
         fmt::format("rank {} of 2 in connect.shrink1\n", rank - 1)});
  }
  // The same arguments begin a new job.
  auto again = start_all({"connect", "sum", "group"});
  for (Subprocess& rank : again) expect_said(rank, {"of 3 in connect\n"});
}

TEST_F(RejoinTest, AProcessThatWaitsNoticesTheEndOfTheStore) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  auto ranks = start_all({"connect", "group", "wait"});
  for (Subprocess& rank : ranks) ASSERT_TRUE(rank.wait_for_output("in connect\n"));
  kill(ranks[1]);
  StoreClient observer(address_, -1);
  Subprocess waiting = start(1, {"connect"});
  await_arrivals(observer, 1);
  kill(ranks[0]);
  expect_said(waiting,
              {"connect: PeerLostError -1: ", "the job's store at " + address_ + " is gone"}, 1);
}

TEST_F(RejoinTest, AfterTheEndOfAllProcessesNewOnesMakeTheGroupAgain) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  std::vector<Subprocess> ranks = start_all({"connect", "group", "train"});
  for (Subprocess& rank : ranks) ASSERT_TRUE(rank.wait_for_output("step 1\n"));
  for (Subprocess& rank : ranks) kill(rank);
  auto again = start_all({"connect", "group", "sum"});
  for (Subprocess& rank : again) expect_said(rank, {"of 3 in connect.grow1\n"});
  // These ended in order.
  auto third = start_all({"connect", "group", "sum"});
  for (Subprocess& rank : third) expect_said(rank, {"of 3 in connect.grow2\n"});
}

// Also one that never made a group: a process of its start died.
TEST_F(RejoinTest, AStartThatFailedIsRepeated) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  Subprocess dying = start(2, {"dies=4", "connect"});
  EXPECT_EQ(dying.wait().signal, SIGKILL);
  auto ranks = start_all({"connect", "group", "sum"});
  for (Subprocess& rank : ranks) expect_said(rank, {"of 3 in connect.grow1\n"});
}

TEST_F(RejoinTest, ProcessesWithoutRanksGetThemInTheOrderInWhichTheyCame) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  std::vector<Subprocess> ranks;
  for (const char* device : {"0", "1", "2"}) {
    ranks.push_back(start(-1, kJoin, {{"DEVICE", device}}));
  }
  std::string all;
  for (Subprocess& rank : ranks) all += rank.wait().out;
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(all, HasSubstr(fmt::format("rank {} of 3 in connect.grow1\n", rank)));
  }
}

// Nobody calls grow(), and later somebody does.
TEST_F(RejoinTest, AProcessThatNobodyTakesInSaysWhatItWaitedFor) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  auto ranks = start_all({"connect", "group", "lose", "shrink", "wait", "grow=60000", "group"});
  ASSERT_TRUE(ranks[1].wait_for_output("in connect\n"));
  const std::string place = " at " + address_ + " to replace a lost rank, but ";
  EXPECT_ERROR(Communicator::connect(options(1, milliseconds(300))), TimeoutError,
               "Communicator::connect: rank 1 waited 300 ms" + place +
                   "another process of the job is rank 1 and runs");
  kill(ranks[1]);
  ASSERT_TRUE(ranks[0].wait_for_output("lost 1\n"));
  EXPECT_ERROR(
      Communicator::connect(options(1, milliseconds(300))), TimeoutError,
      "Communicator::connect: rank 1 waited 300 ms" + place + "no group of the job called grow()");
  EXPECT_ERROR(Communicator::connect(options(-1, milliseconds(300))), TimeoutError,
               "Communicator::connect: a process without a rank waited 300 ms" + place);
  Subprocess again = start(1, {"connect", "group"});
  for (const int rank : {0, 2}) ranks[static_cast<std::size_t>(rank)].send_signal(SIGUSR1);
  expect_said(again, {"rank 1 of 3 in connect.grow1\n"});
  for (const int rank : {0, 2}) {
    expect_said(ranks[static_cast<std::size_t>(rank)], {"grow: nothing\n"});
  }
}

TEST_F(RejoinTest, TheTimeoutOfGrowLeavesTheGroupAsItWas) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  auto ranks = start_all({"connect", "group", "lose", "shrink", "grow=200", "sum", "wait",
                          "grow=60000", "group", "sum"});
  ASSERT_TRUE(ranks[1].wait_for_output("in connect\n"));
  kill(ranks[1]);
  for (const int rank : {0, 2}) {
    Subprocess& survivor = ranks[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(survivor.wait_for_output(
        "grow: TimeoutError: grow: expected 3 ranks within 200 ms, but got 2: rank(s) 1 of the job "
        "did not come\n"));
    survivor.send_signal(SIGUSR1);
  }
  Subprocess again = start(1, kJoin);
  expect_said(again, {"rank 1 of 3 in connect.grow1\n"});
  for (const int rank : {0, 2}) {
    expect_said(ranks[static_cast<std::size_t>(rank)], {"of 3 in connect.grow1\n"});
  }
}

TEST_F(RejoinTest, OfTwoProcessesWithOneRankTheFirstJoins) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  auto ranks = start_all(
      {"connect", "group", "lose", "shrink", "wait", "grow=60000", "group", "wait", "sum"});
  ASSERT_TRUE(ranks[1].wait_for_output("in connect\n"));
  kill(ranks[1]);
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(ranks[static_cast<std::size_t>(rank)].wait_for_output("lost 1\n"));
  }
  StoreClient observer(address_, -1);
  Subprocess dies = start(1, {"connect", "group"});
  await_arrivals(observer, 1);
  Subprocess joins = start(1, {"connect", "group", "wait", "sum"});
  await_arrivals(observer, 2);
  EXPECT_ERROR(Communicator::connect(options(1, milliseconds(300))), TimeoutError,
               "but another process that came before waits to be rank 1");
  Subprocess late = start(1, {"connect"}, {{"TIMEOUT", "3000"}});
  await_arrivals(observer, 4);
  kill(dies);
  for (const int rank : {0, 2}) ranks[static_cast<std::size_t>(rank)].send_signal(SIGUSR1);
  ASSERT_TRUE(joins.wait_for_output("rank 1 of 3 in connect.grow1\n"));
  expect_said(late, {"TimeoutError", "but another process of the job is rank 1 and runs"}, 1);
  joins.send_signal(SIGUSR1);
  for (const int rank : {0, 2}) ranks[static_cast<std::size_t>(rank)].send_signal(SIGUSR1);
  expect_said(joins, {"end\n"});
  for (const int rank : {0, 2}) {
    expect_said(ranks[static_cast<std::size_t>(rank)], {"of 3 in connect.grow1\n", "end\n"});
  }
}

// At every message that it sends to the store.
TEST_F(RejoinTest, AProcessThatDiesWhileItJoinsLeavesTheOthersWaiting) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  auto ranks = start_all({"connect", "group", "lose", "shrink", "grow=60000", "group", "sum"});
  ASSERT_TRUE(ranks[1].wait_for_output("in connect\n"));
  kill(ranks[1]);
  for (const int rank : {0, 2}) {
    ASSERT_TRUE(ranks[static_cast<std::size_t>(rank)].wait_for_output("grows\n"));
  }
  for (int messages = 0; messages < 24; messages += 2) {
    Subprocess dying = start(1, {fmt::format("dies={}", messages), "connect"});
    ASSERT_EQ(dying.wait().signal, SIGKILL) << messages;
  }
  Subprocess joins = start(1, kJoin);
  expect_said(joins, {"rank 1 of 3"});
  for (const int rank : {0, 2}) {
    expect_said(ranks[static_cast<std::size_t>(rank)], {"grow: nothing\n", "of 3"});
  }
}

// The others gave it up, and another process has its rank when it goes on.
TEST_F(RejoinTest, AProcessThatWasStoppedAndReplacedCannotGrow) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  auto ranks = start_all({"connect", "group", "wait", "lose", "alone", "grow=60000", "sum"},
                         {{"TIMEOUT", "2000"}});
  for (Subprocess& rank : ranks) ASSERT_TRUE(rank.wait_for_output("in connect\n"));
  ranks[1].send_signal(SIGSTOP);
  ranks[0].send_signal(SIGUSR1);
  ranks[2].send_signal(SIGKILL);
  ASSERT_TRUE(ranks[0].wait_for_output("grows\n"));
  Subprocess first = start(1, {"connect", "group", "sum"});
  Subprocess second = start(2, {"connect", "group", "sum"});
  expect_said(ranks[0], {"grow: nothing\n"});
  expect_said(first, {"rank 1 of 3 in connect.grow1\n"});
  expect_said(second, {"rank 2 of 3 in connect.grow1\n"});
  ranks[1].send_signal(SIGUSR1);
  ranks[1].send_signal(SIGCONT);
  expect_said(ranks[1],
              {"grow: PeerLostError -1: grow: expected the newest process of rank 1 of the "
               "job, but got one that was replaced; end it\n"});
}

TEST_F(RejoinTest, OtherArgumentsAreRefused) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  auto ranks = start_all({"connect", "group", "lose"}, {{"NAME", "layers"}});
  ASSERT_TRUE(ranks[1].wait_for_output("in layers\n"));
  kill(ranks[1]);
  const std::string job = "Communicator::connect: expected the job at " + address_;
  ConnectOptions other = options(1, milliseconds(60'000));
  EXPECT_ERROR(Communicator::connect(other), InvalidArgument,
               job + " to have 3 ranks and the name '', but it has 3 and 'layers'");
  other.name = "layers";
  other.size = 4;
  EXPECT_ERROR(Communicator::connect(other), InvalidArgument,
               job + " to have 4 ranks and the name 'layers', but it has 3 and 'layers'");
  other.size = 3;
  other.elastic = false;
  EXPECT_ERROR(Communicator::connect(other), PeerLostError,
               "Communicator::connect: rank 1 of the job at " + address_ +
                   " was lost before; only in an elastic group a process can take its place");
}

TEST_F(RejoinTest, AProcessOfAnotherVersionIsRefused) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  serve();
  auto ranks = start_all({"connect", "group", "lose", "shrink", "grow=60000", "sum"});
  ASSERT_TRUE(ranks[1].wait_for_output("in connect\n"));
  kill(ranks[1]);
  StoreClient old(address_, 100);
  announce_arrival(old, {1, 100, "gantry-0"});
  for (const int rank : {0, 2}) {
    expect_said(ranks[static_cast<std::size_t>(rank)],
                {fmt::format("grow: InvalidArgument: grow: expected one version of gantry in a "
                             "group, but rank 0 of the job has {} and rank 1 has gantry-0\n",
                             kGroupVersion)});
  }
}

TEST_F(RejoinTest, AllRanksOrNoneAreElastic) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  Subprocess zero = start(0, {"connect"}, {{"SIZE", "2"}});
  Subprocess one = start(1, {"connect"}, {{"SIZE", "2"}, {"ELASTIC", "no"}});
  for (Subprocess* rank : {&zero, &one}) {
    expect_said(*rank,
                {"connect: InvalidArgument: Communicator::connect: expected all ranks or none to "
                 "set ConnectOptions::elastic, but rank 0 sets it and rank 1 does not\n"},
                1);
  }
  const auto refusal = [](const ConnectOptions& wrong) { (void)Communicator::connect(wrong); };
  EXPECT_ERROR(refusal({.address = "unix:@x", .rank = -2, .size = 2, .elastic = true}),
               InvalidArgument, "expected a rank from -1 to size - 1, but got rank -2 of 2");
  EXPECT_ERROR(refusal({.address = "unix:@x", .size = 1, .elastic = true}), InvalidArgument,
               "expected at least 2 ranks in an elastic group, but got a size of 1");
}

// As torchrun and others tell ranks.
TEST_F(RejoinTest, VariablesMakeTheWorldElastic) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  const auto begin = [&](int rank, Steps steps) {
    steps.insert(steps.begin(), "world");
    const std::string number = std::to_string(rank);
    return start(rank, std::move(steps),
                 {{"GANTRY_RDZV", address_},
                  {"RANK", number},
                  {"LOCAL_RANK", number},
                  {"WORLD_SIZE", "3"},
                  {"LOCAL_WORLD_SIZE", "3"},
                  {"GANTRY_ELASTIC", "1:3"}});
  };
  std::vector<Subprocess> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(begin(rank, {"group", "lose", "shrink", "grow=60000", "group", "sum"}));
  }
  ASSERT_TRUE(ranks[2].wait_for_output("in world\n"));
  kill(ranks[2]);
  Subprocess again = begin(2, {"group", "sum"});
  expect_said(again, {"rank 2 of 3 in world.grow1\n"});
  for (const int rank : {0, 1}) {
    expect_said(ranks[static_cast<std::size_t>(rank)], {"of 3 in world.grow1\n"});
  }
  Subprocess without = start(
      0, {"world"}, {{"GANTRY_RANK", "0"}, {"GANTRY_WORLD_SIZE", "3"}, {"GANTRY_ELASTIC", "1:3"}});
  expect_said(without,
              {"world: NotSupported: GANTRY_ELASTIC: expected a job whose ranks meet at an "
               "address, but got one of environment; set GANTRY_RDZV\n"},
              1);
}

// Some die while they join, or leave at once. The test serves the store, so any rank may be lost.
TEST_F(RejoinTest, TwentyRoundsOfKillAndRejoin) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  const auto rounds = env::get_int("GANTRY_TEST_ROUNDS", 1, 100'000).value_or(20);
  const auto seed = env::get_int("GANTRY_TEST_SEED", 0, INT64_MAX).value_or(1);
  std::mt19937 draw(static_cast<unsigned>(seed));
  serve();
  const Steps train{"connect", "group", "train"};
  std::map<int, std::unique_ptr<Subprocess>> ranks;
  const auto begin = [&](int rank) {
    ranks[rank] = std::make_unique<Subprocess>(start(rank, train));
  };
  for (int rank = 0; rank < kRanks; ++rank) begin(rank);
  for (const auto& [rank, process] : ranks) ASSERT_TRUE(process->wait_for_output("step 1\n"));
  int deaths = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto rank = static_cast<int>(draw() % kRanks);
    kill(*ranks[rank]);
    for (; draw() % 4 == 0; ++deaths) {
      Subprocess dying = start(rank, {fmt::format("dies={}", draw() % 40), "connect"});
      const Outcome outcome = dying.wait();
      ASSERT_TRUE(outcome.signal == SIGKILL || outcome.out == "end\n")
          << round << outcome.describe();
    }
    begin(rank);
    if (ranks[rank]->wait_for_output("step ", std::chrono::seconds(60))) continue;
    for (auto& [other, process] : ranks) {
      process->send_signal(SIGABRT);
      ADD_FAILURE() << "round " << round << " rank " << other << process->wait().describe();
    }
    FAIL() << deaths;
  }
  EXPECT_TRUE(deaths > 0 || rounds < 10);
  ranks[0]->send_signal(SIGUSR1);
  for (const auto& [rank, process] : ranks) expect_said(*process, {"end\n"});
}

}  // namespace
}  // namespace gantry
