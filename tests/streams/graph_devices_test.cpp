// Graphs of several devices: what a replay is ordered with, and captures that join devices.
// Under the stream sanitizer (graph.race) an order that is missing is an error in every run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/graphed.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/streams/graph_devices_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using testing::GraphDevicesTest;

// The one node of this graph belongs to the first device or the second one, by the direction.
TEST_F(GraphDevicesTest, AReplayIsOrderedWithTheStreamsOfBothEndsOfACopy) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const bool to_other : {true, false}) {
    const Tensor in = on(to_other ? device_ : other_);
    const Tensor out = on(to_other ? other_ : device_);
    Graph graph;
    capture(graph, {other_}, [&] { out.copy_(in); });
    expect_ordered(in, out, [&] { graph.replay(); });
  }
}

TEST_F(GraphDevicesTest, StreamsThatTheProgramJoinedCount) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor out = on(device_);
  for (const bool by_event : {true, false}) {
    const Stream side = Stream::from_pool(other_);
    Graph graph;
    {
      const GraphCapture capture(graph);
      if (by_event) {
        side.wait(capture.stream().record());
      } else {
        side.wait(capture.stream());
      }
      const MultiStreamGuard guard({side});
      out.copy_(in);
      capture.stream().wait(side);
    }
    EXPECT_THAT(graph.devices(), ElementsAre(device_, other_));
    expect_ordered(in, out, [&] { graph.replay(); });
  }
}

TEST_F(GraphDevicesTest, StreamsThatJoinedByTheDriverCount) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor out = on(device_);
  const Stream side = Stream::from_pool(other_);
  Graph graph;
  {
    const GraphCapture capture(graph);
    const NativeEvent fork = driver().create_event(0, {});
    driver().record_event(fork, capture.stream().native());
    driver().wait_event(side.native(), fork);
    driver().destroy_event(fork);
    const MultiStreamGuard guard({side});
    out.copy_(in);
    capture.stream().wait(side);
  }
  expect_ordered(in, out, [&] { graph.replay(); });
}

TEST_F(GraphDevicesTest, TheCurrentStreamsAreThoseOfTheReplay) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor out = on(device_);
  Graph graph;
  capture(graph, {other_}, [&] { out.copy_(in); });
  for (int i = 0; i < 2; ++i) {
    const std::vector<Stream> streams = {Stream::from_pool(device_), Stream::from_pool(other_)};
    for (const Stream& stream : streams) stream.wait(Stream::current(stream.device()));
    const MultiStreamGuard guard(streams);
    expect_ordered(in, out, [&] { graph.replay(); });
    for (const Stream& stream : streams) stream.synchronize();
  }
  std::thread([&] {
    const StreamGuard guard(Stream::from_pool(other_));
    const DeviceGuard first(device_);
    expect_ordered(in, out, [&] { graph.replay(); });
    Stream::current(other_).synchronize();
  }).join();
}

TEST_F(GraphDevicesTest, EveryDeviceOfTheCaptureIsOrdered) {
  GANTRY_REQUIRE_DEVICES(3);
  const Device third = Device::cuda(2);
  const Tensor a = on(device_);
  const Tensor b = on(other_);
  const Tensor c = on(third);
  Graph graph;
  capture(graph, {third, other_, device_, third}, [&] {
    b.copy_(a);
    c.copy_(b * 2);
  });
  EXPECT_THAT(graph.devices(), ElementsAre(device_, other_, third));
  for (int i = 1; i <= 5; ++i) {
    a.fill_(i);
    b.fill_(-1);
    c.fill_(-1);
    graph.replay();
    EXPECT_EQ(value_of(c), static_cast<float>(2 * i));
    EXPECT_EQ(value_of(b), static_cast<float>(i));
  }
}

TEST_F(GraphDevicesTest, TheOriginMayBeAnyDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(device_);
  const Tensor out = on(other_);
  Graph graph;
  {
    const DeviceGuard guard(other_);
    capture(graph, {device_}, [&] { out.copy_(in); });
  }
  EXPECT_EQ(graph.device(), other_);
  EXPECT_THAT(graph.devices(), ElementsAre(device_, other_));
  expect_ordered(in, out, [&] { graph.replay(); });
}

TEST_F(GraphDevicesTest, AnUpdateBringsTheDevicesOfTheOtherGraph) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(device_);
  const Tensor near = on(device_);
  const Tensor far = on(other_);
  Graph graph;
  Graph other;
  capture(graph, {}, [&] { near.copy_(in); });
  EXPECT_THAT(graph.devices(), ElementsAre(device_));
  capture(other, {other_}, [&] { far.copy_(in); });
  try {
    graph.update(other);
  } catch (const InvalidArgument&) {
    GTEST_SKIP() << "copies within a device and between devices are other nodes here";
  }
  other.reset();
  EXPECT_THAT(graph.devices(), ElementsAre(device_, other_));
  expect_ordered(in, far, [&] { graph.replay(); });
  Graph one;
  capture(one, {}, [&] { near.copy_(in); });
  graph.update(one);
  EXPECT_THAT(graph.devices(), ElementsAre(device_));
}

TEST_F(GraphDevicesTest, AFunctionAsAGraphMayUseOtherDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(device_);
  const Tensor offset = on(other_);
  Graphed graphed = make_graphed(
      [&](std::span<const Tensor> inputs) {
        return std::vector<Tensor>{inputs[0].to(other_) + offset};
      },
      {in}, {.devices = {other_}});
  EXPECT_THAT(graphed.graph().devices(), ElementsAre(device_, other_));
  for (int i = 1; i <= 5; ++i) {
    offset.fill_(100 * i);
    in.fill_(i);
    EXPECT_EQ(value_of(graphed({in})[0]), static_cast<float>(101 * i));
  }
  EXPECT_ERROR(make_graphed([](std::span<const Tensor>) { return std::vector<Tensor>{}; }, {in},
                            {.devices = {Device::cpu()}}),
               InvalidArgument, "make_graphed: expected a CUDA device, but got cpu");
}

