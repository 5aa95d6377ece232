// Graphs of several devices inside of captures, and errors of waits in captures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/streams/graph_devices_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using testing::GraphDevicesTest;
using ::testing::HasSubstr;
using testing::message_of;

class GraphJoinsTest : public GraphDevicesTest {
 protected:
  // A graph of both devices that copies `in` to `out`.
  static Graph copying(const Tensor& in, const Tensor& out, Device joined) {
    Graph graph;
    capture(graph, {joined}, [&] { out.copy_(in); });
    return graph;
  }
};

TEST_F(GraphJoinsTest, AnOuterGraphOrdersTheDevicesOfTheInnerOne) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor out = on(device_);
  Graph inner = copying(in, out, other_);
  Graph outer;
  capture(outer, {}, [&] { inner.replay(); });  // no stream of the other device takes part
  inner.reset();
  EXPECT_THAT(outer.devices(), ElementsAre(device_, other_));
  expect_ordered(in, out, [&] { outer.replay(); });
}

TEST_F(GraphJoinsTest, AnInnerReplayIsOrderedWithTheStreamsOfItsCapture) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor middle = on(other_);
  const Tensor out = on(device_);
  const Tensor last = on(other_);
  Graph inner = copying(middle, out, other_);
  Graph outer;
  capture(outer, {other_}, [&] {
    middle.copy_(in);
    middle.add_(1);
    inner.replay();
    middle.fill_(-5);
    last.copy_(out);
  });
  for (int i = 1; i <= 5; ++i) {
    in.fill_(i);
    outer.replay();
    EXPECT_EQ(value_of(last), static_cast<float>(i + 1));
    EXPECT_EQ(value_of(middle), -5);
  }
}

TEST_F(GraphJoinsTest, AReplayInACaptureOfTheProgramIsOrderedWithItsStreams) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor out = on(device_);
  Graph inner = copying(in, out, other_);
  const std::vector<Stream> streams = {Stream::from_pool(device_), Stream::from_pool(other_)};
  const MultiStreamGuard guard(streams);
  driver().begin_capture(streams[0].native(), CaptureMode::thread_local_);
  streams[1].wait(streams[0]);
  in.add_(1);
  inner.replay();
  in.fill_(-7);
  streams[0].wait(streams[1]);
  const NativeGraph outer = driver().end_capture(streams[0].native());
  for (int i = 1; i <= 3; ++i) {
    in.fill_(i);
    streams[0].wait(streams[1]);
    driver().launch_graph(outer, streams[0].native());
    streams[1].wait(streams[0]);
    EXPECT_EQ(value_of(out), static_cast<float>(i + 1));
    EXPECT_EQ(value_of(in), -7);
  }
  driver().destroy_graph(outer);
}

TEST_F(GraphJoinsTest, AReplayJoinsTheCaptureOfTheOtherDevicesStream) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor out = on(device_);
  Graph inner = copying(in, out, other_);
  Graph outer;
  {
    const DeviceGuard guard(other_);
    const GraphCapture capture(outer);
    in.add_(1);
    EXPECT_ERROR(
        inner.replay(), CaptureError,
        "Graph::replay: expected a current stream of cuda:0 that can join the capture of ");
    const MultiStreamGuard own({Stream::from_pool(device_)});
    inner.replay();
    EXPECT_TRUE(driver().is_capturing(Stream::current(device_).native()));
  }
  EXPECT_THAT(outer.devices(), ElementsAre(device_, other_));
  for (int i = 1; i <= 3; ++i) {
    in.fill_(i);
    outer.replay();
    EXPECT_EQ(value_of(out), static_cast<float>(i + 1));
  }
}

// The replay finds the stream of the capture behind the one outside of it, or before it.
TEST_F(GraphJoinsTest, AStreamOutsideOfTheJoinedCaptureTakesNoPart) {
  GANTRY_REQUIRE_DEVICES(3);
  const Device third = Device::cuda(2);
  const Tensor first = on(device_);
  const Tensor second = on(other_);
  const Tensor last = on(third);
  Graph inner;
  capture(inner, {other_, third}, [&] {
    second.copy_(first);
    last.copy_(second);
  });
  for (const Device inside : {other_, third}) {
    const Device outside = inside == other_ ? third : other_;
    const MultiStreamGuard streams({Stream::from_pool(device_), Stream::from_pool(outside)});
    const DeviceGuard guard(inside);
    Graph outer;
    {
      const GraphCapture capture(outer);
      inner.replay();
      EXPECT_TRUE(driver().is_capturing(Stream::current(device_).native()));
      EXPECT_FALSE(driver().is_capturing(Stream::current(outside).native()));
    }
    EXPECT_THAT(outer.devices(), ElementsAre(device_, other_, third));
    for (int i = 1; i <= 3; ++i) {
      first.fill_(i);
      last.fill_(-1);
      outer.replay();
      EXPECT_EQ(value_of(last), static_cast<float>(i));
    }
  }
}

