// Groups of callers that know an address and their ranks, and the errors that groups tell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/store.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;

const std::string kToken = "0123456789abcdef0123456789abcdef";

int ranks() { return std::min(device_count(), 3); }

std::string own_address() {
  static int number = 0;
  return "unix:@gantry-connect-" + std::to_string(getpid()) + "-" + std::to_string(++number);
}

std::string text_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return {};
}

template <class Exception>
std::string thrown_by(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& caught) {
    return caught.what();
  }
  return "nothing was thrown";
}

class Connect : public ::testing::Test {
 protected:
  void SetUp() override { setenv("GANTRY_COLL_TIMEOUT", "20", 1); }
  void TearDown() override { unsetenv("GANTRY_COLL_TIMEOUT"); }
};

void add_up(const Communicator& group) {
  const Tensor sum = full({5}, group.rank() + 1, {.dtype = DType::i64, .device = group.device()});
  group.all_reduce(sum).synchronize();
  const std::int64_t expected = group.size() * (group.size() + 1) / 2;
  if (sum.to_vector<std::int64_t>() != std::vector<std::int64_t>(5, expected)) {
    throw std::runtime_error("the sum is wrong");
  }
}

TEST_F(Connect, RanksMeetAtAnAddressOfTheMachine) {
  const std::string address = own_address();
  testing::rank_threads(ranks(), [&](int rank) {
    const Communicator group = Communicator::connect(
        {.address = address, .rank = rank, .size = ranks(), .device = Device::cuda(rank)});
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.size(), ranks());
    EXPECT_EQ(group.local_rank(), rank);
    EXPECT_EQ(group.local_size(), ranks());
    EXPECT_EQ(group.device(), Device::cuda(rank));
    EXPECT_EQ(current_device(), Device::cuda(rank));
    EXPECT_EQ(group.launched_by(), "connect");
    add_up(group);
  });
}

TEST_F(Connect, AnElasticGroupMeetsInTheSameWay) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::string address = own_address();
  testing::rank_threads(ranks(), [&](int rank) {
    const Communicator group = Communicator::connect({.address = address,
                                                      .rank = rank,
                                                      .size = ranks(),
                                                      .device = Device::cuda(rank),
                                                      .name = "workers",
                                                      .elastic = true});
    EXPECT_EQ(group.rank(), rank);
    EXPECT_EQ(group.name(), "workers");
    EXPECT_EQ(group.local_size(), ranks());
    add_up(group);
    EXPECT_THAT(thrown_by<InvalidArgument>([&] { (void)group.grow(ranks()); }),
                HasSubstr("and at most the " + std::to_string(ranks()) + " of the job"));
    add_up(group);
  });
}

TEST_F(Connect, AServerOfTheProgramServes) {
  const auto server = std::make_shared<StoreServer>(
      StoreServerOptions{.address = "tcp:127.0.0.1:0", .token = kToken});
  const std::string address = server->address();
  std::weak_ptr<StoreServer> kept = server;
  {
    auto given = server;
    testing::rank_threads(ranks(), [&](int rank) {
      ConnectOptions options{.address = address,
                             .rank = rank,
                             .size = ranks(),
                             .token = kToken,
                             .device = Device::cuda(rank)};
      if (rank == 0) options.server = given;
      add_up(Communicator::connect(options));
    });
  }
  EXPECT_EQ(kept.use_count(), 1);  // the group gave it back
}

TEST_F(Connect, AServerElsewhereServesEveryRank) {
  const StoreServer server({.address = own_address(), .token = {}});
  testing::rank_threads(ranks(), [&](int rank) {
    add_up(Communicator::connect({.address = server.address(),
                                  .rank = rank,
                                  .size = ranks(),
                                  .device = Device::cuda(rank),
                                  .serves = false}));
  });
}

TEST_F(Connect, OneRankNeedsNoAddress) {
  const Communicator alone = Communicator::connect({.address = {}});
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.device(), current_device());
  add_up(alone);
}

TEST_F(Connect, WrongArgumentsAreRefused) {
  const auto refusal = [](const ConnectOptions& options) {
    return thrown_by<InvalidArgument>([&] { (void)Communicator::connect(options); });
  };
  EXPECT_THAT(refusal({.address = "unix:@x", .rank = 2, .size = 2}),
              HasSubstr("connect: expected a rank from 0 to size - 1, but got rank 2 of 2"));
  EXPECT_THAT(refusal({.address = "unix:@x", .rank = -1, .size = 2}), HasSubstr("rank -1 of 2"));
  EXPECT_THAT(refusal({.address = "unix:@x", .rank = 0, .size = 0}), HasSubstr("rank 0 of 0"));
  EXPECT_THAT(refusal({.address = {}, .rank = 0, .size = 2}),
              HasSubstr("connect: expected an address where 2 ranks meet"));
  EXPECT_THAT(refusal({.address = "unix:@x", .device = Device::cpu()}),
              HasSubstr("connect: expected a device, but got cpu"));
  EXPECT_THAT(refusal({.address = "tcp:127.0.0.1:1", .rank = 0, .size = 2}), HasSubstr("TOKEN"));
}

TEST_F(Connect, AnAbsentRankIsNamed) {
  setenv("GANTRY_COLL_TIMEOUT", "1", 1);
  const std::string text = thrown_by<TimeoutError>(
      [] { (void)Communicator::connect({.address = own_address(), .rank = 0, .size = 2}); });
  EXPECT_THAT(text, HasSubstr("Communicator::connect: rank 0 waited 1 s, but rank(s) 1 did not"));
  const std::string other = thrown_by<TimeoutError>(
      [] { (void)Communicator::connect({.address = own_address(), .rank = 1, .size = 2}); });
  EXPECT_THAT(other, HasSubstr("Communicator::connect: rank 1 waited 1 s, but rank(s) 0"));
}

TEST_F(Connect, OtherSizesAreAnErrorOnEveryRank) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::string address = own_address();
  testing::rank_threads(2, [&](int rank) {
    const std::string text = thrown_by<InvalidArgument>([&] {
      (void)Communicator::connect(
          {.address = address, .rank = rank, .size = 2 + rank, .device = Device::cuda(rank)});
    });
    EXPECT_THAT(text,
                HasSubstr("expected one number of ranks on all of them, but got 2 on rank 0"));
  });
}

TEST_F(Connect, TheFailureOfAGroupIsToldAndStays) {
  GANTRY_REQUIRE_DEVICES(2);
  EXPECT_EQ(Communicator().failure(), nullptr);
  testing::rank_threads(2, [address = own_address()](int rank) {
    const Communicator group = Communicator::connect(
        {.address = address, .rank = rank, .size = 2, .device = Device::cuda(rank)});
    EXPECT_EQ(group.failure(), nullptr);
    const Tensor data = zeros({4 + rank}, {.device = group.device()});
    const Work work = group.all_reduce(data);
    while (group.failure() == nullptr) std::this_thread::yield();
    const std::string text = text_of(group.failure());
    EXPECT_THAT(text, HasSubstr("rank 0 called all_reduce sum f32[4] and rank 1 called"));
    EXPECT_EQ(thrown_by<CollectiveMismatch>([&] { work.synchronize(); }), text);
    EXPECT_EQ(text_of(group.failure()), text);
    group.host_barrier();
    if (rank == 0) group.abort();
    while (text_of(group.failure()) == text) std::this_thread::yield();
    EXPECT_NE(thrown_by<PeerLostError>([&] { (void)group.barrier(); }), "nothing was thrown");
  });
}

}  // namespace
}  // namespace gantry