TEST_F(GraphDevicesTest, AGraphWithConditionsIsOrderedToo) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!driver().supports_conditions(0)) GTEST_SKIP() << "the driver has no conditions";
  const Tensor in = on(other_);
  const Tensor x = on(device_);
  const Tensor out = on(other_);
  const Tensor goes_on = zeros({}, {.dtype = DType::bool_, .device = device_});
  Graph graph;
  capture(graph, {other_}, [&] {
    x.copy_(in);
    goes_on.copy_(gt(x, 1).any());
    graph_while(goes_on, [&] {
      x.sub_(1);
      goes_on.copy_(gt(x, 1).any());
    });
    out.copy_(x);
  });
  for (int i = 2; i <= 4; ++i) {
    in.fill_(i);
    out.fill_(-1);
    graph.replay();
    EXPECT_EQ(value_of(out), 1);
  }
}

TEST_F(GraphDevicesTest, AReplayOnOneDeviceIsOneCall) {
  const Tensor x = on(device_);
  Graph graph;
  capture(graph, {}, [&] { x.add_(1); });
  EXPECT_THAT(graph.devices(), ElementsAre(device_));
  graph.replay();
  synchronize(device_);
  {
    testing::FaultDriver faults;
    graph.replay();
    EXPECT_EQ(faults.calls("launch_graph"), 1U);
    EXPECT_EQ(faults.total_calls(), 1U);
    synchronize(device_);
  }
  EXPECT_EQ(value_of(x), 2);
}

TEST_F(GraphDevicesTest, AReplayOnTwoDevicesTakesItsEventsFromThePool) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor out = on(device_);
  Graph graph;
  capture(graph, {other_}, [&] { out.copy_(in); });
  graph.replay();
  synchronize(device_);
  synchronize(other_);
  const testing::FaultDriver faults;
  for (int i = 0; i < 3; ++i) graph.replay();
  EXPECT_EQ(faults.calls("create_event"), 0U);
  EXPECT_EQ(faults.calls("wait_event"), 6U);
  synchronize(device_);
  synchronize(other_);
}

TEST_F(GraphDevicesTest, ACaptureJoinsTheStreamsOfItsDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream before = Stream::current(other_);
  Graph graph;
  {
    GraphCapture capture(graph, {.devices = {other_}});
    EXPECT_NE(Stream::current(other_), before) << "a default stream takes no part";
    EXPECT_TRUE(driver().is_capturing(Stream::current(other_).native()));
    EXPECT_EQ(current_device(), device_);
    capture.end();
    EXPECT_FALSE(driver().is_capturing(Stream::current(other_).native()));
  }
  EXPECT_EQ(Stream::current(other_), before);
  const Stream own = Stream::from_pool(other_);
  const MultiStreamGuard guard({own});
  Graph second;
  {
    const GraphCapture capture(second, {.devices = {other_}});
    EXPECT_EQ(Stream::current(other_), own);
    EXPECT_TRUE(driver().is_capturing(own.native()));
    Graph nested;
    const GraphCapture inner(nested, {.devices = {other_}});
    EXPECT_NE(Stream::current(other_), own) << "it takes part in the outer capture";
  }
  EXPECT_FALSE(driver().is_capturing(own.native()));
  second.replay();
}

TEST_F(GraphDevicesTest, ACaptureRefusesStreamsThatCannotJoin) {
  GANTRY_REQUIRE_DEVICES(2);
  Graph graph;
  const Stream stream = Stream::from_pool(device_);
  EXPECT_ERROR(GraphCapture(graph, {.devices = {Device::cpu()}}), InvalidArgument,
               "Graph::capture_begin: expected a CUDA device, but got cpu");
  EXPECT_ERROR(GraphCapture(graph, {.devices = {Device::cuda(device_count())}}), InvalidArgument,
               "cuda:");
  EXPECT_ERROR(graph.capture_begin({.stream = stream, .devices = {other_}}), InvalidArgument,
               "but got the default stream of cuda:1");
  const Stream taken = Stream::from_pool(other_);
  Graph owner;
  owner.capture_begin({.stream = taken});
  {
    const MultiStreamGuard guard({taken});
    EXPECT_ERROR(graph.capture_begin({.stream = stream, .devices = {other_}}), CaptureError,
                 "expected current streams of options.devices that are not being captured");
  }
  owner.capture_end();
  EXPECT_TRUE(owner.is_captured()) << "the other capture goes on";
  EXPECT_FALSE(driver().is_capturing(stream.native()));
  EXPECT_FALSE(graph.is_captured());
}

TEST_F(GraphDevicesTest, AnExceptionLeavesNoStreamCaptured) {
  GANTRY_REQUIRE_DEVICES(2);
  Graph graph;
  std::optional<Stream> side;
  const auto fail = [&] {
    const GraphCapture capture(graph, {.devices = {other_}});
    side = Stream::current(other_);
    throw std::runtime_error("user");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_FALSE(driver().is_capturing(side->native()));
  const auto spoil = [&] {
    GraphCapture capture(graph, {.devices = {other_}});
    EXPECT_THROW(Stream::current(other_).synchronize(), CudaError);
    capture.end();
  };
  EXPECT_ERROR(spoil(), CaptureError, "Graph::capture_end: failed to capture a graph: ");
  EXPECT_FALSE(driver().is_capturing(side->native()));
}

}  // namespace
}  // namespace gantry
