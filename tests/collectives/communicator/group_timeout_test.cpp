// Deadlines of groups, of calls, and of waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::CollectiveSuite;
using testing::expect_throws;
using ::testing::HasSubstr;
using testing::rank_threads;
using testing::StreamHold;

constexpr milliseconds kShort(300);
constexpr seconds kLong(100);

class GroupTimeoutTest : public testing::LocalGroupTest {
 protected:
  void TearDown() override {
    unsetenv("GANTRY_COLL_TIMEOUT");
    LocalGroupTest::TearDown();
  }

  // Rank 0 runs `first`. Rank 1 makes no call until then, and runs `second` afterwards.
  static void while_rank_1_is_absent(
      const char* algorithm, const std::function<void(const Communicator&)>& first,
      const std::function<void(const Communicator&)>& second = [](const Communicator&) {}) {
    setenv("GANTRY_COLL_ALGO", algorithm, 1);
    std::latch done(1);
    on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
      if (group.rank() == 0) {
        const std::shared_ptr<void> end(nullptr, [&](void*) { done.count_down(); });
        return first(group);
      }
      done.wait();
      second(group);
    });
  }
  static Tensor ones_on(const Communicator& group) {
    return ones({100}, {.device = group.device()});
  }
};

TEST_F(GroupTimeoutTest, AGroupBeginsWithTheVariableAndPassesItsOwnOn) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "77", 1);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    EXPECT_EQ(group.timeout(), seconds(77));
    group.set_timeout(milliseconds(1234));
    EXPECT_EQ(group.timeout(), milliseconds(1234));
    group.set_timeout(kLong);
    const Communicator pair = group.split(0);
    EXPECT_EQ(pair.timeout(), kLong);
    pair.set_timeout(seconds(50));
    EXPECT_EQ(group.timeout(), kLong);
    EXPECT_EQ(pair.timeout(), seconds(50));
    const Communicator copy = pair;
    copy.set_timeout(seconds(60));
    EXPECT_EQ(pair.timeout(), seconds(60));
    group.host_barrier();
  });
}

TEST_F(GroupTimeoutTest, TheGroupsTimeoutEndsAnOperation) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const char* algorithm : {"auto", "host"}) {
    while_rank_1_is_absent(
        algorithm,
        [](const Communicator& group) {
          group.set_timeout(kShort);
          expect_throws<TimeoutError>([&] { group.all_reduce(ones_on(group)).synchronize(); },
                                      std::string("but rank(s) 1 did not enter the operation"));
          expect_throws<TimeoutError>([&] { group.all_reduce(ones_on(group)); },
                                      "the group's timeout sets the deadline");
        },
        [](const Communicator& group) {
          expect_throws<TimeoutError>([&] { group.all_reduce(ones_on(group)).synchronize(); },
                                      "rank(s) 1");
        });
  }
}

TEST_F(GroupTimeoutTest, ItHoldsForAnOperationThatRunsAlready) {
  GANTRY_REQUIRE_DEVICES(2);
  while_rank_1_is_absent("auto", [](const Communicator& group) {
    const Work work = group.all_reduce(ones_on(group));
    EXPECT_FALSE(work.wait_for(milliseconds(1)));
    group.set_timeout(kShort);
    expect_throws<TimeoutError>([&] { work.synchronize(); }, "rank 0 waited 300 ms, but rank(s) 1");
  });
}

TEST_F(GroupTimeoutTest, ItHoldsForHostCalls) {
  GANTRY_REQUIRE_DEVICES(2);
  while_rank_1_is_absent("auto", [](const Communicator& group) {
    group.set_timeout(kShort);
    expect_throws<TimeoutError>([&] { group.host_barrier(); },
                                "host_barrier: rank 0 waited 300 ms, but rank(s) 1 did not come "
                                "(the group's timeout sets the deadline)");
  });
}

TEST_F(GroupTimeoutTest, ACallsTimeoutEndsIt) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const char* algorithm : {"auto", "host"}) {
    while_rank_1_is_absent(algorithm, [](const Communicator& group) {
      expect_throws<TimeoutError>(
          [&] { group.all_reduce(ones_on(group), {.timeout = kShort}).synchronize(); },
          "the call's timeout sets the deadline");
      EXPECT_EQ(group.timeout(), seconds(600));
    });
    while_rank_1_is_absent(algorithm, [](const Communicator& group) {
      expect_throws<TimeoutError>(
          [&] { group.recv(ones_on(group), 1, {.timeout = kShort}).synchronize(); }, "rank(s) 1");
    });
  }
}

