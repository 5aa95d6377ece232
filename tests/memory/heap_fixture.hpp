// Starts and ends each test with an empty caching allocator.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include <gantry/device/properties.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream.hpp>

#include "device/platform/poison.hpp"
#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "streams/clock_registry.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry::testing {

inline constexpr std::size_t kKib = 1024;
inline constexpr std::size_t kMib = 1024 * kKib;

/// What holds for the statistics at every moment.
inline void expect_stats_add_up(const memory::Stats& stats) {
  const auto adds_up = [](const memory::PoolStat& stat, const char* name) {
    for (auto member : {&memory::Stat::current, &memory::Stat::allocated, &memory::Stat::freed}) {
      EXPECT_EQ(stat.all.*member, stat.small_pool.*member + stat.large_pool.*member) << name;
    }
    for (const memory::Stat& one : {stat.all, stat.small_pool, stat.large_pool}) {
      EXPECT_EQ(one.current, one.allocated - one.freed) << name;
      EXPECT_GE(one.current, 0) << name;
      EXPECT_GE(one.peak, one.current) << name;
    }
  };
  adds_up(stats.allocation, "allocation");
  adds_up(stats.segment, "segment");
  adds_up(stats.active, "active");
  adds_up(stats.inactive_split, "inactive_split");
  adds_up(stats.allocated_bytes, "allocated_bytes");
  adds_up(stats.reserved_bytes, "reserved_bytes");
  adds_up(stats.active_bytes, "active_bytes");
  adds_up(stats.inactive_split_bytes, "inactive_split_bytes");
  adds_up(stats.requested_bytes, "requested_bytes");
  EXPECT_LE(stats.requested_bytes.all.current, stats.active_bytes.all.current);
  EXPECT_LE(stats.allocated_bytes.all.current, stats.active_bytes.all.current);
  EXPECT_LE(stats.active_bytes.all.current + stats.inactive_split_bytes.all.current,
            stats.reserved_bytes.all.current);
  EXPECT_GE(stats.pending_bytes, 0);
  EXPECT_GE(stats.limbo_bytes, 0);
  EXPECT_EQ(stats.active_bytes.all.current,
            stats.allocated_bytes.all.current + stats.pending_bytes + stats.limbo_bytes);
  EXPECT_LE(stats.active_bytes.all.current + stats.cached_bytes + stats.unmapped_bytes,
            stats.reserved_bytes.all.current);
  EXPECT_LE(stats.largest_free, stats.reserved_bytes.all.current);
}

/// A fixture that begins with no segment held and checks that nothing leaked.
class HeapTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    memory::empty_cache();
    for (int i = 0; i < device_count(); ++i) {
      ASSERT_EQ(memory::reserved(Device::cuda(i)), 0u) << "an earlier test leaked";
      memory::reset_peak_stats(Device::cuda(i));
      // Under a limit, memory is taken in the smallest pieces, on a large device as on a small one.
      const std::size_t total = device_properties(Device::cuda(i)).total_memory;
      constexpr std::size_t kLimit = 8192 * kMib;
      if (total > kLimit) {
        memory::set_fraction(static_cast<double>(kLimit) / static_cast<double>(total),
                             Device::cuda(i));
      }
    }
  }
  void TearDown() override {
    for (int i = 0; i < device_count(); ++i) {
      memory::set_fraction(1, Device::cuda(i));
      EXPECT_EQ(memory::allocated(Device::cuda(i)), 0u);
      expect_stats_add_up(memory::stats(Device::cuda(i)));
    }
    memory::standard_allocator().verify();
    memory::heap_allocator().verify();  // with backend async it has what captures allocated
    ClockRegistry::instance().verify();
    DeviceTest::TearDown();
  }

  /// Limits cuda:0 to `bytes`.
  static void limit_to(std::size_t bytes) {
    const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
    memory::set_fraction((static_cast<double>(bytes) + 0.5) / total, Device::cuda(0));
  }
};

/// Driver calls that the allocator made, but for the question whether a stream is captured; what
/// AddressSanitizer builds submit is not counted.
inline std::uint64_t allocator_calls(const FaultDriver& driver) {
  return driver.total_calls() - driver.calls("launch_host_function") - driver.calls("is_capturing");
}

}  // namespace gantry::testing
