// The allocator of backend async, which every test finds and leaves without memory.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include <gantry/core/error.hpp>
#include <gantry/memory/buffer.hpp>

#include "memory/async_allocator.hpp"
#include "memory/backends.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {

class AsyncAllocatorTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (!driver().supports_memory_pools(0)) GTEST_SKIP() << "cuda:0 has no memory pools";
    async().empty_cache(Device::cuda(0));
    ASSERT_EQ(stats().reserved_bytes.all.current, 0) << "an earlier test leaked";
    async().reset_peak_stats(0);
  }
  void TearDown() override {
    if (!IsSkipped()) {
      async().set_fraction(1, 0);
      async().empty_cache(Device::cuda(0));
      expect_clean();
    }
    DeviceTest::TearDown();
  }
  static AsyncAllocator& async() { return async_allocator(); }
  static Stats stats() { return async().stats(0); }
  static Buffer make(std::size_t bytes, const Stream& stream = Stream::current()) {
    return Buffer(async().allocate(bytes, stream));
  }
  static void expect_clean() {
    const Stats now = stats();
    gantry::testing::expect_stats_add_up(now);
    EXPECT_EQ(now.allocation.all.current, 0);
    EXPECT_EQ(now.active.all.current, 0);
    EXPECT_EQ(now.active_bytes.all.current, 0);
    EXPECT_EQ(now.reserved_bytes.all.current, 0);
    EXPECT_EQ(driver().pool_memory(0).used, 0u);
  }
  /// Runs `scenario` once per driver call it makes, that call failing; it must be left clean.
  static void sweep(const std::function<void()>& scenario) {
    gantry::testing::FaultDriver driver;
    scenario();
    const auto counts = driver.counts();
    for (const auto& [call, count] : counts) {
      if (call.starts_with("destroy_") || call == "restore_device") continue;
      for (std::uint64_t nth = 1; nth <= count; ++nth) {
        SCOPED_TRACE(call + " " + std::to_string(nth));
        driver.reset_counts();
        driver.fail_on(call, nth);
        try {
          scenario();
        } catch (const Error&) {
        }
        driver.fail_nothing();
        EXPECT_EQ(stats().allocation.all.current, 0);
        async().empty_cache(Device::cuda(0));
        expect_clean();
      }
    }
  }
};

}  // namespace gantry::memory
