#include <gantry/memory/stats.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::kMib;
using ::testing::HasSubstr;

class MemoryStatsTest : public gantry::testing::HeapTest {};

TEST_F(MemoryStatsTest, HasTheKeysOfTorchAndItsOwn) {
  std::set<std::string> expected = {"num_alloc_retries",   "num_ooms",         "num_oom_rejections",
                                    "max_split_size",      "num_device_alloc", "num_device_free",
                                    "num_sync_all_streams"};
  const std::vector<std::string> metrics = {"current", "peak", "allocated", "freed"};
  for (const char* stat :
       {"allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes",
        "active_bytes", "inactive_split_bytes", "requested_bytes"}) {
    for (const char* pool : {"all", "small_pool", "large_pool"}) {
      for (const std::string& metric : metrics) {
        expected.insert(std::string(stat) + "." + pool + "." + metric);
      }
    }
  }
  for (const std::string& metric : metrics) {
    expected.insert("oversize_allocations." + metric);
    expected.insert("oversize_segments." + metric);
  }
  ASSERT_EQ(expected.size(), 123u);
  for (const char* own : {"pending_bytes", "limbo_bytes", "cached_bytes", "unmapped_bytes",
                          "reclaimed_bytes", "largest_free", "num_stream_waits", "num_pools"}) {
    expected.insert(own);
  }
  std::set<std::string> keys;
  for (const auto& [key, value] : stats_map()) keys.insert(key);
  EXPECT_EQ(keys, expected);
}

TEST_F(MemoryStatsTest, RequestsBeyondTheLimitOfTheProcessAreCountedApart) {
  set_fraction(1);  // on a large device the fixture has set a limit of the process
  const auto rejections = [] { return stats_map().at("num_oom_rejections"); };
  const std::int64_t before = rejections();
  const std::size_t total = mem_get_info().total;
  EXPECT_THROW((void)allocate(Stream::current(), 2 * total), OutOfMemoryError);
  EXPECT_EQ(rejections(), before) << "the device itself has no more";
  set_fraction(0.25);
  EXPECT_THROW((void)allocate(Stream::current(), total / 2), OutOfMemoryError);
  EXPECT_EQ(rejections(), before + 1);
  reset_accumulated_stats();
  EXPECT_EQ(rejections(), 0);
  EXPECT_THROW((void)allocate(Stream::current(), total / 2), OutOfMemoryError);
  EXPECT_EQ(rejections(), 1);
  set_fraction(1);
  EXPECT_EQ(rejections(), 1);
}

TEST_F(MemoryStatsTest, MapHoldsTheNumbersOfStats) {
  const Buffer small = allocate(Stream::current(), 1000);
  const Buffer large = allocate(Stream::current(), 3 * kMib);
  const Stats now = stats();
  const auto map = stats_map();
  EXPECT_EQ(map.at("allocation.all.current"), 2);
  EXPECT_EQ(map.at("allocated_bytes.small_pool.current"), 1024);
  EXPECT_EQ(map.at("allocated_bytes.large_pool.current"), static_cast<std::int64_t>(3 * kMib));
  EXPECT_EQ(map.at("requested_bytes.all.current"), static_cast<std::int64_t>(3 * kMib + 1000));
  EXPECT_EQ(map.at("reserved_bytes.all.current"), static_cast<std::int64_t>(4 * kMib));
  EXPECT_EQ(map.at("inactive_split.all.current"), 0) << "pieces that can be mapped elsewhere";
  EXPECT_EQ(map.at("segment.all.current"), 1);
  EXPECT_EQ(map.at("largest_free"), static_cast<std::int64_t>(kMib - 1024));
  EXPECT_EQ(map.at("segment.all.allocated"), now.segment.all.allocated);
  EXPECT_EQ(map.at("num_device_alloc"), now.num_device_alloc);
  EXPECT_EQ(map.at("max_split_size"), -1);
}

TEST_F(MemoryStatsTest, PeaksStayUntilReset) {
  { const Buffer buffer = allocate(Stream::current(), 30 * kMib); }
  const Buffer small = allocate(Stream::current(), 1000);
  EXPECT_EQ(max_allocated(), 30 * kMib);
  EXPECT_EQ(max_reserved(), 30 * kMib);
  reset_peak_stats();
  EXPECT_EQ(max_allocated(), 1024u);
  EXPECT_EQ(max_allocated(), allocated());
  EXPECT_EQ(max_reserved(), reserved());
}

TEST_F(MemoryStatsTest, TheFractionIsTold) {
  set_fraction(1);
  EXPECT_EQ(fraction(), 1);
  set_fraction(0.25);
  EXPECT_EQ(fraction(), 0.25);
  set_fraction(1);
  EXPECT_THROW(static_cast<void>(fraction(Device::cpu())), InvalidArgument);
}

TEST_F(MemoryStatsTest, SummaryIsATable) {
  const Buffer buffer = allocate(Stream::current(), 3 * kMib);
  const std::string text = summary();
  EXPECT_THAT(text, HasSubstr("Memory of cuda:0"));
  EXPECT_THAT(text, HasSubstr("| reserved_bytes         |     4.00 MiB |"));
  EXPECT_THAT(text, HasSubstr("| allocation             |            1 |"));
}

TEST_F(MemoryStatsTest, MemGetInfoCountsSegments) {
  const MemInfo before = mem_get_info();
  const Buffer buffer = allocate(Stream::current(), 40 * kMib);
  const MemInfo after = mem_get_info();
  EXPECT_EQ(after.total, before.total);
  EXPECT_GE(before.free - after.free, 40 * kMib);
}

}  // namespace
}  // namespace gantry::memory
