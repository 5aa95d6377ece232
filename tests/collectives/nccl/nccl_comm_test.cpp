// Groups of the ranks of NCCL communicators that the program made.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/nccl.hpp>
#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "collectives/nccl/library.hpp"
#include "collectives/transport.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using testing::expect_throws;
using testing::rank_threads;

// One communicator for each of some devices, which the program ends.
class NcclCommTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_CUDA();
    GANTRY_REQUIRE_DEVICES(1);
    if (!has_nccl()) GTEST_SKIP() << "needs NCCL: " << nccl_problem();
    DeviceTest::SetUp();
    prepare_nccl_environment();
    comms.resize(static_cast<std::size_t>(std::min(device_count(), 4)));
    std::vector<int> devices(comms.size());
    std::iota(devices.begin(), devices.end(), 0);
    check_nccl(nccl().comm_init_all(comms.data(), size(), devices.data()), "ncclCommInitAll",
               "starting NCCL");
  }
  void TearDown() override {
    for (const ncclComm_t comm : comms) EXPECT_EQ(nccl().comm_abort(comm), ncclSuccess);
    DeviceTest::TearDown();
  }
  int size() const { return static_cast<int>(comms.size()); }
  ncclComm_t comm(int rank) const { return comms[static_cast<std::size_t>(rank)]; }

  std::vector<ncclComm_t> comms;
};

void check_sum(const Communicator& group) {
  const Tensor numbers = full({1000}, group.rank() + 1, {.device = group.device()});
  group.all_reduce(numbers).synchronize();
  if (numbers.amin().item<int>() != group.size() * (group.size() + 1) / 2 ||
      numbers.amax().item<int>() != numbers.amin().item<int>()) {
    throw std::runtime_error("a wrong sum");
  }
}

TEST_F(NcclCommTest, GroupsHaveItsRanksAndLeaveItIntact) {
  for (const char* algorithm : {"auto", "nccl"}) {
    setenv("GANTRY_COLL_ALGO", algorithm, 1);
    rank_threads(size(), [&](int rank) {
      const DeviceGuard guard(Device::cuda(rank));
      for (int turn = 0; turn < 2; ++turn) {
        const Communicator group = Communicator::from_nccl(comm(rank), Device::cuda(rank));
        if (group.rank() != rank || group.size() != size() || group.device().index != rank) {
          throw std::runtime_error("other ranks than those of NCCL");
        }
        check_sum(group);
        check_sum(group.split(rank % 2));
      }
    });
    unsetenv("GANTRY_COLL_ALGO");
  }
}

TEST_F(NcclCommTest, RanksMayBeOnSeveralMachines) {
  // The exchange stays with NCCL, also the exchange of parts.
  rank_threads(size(), [&](int rank) {
    const Device device = Device::cuda(rank);
    ForeignBootstrap all = make_nccl_bootstrap(comm(rank), device, std::chrono::seconds(60));
    const std::string mine(static_cast<std::size_t>(1 + 100 * rank), static_cast<char>('a' + rank));
    const auto expect = [&](const std::vector<std::string>& texts, const std::vector<int>& ranks) {
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        const auto length = static_cast<std::size_t>(1 + 100 * ranks[i]);
        if (texts.at(i) == std::string(length, static_cast<char>('a' + ranks[i]))) continue;
        throw std::runtime_error("another text of rank " + std::to_string(ranks[i]));
      }
    };
    std::vector<int> everyone(static_cast<std::size_t>(size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    expect(all.bootstrap->all_gather(mine), everyone);
    std::vector<int> part;
    for (int other = size() - 1; other >= 0; --other) {
      if (other % 2 == rank % 2) part.push_back(other);
    }
    const auto some = all.bootstrap->subset(part, "part");
    if (part.size() > 1) expect(some->all_gather(mine), part);
    expect(all.bootstrap->all_gather(mine), everyone);
  });
}

TEST_F(NcclCommTest, BadInput) {
  const Device first = Device::cuda(0);
  expect_throws<InvalidArgument>(
      [&] { (void)Communicator::from_nccl(nullptr, first); },
      "Communicator::from_nccl: expected a communicator, but got a null one");
  expect_throws<InvalidArgument>([&] { (void)Communicator::from_nccl(comm(0), Device::cpu()); },
                                 "Communicator::from_nccl: expected a device, but got cpu");
  if (size() < 2) return;
  expect_throws<InvalidArgument>(
      [&] { (void)Communicator::from_nccl(comm(1), first); },
      "Communicator::from_nccl: expected a communicator of cuda:0, but got one of cuda:1");
}

// A rank that does not come is a deadline, not a hang.
TEST_F(NcclCommTest, ARankThatDoesNotComeIsATimeout) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "2", 1);
  expect_throws<TimeoutError>(
      [&] { (void)Communicator::from_nccl(comm(0), Device::cuda(0)); },
      "Communicator::from_nccl: rank 0 waited 2 s, but other ranks, of which NCCL does not say "
      "which, did not come");
  unsetenv("GANTRY_COLL_TIMEOUT");
}

TEST(NcclCommOnTheSimulatorTest, IsNotSupported) {
  GANTRY_REQUIRE_SIM();
  expect_throws<NotSupported>(
      [] { (void)Communicator::from_nccl(nullptr, Device::cuda(0)); },
      "Communicator::from_nccl: expected real GPUs, but got simulated devices, on which NCCL does "
      "not run");
}

}  // namespace
}  // namespace gantry
