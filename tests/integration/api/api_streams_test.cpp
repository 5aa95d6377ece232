// Streams, events and their guards through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <unordered_set>
#include <utility>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;

class ApiStreamsTest : public gantry::testing::DeviceTest {};

TEST_F(ApiStreamsTest, DefaultStreamIsCurrentAndNull) {
  EXPECT_EQ(Stream::current(), Stream::default_stream());
  EXPECT_EQ(Stream::current(Device::cuda(0)), Stream::default_stream("cuda:0"));
  EXPECT_EQ(Stream::default_stream().native_handle(), nullptr);
  EXPECT_EQ(Stream::default_stream().id(), 0u);
  EXPECT_EQ(Stream::default_stream().device(), Device::cuda(0));
}

TEST_F(ApiStreamsTest, PoolHas32StreamsPerPriority) {
  std::unordered_set<Stream> normal;
  std::unordered_set<Stream> high;
  for (int i = 0; i < 64; ++i) {
    normal.insert(Stream::from_pool(Device::cuda(0), StreamPriority::normal));
    high.insert(Stream::from_pool(Device::cuda(0), StreamPriority::high));
  }
  EXPECT_EQ(normal.size(), 32u);
  EXPECT_EQ(high.size(), 32u);
  for (const Stream& stream : high) EXPECT_EQ(normal.count(stream), 0u);
}

TEST_F(ApiStreamsTest, ExternalStreamIsTheSameQueue) {
  const Stream pooled = Stream::from_pool();
  const Stream external = Stream::external(pooled.native_handle(), pooled.device());
  EXPECT_EQ(external, pooled);
  external.synchronize();
  EXPECT_TRUE(pooled.query());
}

TEST_F(ApiStreamsTest, SetStreamChangesItsDeviceOnly) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream before = Stream::current(Device::cuda(1));
  const Stream stream = Stream::from_pool(Device::cuda(1));
  set_stream(stream);
  EXPECT_EQ(Stream::current(Device::cuda(1)), stream);
  EXPECT_EQ(Stream::current(Device::cuda(0)), Stream::default_stream(Device::cuda(0)));
  EXPECT_EQ(current_device(), Device::cuda(0));
  set_stream(before);
}

TEST_F(ApiStreamsTest, StreamGuardMakesStreamAndDeviceCurrent) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream stream = Stream::from_pool(Device::cuda(1));
  {
    StreamGuard guard(stream);
    EXPECT_EQ(current_device(), Device::cuda(1));
    EXPECT_EQ(Stream::current(), stream);
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
  EXPECT_EQ(Stream::current(Device::cuda(1)), Stream::default_stream(Device::cuda(1)));
}

TEST_F(ApiStreamsTest, MultiStreamGuardTakesLists) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream first = Stream::from_pool(Device::cuda(0));
  const Stream second = Stream::from_pool(Device::cuda(1));
  {
    MultiStreamGuard guard({first, second});
    EXPECT_EQ(Stream::current(Device::cuda(0)), first);
    EXPECT_EQ(Stream::current(Device::cuda(1)), second);
    EXPECT_EQ(current_device(), Device::cuda(0));
  }
  EXPECT_EQ(Stream::current(Device::cuda(0)), Stream::default_stream(Device::cuda(0)));
  const std::vector<Stream> streams{first, second};
  {
    MultiStreamGuard guard(streams);
    EXPECT_EQ(Stream::current(Device::cuda(1)), second);
  }
  EXPECT_EQ(Stream::current(Device::cuda(1)), Stream::default_stream(Device::cuda(1)));
}

TEST_F(ApiStreamsTest, EventsOrderStreams) {
  const Stream producer = Stream::from_pool();
  const Stream consumer = Stream::from_pool();
  const Tensor source = full({1 << 16}, 3, {.dtype = i32, .device = "cuda:0"});
  synchronize();
  Tensor made = zeros_like(source);
  synchronize();
  Event event;
  {
    StreamGuard guard(producer);
    made.add_(source);
    event.record(producer);
  }
  event.wait(consumer);
  StreamGuard guard(consumer);
  EXPECT_EQ(made.sum().item<std::int64_t>(), 3 << 16);
}

TEST_F(ApiStreamsTest, StreamsWaitForEventsAndStreams) {
  const Stream producer = Stream::from_pool();
  const Stream consumer = Stream::from_pool();
  Event recorded = producer.record();
  consumer.wait(recorded);
  consumer.wait(producer);
  Event again;
  producer.record(again);
  again.wait(consumer);
  consumer.synchronize();
  EXPECT_TRUE(consumer.query());
  EXPECT_TRUE(recorded.query());
  again.synchronize();
}

TEST_F(ApiStreamsTest, TimingEventsMeasure) {
  Event begin({.timing = true});
  Event end({.timing = true, .blocking = true});
  const Stream stream = Stream::current();
  EXPECT_TRUE(begin.query());
  begin.record(stream);
  (void)ones({1024}, {.device = "cuda"});
  end.record(stream);
  end.synchronize();
  EXPECT_GE(begin.elapsed_ms(end), 0.0f);
  EXPECT_EQ(begin.device(), Device::cuda(0));
}

TEST_F(ApiStreamsTest, EventsWithoutTimingRefuseElapsed) {
  Event begin;
  Event end;
  begin.record();
  end.record();
  end.synchronize();
  EXPECT_THROW((void)begin.elapsed_ms(end), InvalidArgument);
}

TEST_F(ApiStreamsTest, EventsMove) {
  Event event;
  event.record();
  Event moved = std::move(event);
  moved.synchronize();
  EXPECT_TRUE(moved.query());
}

TEST_F(ApiStreamsTest, InterprocessEventsExport) {
  Event event({.interprocess = true});
  event.record(Stream::current());
  const IpcEventHandle handle = event.ipc_handle();
  EXPECT_NE(handle.bytes, IpcEventHandle{}.bytes);
  Event local;
  EXPECT_THROW((void)local.ipc_handle(), InvalidArgument);
  EXPECT_THROW((void)Event::from_ipc(IpcEventHandle{}, Device::cuda(0)), CudaError);
}

}  // namespace
