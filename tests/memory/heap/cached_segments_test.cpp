// The caching allocator on any of its backends: this file is part of the tests of both.
#include <gtest/gtest.h>

#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/device.hpp>

#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::kMib;
using gantry::testing::StreamHold;

class CachedSegmentsTest : public gantry::testing::HeapTest {};

TEST_F(CachedSegmentsTest, ReusesAFreedBlockOnItsStreamAtOnce) {
  const Stream stream = Stream::from_pool();
  const StreamHold hold(stream);
  Buffer buffer = allocate(stream, 3 * kMib);
  void* data = buffer.data();
  buffer.reset();
  EXPECT_EQ(allocate(stream, 3 * kMib).data(), data);
}

TEST_F(CachedSegmentsTest, LateStreamDoesNotHoldBackTheBlocksOfAnother) {
  const Stream own = Stream::current();
  const Stream late = Stream::from_pool();
  const Stream quick = Stream::from_pool();
  const StreamHold hold(late);
  Buffer first = allocate(own, 12 * kMib);
  Buffer second = allocate(own, 14 * kMib);
  void* data = second.data();
  allocator(Device::cuda(0)).record_stream(first.block(), late);
  allocator(Device::cuda(0)).record_stream(second.block(), quick);
  first.reset();
  second.reset();
  quick.synchronize();
  EXPECT_EQ(allocate(own, 14 * kMib).data(), data);
}

TEST_F(CachedSegmentsTest, DevicesAreIndependent) {
  GANTRY_REQUIRE_DEVICES(2);
  const Buffer buffer = allocate(Stream::current(Device::cuda(1)), 1000);
  EXPECT_EQ(buffer.device(), Device::cuda(1));
  EXPECT_EQ(reserved(Device::cuda(0)), 0u);
  EXPECT_EQ(reserved(Device::cuda(1)), 2 * kMib);
  EXPECT_EQ(driver().pointer_info(buffer.data()).device, 1);
}

TEST_F(CachedSegmentsTest, RunsOutOfRealMemory) {
  GANTRY_REQUIRE_SIM();
  const Stream stream = Stream::current();
  std::vector<Buffer> live;
  EXPECT_THROW(
      {
        while (true) live.push_back(allocate(stream, 100 * kMib));
      },
      OutOfMemoryError);
  EXPECT_EQ(live.size(), mem_get_info().total / (100 * kMib));
  live.clear();
  const Buffer again = allocate(stream, 100 * kMib * (mem_get_info().total / (100 * kMib)));
}

}  // namespace
}  // namespace gantry::memory
