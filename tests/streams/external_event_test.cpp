// External events: nodes of graphs that record an event, or wait for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/host_function.hpp>
#include <gantry/tensor/conditional.hpp>

#include "tests/streams/graph_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::StreamHold;
using ::testing::ThrowsMessage;

constexpr EventOptions kExternal{.external = true};
constexpr EventOptions kTimed{.timing = true, .external = true};

// A captured place where replays stop until the host opens it.
class Gate {
 public:
  void capture(const Stream& stream) {
    launch_host_function(stream, [this] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_open_; });
      is_open_ = false;
    });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

// Keeps a thread of the driver busy, as a kernel would keep the device.
void work_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// Expects that the work of `stream` ends with the hold alone, which is released.
void expect_held_back(const Stream& stream, StreamHold& hold) {
  std::future<void> end = std::async(std::launch::async, [&] { stream.synchronize(); });
  EXPECT_EQ(end.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  hold.release();
  end.get();
}

class ExternalEventTest : public testing::GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (!IsSkipped()) chosen_ = Stream::from_pool(device_);
  }
  [[nodiscard]] const Stream& stream() const { return *chosen_; }

  // Captures what `body` submits to the stream.
  template <class Body>
  Graph captured(Body&& body) {
    Graph graph;
    GraphCapture capture(graph, {.stream = stream()});
    body();
    capture.end();
    return graph;
  }
  // Behind the work of the current stream, which made the tensors.
  void replay(Graph& graph) {
    stream().wait(Stream::current(device_));
    const StreamGuard guard(stream());
    graph.replay();
  }

 private:
  std::optional<Stream> chosen_;
};

TEST_F(ExternalEventTest, AReplayIsTimedFromOutside) {
  Event begin(kTimed);
  Event end(kTimed);
  Event middle(kTimed);
  Tensor x = equal(1);
  Graph graph = captured([&] {
    begin.record(stream());
    x.add_(1);
    launch_host_function(stream(), [] { work_for(std::chrono::milliseconds(3)); });
    middle.record(stream());
    end.record(stream());
  });
  EXPECT_EQ(value_of(x), 1) << "nothing has run yet";
  for (int round = 1; round <= 3; ++round) {
    replay(graph);
    end.synchronize();
    EXPECT_GE(begin.elapsed_ms(end), 2.9F);
    EXPECT_GE(begin.elapsed_ms(middle), 2.9F);
    EXPECT_LT(middle.elapsed_ms(end), begin.elapsed_ms(middle));
    EXPECT_EQ(value_of(x), 1.0F + static_cast<float>(round));
  }
}

TEST_F(ExternalEventTest, EachReplayRecordsItInTheMiddleOfTheGraph) {
  Event event(kExternal);
  Gate first;
  Gate second;
  Graph graph = captured([&] {
    first.capture(stream());
    event.record(stream());
    second.capture(stream());
  });
  for (int round = 0; round < 3; ++round) {
    replay(graph);
    EXPECT_FALSE(event.query()) << "the record of an earlier replay";
    first.open();
    event.synchronize();
    EXPECT_FALSE(stream().query()) << "the graph goes on behind the record";
    second.open();
    stream().synchronize();
  }
}

TEST_F(ExternalEventTest, AStreamOutsideWaitsForAReplay) {
  Event event(kExternal);
  const Stream outside = Stream::from_pool(device_);
  Gate gate;
  Tensor x = equal(1);
  Graph graph = captured([&] {
    gate.capture(stream());
    x.mul_(2);
    event.record(stream());
  });
  for (const float value : {2.0F, 4.0F}) {
    replay(graph);
    event.wait(outside);
    EXPECT_FALSE(outside.query());
    gate.open();
    const StreamGuard guard(outside);
    EXPECT_EQ(value_of(x), value);
  }
}

TEST_F(ExternalEventTest, AReplayWaitsForTheLastRecordOutside) {
  Event event(kExternal);
  const Stream outside = Stream::from_pool(device_);
  event.record(outside);
  Graph graph = captured([&] { event.wait(stream()); });
  replay(graph);
  stream().synchronize();
  for (int round = 0; round < 2; ++round) {
    StreamHold hold(outside);
    event.record(outside);
    replay(graph);
    expect_held_back(stream(), hold);
  }
}