TEST_F(GroupTimeoutTest, ACallsTimeoutMayBeLongerThanTheGroups) {
  GANTRY_REQUIRE_DEVICES(2);
  while_rank_1_is_absent(
      "auto",
      [](const Communicator& group) {
        group.set_timeout(milliseconds(100));
        const Work work = group.all_reduce(ones_on(group), {.timeout = kLong});
        EXPECT_FALSE(work.wait_for(milliseconds(700)));
      },
      [](const Communicator& group) {
        const Tensor tensor = ones_on(group);
        group.all_reduce(tensor).synchronize();
        EXPECT_EQ(tensor.amax().item<float>(), 2);
      });
}

TEST_F(GroupTimeoutTest, AWaitEndsWithoutAnErrorAndTheGroupGoesOn) {
  GANTRY_REQUIRE_DEVICES(2);
  std::atomic<bool> has_waited{false};
  on_ranks(2, [&](CollectiveSuite& suite, Communicator& group) {
    const Tensor tensor = ones_on(group);
    const Stream stream = Stream::current(group.device());
    std::unique_ptr<StreamHold> hold;
    if (group.rank() == 1) hold = std::make_unique<StreamHold>(stream);
    const Work work = group.all_reduce(tensor);
    if (group.rank() == 0) {
      EXPECT_FALSE(work.wait_for(milliseconds(0)));
      EXPECT_FALSE(work.wait_for(milliseconds(-5)));
      EXPECT_FALSE(work.wait_for(milliseconds(30)));
      has_waited = true;
    } else {
      while (!has_waited) std::this_thread::yield();
      hold.reset();
    }
    EXPECT_TRUE(work.wait_for(kLong));
    EXPECT_TRUE(work.wait_for(milliseconds::max()));
    EXPECT_EQ(tensor.amax().item<float>(), 2);
    suite.all_reduce(ReduceOp::sum, f32, 50);
  });
  EXPECT_TRUE(Work().wait_for(milliseconds(0)));
}

TEST_F(GroupTimeoutTest, AWaitThrowsTheErrorOfItsOperation) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Work work = group.all_reduce(zeros({1 + group.rank()}, {.device = group.device()}));
    expect_throws<CollectiveMismatch>([&] { (void)work.wait_for(kLong); },
                                      "expected the same call");
  });
}

TEST_F(GroupTimeoutTest, RanksThatConnectHaveTheirOwnDeadline) {
  const std::string address = "unix:@gantry-timeout-" + std::to_string(getpid());
  expect_throws<TimeoutError>(
      [&] {
        (void)Communicator::connect(
            {.address = address, .rank = 0, .size = 2, .timeout = milliseconds(400)});
      },
      "Communicator::connect: rank 0 waited 400 ms, but rank(s) 1 did not come "
      "(ConnectOptions::timeout sets the deadline)");
  expect_throws<InvalidArgument>(
      [&] {
        (void)Communicator::connect(
            {.address = address, .rank = 0, .size = 2, .timeout = milliseconds(-1)});
      },
      "expected a timeout of 0 or more, but got -1 ms");
  GANTRY_REQUIRE_DEVICES(2);
  rank_threads(2, [&](int rank) {
    const Communicator group = Communicator::connect({.address = address + "-2",
                                                      .rank = rank,
                                                      .size = 2,
                                                      .device = Device::cuda(rank),
                                                      .timeout = kLong});
    EXPECT_EQ(group.timeout(), kLong);
    group.host_barrier();
  });
}

TEST_F(GroupTimeoutTest, WrongTimeoutsAreRefused) {
  GANTRY_REQUIRE_DEVICES(1);
  const Communicator alone = Communicator::local({Device::cuda(0)}).front();
  expect_throws<InvalidArgument>([&] { alone.set_timeout(milliseconds(0)); },
                                 "set_timeout: expected a positive timeout, but got 0 ms");
  expect_throws<InvalidArgument>([&] { alone.set_timeout(milliseconds(-3)); }, "but got -3 ms");
  expect_throws<InvalidArgument>(
      [&] { alone.all_reduce(ones_on(alone), {.timeout = milliseconds(-1)}); },
      "all_reduce: expected a timeout of 0 or more, but got -1 ms");
  EXPECT_GT(alone.timeout().count(), 0);
}

}  // namespace
}  // namespace gantry
