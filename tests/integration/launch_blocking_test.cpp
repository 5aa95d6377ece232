// Programs under CUDA_LAUNCH_BLOCKING=1, which the test is registered with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using ::testing::Each;

class LaunchBlockingTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_STREQ(std::getenv("CUDA_LAUNCH_BLOCKING"), "1");
    for (int i = 0; i < device_count(); ++i) devices_.push_back(Device::cuda(i));
  }
  [[nodiscard]] int count() const { return static_cast<int>(devices_.size()); }
  [[nodiscard]] std::vector<Tensor> one_per_device(std::int64_t elements) const {
    std::vector<Tensor> tensors;
    for (int i = 0; i < count(); ++i) {
      tensors.push_back(full({elements}, static_cast<float>(i + 1), devices_[index(i)]));
    }
    return tensors;
  }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] float sum() const { return static_cast<float>(count() * (count() + 1)) / 2; }

  std::vector<Device> devices_;
};

TEST_F(LaunchBlockingTest, ABadIndexIsAnErrorOfItsCall) {
  const Tensor rows = arange(0, 10, 1, devices_[0]);
  const Tensor bad = arange(99, 102, 1, devices_[0]);
  EXPECT_THROW(static_cast<void>(rows.index_select(0, bad)), IndexError);
  // The error was told: what follows works.
  EXPECT_EQ(rows.sum().item<std::int64_t>(), 45);
  synchronize(devices_[0]);
}

// Each rank's kernels wait for those of the ranks that this thread serves later.
TEST_F(LaunchBlockingTest, OneThreadServesAllRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices_);
  for (const std::int64_t elements : {10, 1'000'000}) {
    std::vector<Tensor> tensors = one_per_device(elements);
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < count(); ++rank) {
        Tensor& mine = tensors[index(rank)];
        group[index(rank)].all_reduce(mine);
        mine.div_(static_cast<double>(sum()));
        mine.mul_(static_cast<double>(rank + 1));
      }
    }
    for (int rank = 0; rank < count(); ++rank) {
      EXPECT_THAT(tensors[index(rank)].to_vector<float>(), Each(static_cast<float>(rank + 1)));
    }
  }
  Tensor sent = ones({1'000'000}, devices_[0]);
  Tensor received = zeros({1'000'000}, devices_[1]);
  group[0].send(sent, 1);
  sent.add_(1.0);
  group[1].recv(received, 0);
  EXPECT_THAT(received.to_vector<float>(), Each(1.0F));
}

TEST_F(LaunchBlockingTest, EachRankHasAThread) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> group = Communicator::local(devices_);
  testing::rank_threads(count(), [&](int rank) {
    const DeviceGuard guard(devices_[index(rank)]);
    for (int round = 0; round < 5; ++round) {
      Tensor mine = full({100'000}, static_cast<float>(rank + 1), devices_[index(rank)]);
      group[index(rank)].all_reduce(mine);
      mine.add_(1.0);
      EXPECT_THAT(mine.to_vector<float>(), Each(sum() + 1));
    }
  });
}

TEST_F(LaunchBlockingTest, OneCallServesAllDevices) {
  for (const std::int64_t elements : {10, 3'000'000}) {
    std::vector<Tensor> tensors = one_per_device(elements);
    comm::all_reduce(tensors);
    for (const Tensor& tensor : tensors) EXPECT_THAT(tensor.to_vector<float>(), Each(sum()));
    const Tensor total = comm::reduce_add(tensors, devices_[0]);
    EXPECT_THAT(total.to_vector<float>(), Each(sum() * static_cast<float>(count())));
    for (const Tensor& copy : comm::broadcast(total, devices_)) {
      EXPECT_TRUE(equal(copy.cpu(), total.cpu()));
    }
  }
}

}  // namespace
}  // namespace gantry
