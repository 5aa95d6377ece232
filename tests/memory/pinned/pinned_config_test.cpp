// The keys of GANTRY_ALLOC_CONF for page-locked memory, which the test's environment sets:
// pinned_use_cuda_host_register:True,pinned_num_register_threads:2,pinned_reserve_segment_size_mb:24
#include <gtest/gtest.h>

#include <gantry/memory/host_stats.hpp>
#include <gantry/memory/pinned_allocator.hpp>
#include <gantry/memory/snapshot.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry::memory {
namespace {

class PinnedConfigTest : public gantry::testing::DeviceTest {};

TEST_F(PinnedConfigTest, MemoryIsRegisteredAndReserved) {
  gantry::testing::FaultDriver calls;
  const Buffer small = pinned(1000);
  EXPECT_EQ(calls.calls("register_host"), 1u);
  EXPECT_EQ(calls.calls("allocate_pinned"), 0u);
  EXPECT_TRUE(is_pinned(small.data()));
  EXPECT_EQ(host_memory_stats().allocated_bytes.current, std::int64_t{24} << 20);
  const Buffer more = pinned(std::size_t{16} << 20);
  EXPECT_EQ(calls.calls("register_host"), 1u) << "the reserved segment serves it";
}

TEST_F(PinnedConfigTest, SnapshotsTellTheSettings) {
  const Snapshot taken = snapshot();
  EXPECT_EQ(taken.settings.at("pinned_use_cuda_host_register"), SettingValue(true));
  EXPECT_EQ(taken.settings.at("pinned_num_register_threads"), SettingValue(std::int64_t{2}));
}

}  // namespace
}  // namespace gantry::memory