TEST_F(ExternalEventTest, BranchesOfAGraphRecordAndWait) {
  Event record(kTimed);
  Event wait(kExternal);
  const Stream side = Stream::from_pool(device_);
  const Stream outside = Stream::from_pool(device_);
  Tensor x = equal(1);
  wait.record(outside);
  Graph graph = captured([&] {
    side.wait(stream());
    {
      const StreamGuard guard(side);
      wait.wait(side);
      x.add_(1);
      record.record(side);
    }
    stream().wait(side);
    x.mul_(10);
  });
  for (const float value : {20.0F, 210.0F}) {
    StreamHold hold(outside);
    wait.record(outside);
    replay(graph);
    EXPECT_FALSE(record.query());
    expect_held_back(stream(), hold);
    EXPECT_TRUE(record.query());
    EXPECT_EQ(value_of(x), value);
  }
}

TEST_F(ExternalEventTest, AGraphInAGraphRecordsIt) {
  Event event(kExternal);
  Gate gate;
  Graph inner = captured([&] {
    gate.capture(stream());
    event.record(stream());
  });
  Graph outer = captured([&] { inner.replay(); });
  replay(outer);
  EXPECT_FALSE(event.query());
  gate.open();
  event.synchronize();
}

TEST_F(ExternalEventTest, OutsideOfCapturesItIsAnEvent) {
  Event event(kTimed);
  const Stream other = Stream::from_pool(device_);
  EXPECT_TRUE(event.query());
  event.wait(other);  // has no effect without a record
  StreamHold hold(stream());
  event.record(stream());
  EXPECT_FALSE(event.query());
  event.wait(other);
  EXPECT_FALSE(other.query());
  hold.release();
  other.synchronize();
  EXPECT_TRUE(event.query());
  Event later(kTimed);
  later.record(stream());
  later.synchronize();
  EXPECT_GE(event.elapsed_ms(later), 0.0F);
  Event moved(std::move(event));
  EXPECT_TRUE(moved.options().external);
  EXPECT_TRUE(moved.query());
}

TEST_F(ExternalEventTest, PlainEventsInACaptureStayInside) {
  Event event({.timing = true});
  Graph graph = captured([&] { event.record(stream()); });
  replay(graph);
  stream().synchronize();
  Event other({.timing = true});
  other.record(stream());
  other.synchronize();
  EXPECT_THROW(static_cast<void>(event.elapsed_ms(other)), CudaError);
}

TEST_F(ExternalEventTest, AReplayCannotWaitForAnEventWithoutARecord) {
  const Event event(kExternal);
  Graph graph;
  GraphCapture capture(graph, {.stream = stream()});
  EXPECT_THAT([&] { event.wait(stream()); },
              ThrowsMessage<InvalidArgument>(
                  "Event::wait: expected an external event with a record, but got one without, for "
                  "which no replay could wait; record it before the capture"));
  capture.end();
}

TEST_F(ExternalEventTest, ABodyOfAConditionHasNone) {
  Event event(kExternal);
  event.record(stream());
  const Tensor flag = ones({1}, {.dtype = DType::i32, .device = device_});
  for (const bool waits : {false, true}) {
    Graph graph;
    GraphCapture capture(graph, {.stream = stream()});
    EXPECT_THROW(graph_if(flag, [&] { waits ? event.wait() : event.record(); }), Error);
    EXPECT_THROW(capture.end(), CaptureError);
  }
}

TEST_F(ExternalEventTest, ExcludesInterprocess) {
  EXPECT_THAT([] { Event({.interprocess = true, .external = true}); },
              ThrowsMessage<InvalidArgument>("Event: expected an interprocess event without nodes "
                                             "of graphs, but got external = true"));
}

// On GPUs the graph would use memory of the driver that is gone.
TEST_F(ExternalEventTest, AReplayWithoutItsEventIsRefused) {
  GANTRY_REQUIRE_SIM();
  auto event = std::make_unique<Event>(kExternal);
  Graph graph = captured([&] { event->record(stream()); });
  event.reset();
  EXPECT_THROW(replay(graph), CudaError);
}

}  // namespace
}  // namespace gantry
