// Making groups on devices whose memory is in the allocator's cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using ::testing::AllOf;
using testing::CollectiveSuite;
using testing::expect_throws;
using ::testing::HasSubstr;

constexpr std::size_t kMib = std::size_t{1} << 20;

class FullCacheTest : public testing::LocalGroupTest {
 protected:
  void SetUp() override {
    LocalGroupTest::SetUp();
    GANTRY_REQUIRE_SIM();
    GANTRY_REQUIRE_DEVICES(3);
    memory::empty_cache();
  }
  void TearDown() override {
    memory::empty_cache();
    LocalGroupTest::TearDown();
  }

  // Takes all memory of a device but 8 MiB.
  static Tensor fill(Device device) {
    const std::size_t free = driver().memory_info(device.index).free;
    return empty({static_cast<std::int64_t>(free - 8 * kMib)}, {.dtype = u8, .device = device});
  }
  // The same, and gives it back to the cache.
  static void fill_cache(Device device) {
    (void)fill(device);
    ASSERT_LT(driver().memory_info(device.index).free, 16 * kMib);
    ASSERT_GT(memory::reserved(device), 32 * kMib);
  }
};

TEST_F(FullCacheTest, EveryGroupIsMade) {
  for (const Device device : devices(3)) fill_cache(device);
  on_ranks(3, [](CollectiveSuite& suite, Communicator& group) {
    suite.all(f32, 1000);
    fill_cache(group.device());
    group.host_barrier();
    Communicator half = group.split(0);
    CollectiveSuite(half).all(i32, 1000);
    fill_cache(group.device());
    group.host_barrier();
    if (group.rank() == 2) return group.abort();
    const Communicator rest = group.shrink({2});
    Tensor sum = ones({10}, {.device = rest.device()});
    rest.all_reduce(sum).synchronize();
    EXPECT_EQ(sum.sum().item<float>(), 20);
  });
}

TEST_F(FullCacheTest, WorkThatWaitsForTheCallerIsNotWaitedFor) {
  // Rank 1's kernel waits for rank 0, which makes another group meanwhile.
  const std::vector<Communicator> group = Communicator::local(devices(2));
  Tensor first = ones({10}, {.device = Device::cuda(0)});
  Tensor second = ones({10}, {.device = Device::cuda(1)});
  for (const Device device : devices(2)) {
    fill_cache(device);
    synchronize(device);
  }
  const Work waiting = group[1].all_reduce(second);
  const std::vector<Communicator> other = Communicator::local(devices(2));
  EXPECT_FALSE(waiting.query());
  // Behind that kernel nothing comes free: an error, and no rank waits for ever.
  fill_cache(Device::cuda(1));
  expect_throws<OutOfMemoryError>([&] { (void)Communicator::local(devices(2)); },
                                  "for a communicator's workspace");
  EXPECT_FALSE(waiting.query());
  group[0].all_reduce(first).synchronize();
  waiting.synchronize();
  EXPECT_EQ(second.sum().item<float>(), 20);
}

TEST_F(FullCacheTest, MemoryInUseIsAnErrorWithTheWholeBreakdown) {
  const Tensor live = fill(Device::cuda(1));
  int told = 0;
  try {
    (void)Communicator::local(devices(2));
    FAIL() << "there is no memory";
  } catch (const OutOfMemoryError& error) {
    ++told;
    EXPECT_THAT(error.what(), HasSubstr("for a communicator's workspace"));
    EXPECT_THAT(error.what(), HasSubstr("CUDA out of memory. Tried to allocate 32.00 MiB"));
  }
  EXPECT_EQ(told, 1);
}

TEST_F(FullCacheTest, EveryRankNamesTheOneWithoutMemory) {
  on_ranks(3, [](CollectiveSuite& suite, Communicator& group) {
    std::optional<Tensor> live;
    if (group.rank() == 1) live = fill(group.device());
    group.host_barrier();
    try {
      (void)group.split(0);
      ADD_FAILURE() << "rank 1 has no memory";
    } catch (const OutOfMemoryError& error) {
      if (group.rank() == 1) {
        EXPECT_GE(error.breakdown().allocated, static_cast<std::int64_t>(live->nbytes()));
        EXPECT_EQ(error.breakdown().total, 1 << 30);
        EXPECT_EQ(error.breakdown().requested, 32 << 20);
      } else {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 failed to allocate its workspace: CUDA "
                                                  "out of memory. Tried to allocate 32.00 MiB")));
      }
    }
    live.reset();
    // No rank was lost, and with free memory the group makes others.
    suite.all(f32, 100);
    Communicator half = group.split(0);
    CollectiveSuite(half).all(f32, 100);
  });
}

}  // namespace
}  // namespace gantry
