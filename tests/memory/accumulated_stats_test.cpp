// Apart from other tests: after a reset the sums no longer add up to the values.
#include <gtest/gtest.h>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/host_stats.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/stats.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry::memory {
namespace {

class AccumulatedStatsTest : public gantry::testing::DeviceTest {};

TEST_F(AccumulatedStatsTest, CountsStartAnew) {
  const Stream stream = Stream::current();
  const Buffer held = allocate(stream, std::size_t{3} << 20);
  { const Buffer freed = allocate(stream, std::size_t{5} << 20); }
  const Stats before = stats();
  EXPECT_GT(before.allocation.all.freed, 0);
  reset_accumulated_stats();
  const Stats after = stats();
  EXPECT_EQ(after.allocation.all.allocated, 0);
  EXPECT_EQ(after.allocation.all.freed, 0);
  EXPECT_EQ(after.active_bytes.large_pool.allocated, 0);
  EXPECT_EQ(after.num_device_alloc, 0);
  EXPECT_EQ(after.allocated_bytes.all.current, before.allocated_bytes.all.current) << "values stay";
  EXPECT_EQ(after.allocated_bytes.all.peak, before.allocated_bytes.all.peak) << "peaks stay";
  EXPECT_EQ(stats_map().at("allocated_bytes.all.allocated"), 0);
  { const Buffer more = allocate(stream, std::size_t{5} << 20); }
  EXPECT_EQ(stats().allocated_bytes.all.allocated, std::int64_t{5} << 20);
  EXPECT_EQ(stats().allocated_bytes.all.freed, std::int64_t{5} << 20);
}

TEST_F(AccumulatedStatsTest, HostCountsStartAnew) {
  const Buffer held = pinned(1000);
  { const Buffer freed = pinned(2000); }
  reset_accumulated_host_stats();
  const HostStats after = host_memory_stats();
  EXPECT_EQ(after.active_requests.allocated, 0);
  EXPECT_EQ(after.active_requests.freed, 0);
  EXPECT_EQ(after.active_requests.current, 1) << "values stay";
  EXPECT_EQ(after.num_host_alloc, 0);
  EXPECT_EQ(after.host_alloc_time.count, 0);
}

TEST_F(AccumulatedStatsTest, DevicesAreResetApart) {
  GANTRY_REQUIRE_DEVICES(2);
  for (int device : {0, 1}) {
    const Buffer freed = allocate(Stream::current(Device::cuda(device)), 1000);
  }
  reset_accumulated_stats(Device::cuda(0));
  EXPECT_EQ(stats(Device::cuda(0)).allocation.all.allocated, 0);
  EXPECT_GT(stats(Device::cuda(1)).allocation.all.allocated, 0);
}

}  // namespace
}  // namespace gantry::memory