TEST_F(GraphJoinsTest, AReplayBetweenTwoCapturesIsRefusedAndSpoilsNone) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(other_);
  const Tensor out = on(device_);
  Graph inner = copying(in, out, other_);
  const std::vector<Stream> streams = {Stream::from_pool(device_), Stream::from_pool(other_)};
  const MultiStreamGuard guard(streams);
  std::vector<Graph> graphs(2);
  const auto begin = [&] {
    for (std::size_t i = 0; i < 2; ++i) {
      graphs[i].capture_begin({.stream = streams[i], .mode = CaptureMode::thread_local_});
    }
  };
  begin();
  EXPECT_ERROR(inner.replay(), CaptureError,
               "Graph::replay: expected current streams that take part in one capture");
  for (Graph& graph : graphs) EXPECT_NO_THROW(graph.capture_end());
  for (Graph& graph : graphs) graph.reset();
  begin();
  EXPECT_THAT(message_of<CudaError>([&] { streams[0].wait(streams[1]); }),
              HasSubstr("take part in different captures; replay one graph in the other capture"));
  for (Graph& graph : graphs) EXPECT_THROW(graph.capture_end(), CaptureError) << "by the wait";
}

TEST_F(GraphJoinsTest, AReplayThatDrawsJoinsNoCapture) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(device_);
  const Tensor out = on(other_);
  Graph inner;
  capture(inner, {other_}, [&] { out.copy_(randn_like(in)); });
  Graph outer;
  {
    const DeviceGuard guard(other_);
    const GraphCapture capture(outer);
    const MultiStreamGuard own({Stream::from_pool(device_)});
    EXPECT_ERROR(inner.replay(), CaptureError, "draws random numbers");
    EXPECT_FALSE(driver().is_capturing(Stream::current(device_).native()));
  }
  EXPECT_TRUE(outer.is_captured());
}

TEST_F(GraphJoinsTest, BodiesTakeGraphsThatMeetNoOtherStreamOfTheCapture) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!driver().supports_conditions(0)) GTEST_SKIP() << "the driver has no conditions";
  const Tensor in = on(device_, 1000);  // so few that a kernel copies them
  const Tensor out = on(other_, 1000);
  const Tensor flag = ones({}, {.dtype = DType::bool_, .device = device_});
  Graph inner = copying(in, out, other_);
  Graph outer;
  capture(outer, {}, [&] { graph_if(flag, [&] { inner.replay(); }); });
  EXPECT_THAT(outer.devices(), ElementsAre(device_, other_));
  expect_ordered(in, out, [&] { outer.replay(); });

  Graph refused;
  const auto meet = [&] {
    capture(refused, {other_}, [&] { graph_if(flag, [&] { inner.replay(); }); });
  };
  EXPECT_ERROR(meet(), CaptureError,
               "Graph::replay: expected a graph of one device in the body of a condition");
  EXPECT_FALSE(is_current_stream_capturing());
}

TEST_F(GraphJoinsTest, AWaitForAStreamOutsideNamesItAndTheRemedy) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor in = on(device_);
  const Tensor out = on(other_);
  const auto message_in_capture = [&](const std::function<void()>& work) {
    Graph graph;
    GraphCapture capture(graph);
    std::string message = message_of<CudaError>(work);
    graph.reset();
    EXPECT_THROW(capture.end(), Error);
    return message;
  };
  const std::string forgotten = message_in_capture([&] { out.copy_(in); });
  EXPECT_THAT(forgotten, HasSubstr("cudaErrorStreamCaptureIsolation"));
  EXPECT_THAT(forgotten, HasSubstr("of cuda:0 is being captured, but the default stream of cuda:1 "
                                   "takes no part in the capture; name cuda:1 in "
                                   "GraphCapture(graph, {.devices = {\"cuda:1\"}})"));
  const std::string reversed = message_in_capture([&] { in.copy_(out); });
  EXPECT_THAT(reversed,
              HasSubstr("the default stream of cuda:1 can take no part in the capture of "));
  EXPECT_THAT(reversed, HasSubstr("name cuda:1 in GraphCapture(graph, {.devices = {\"cuda:1\"}})"));

  const Stream side = Stream::from_pool(device_);
  const Event event = side.record();
  const std::string by_event = message_in_capture([&] { Stream::current(device_).wait(event); });
  EXPECT_THAT(by_event, HasSubstr("stream " + std::to_string(side.id()) +
                                  " of cuda:0 takes no part in the capture; make it wait for the "
                                  "stream of the capture first"));
}

}  // namespace
}  // namespace gantry
