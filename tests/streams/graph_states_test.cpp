// Graphs in states and calls that they refuse, updates, dumps, nesting, failures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/streams/graph_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using testing::GraphTest;
using ::testing::HasSubstr;
using testing::TemporaryFolder;

TEST_F(GraphTest, RejectsCallsThatDoNotFitItsState) {
  Graph graph;
  EXPECT_ERROR(
      graph.replay(), CaptureError,
      "Graph::replay: expected a captured graph, but got one that nothing was captured into");
  EXPECT_ERROR(graph.pool(), CaptureError, "Graph::pool: expected a captured graph");
  EXPECT_ERROR(graph.debug_dump("x"), CaptureError, "Graph::debug_dump: expected");
  EXPECT_ERROR(graph.capture_end(), InvalidArgument,
               "Graph::capture_end: expected a capture under way");
  EXPECT_ERROR(graph.capture_begin(), InvalidArgument,
               "Graph::capture_begin: expected a stream of the pool or of the program, but got ");
  const Tensor x = equal(1);
  {
    const GraphCapture capture(graph);
    x.add_(1);
    EXPECT_ERROR(graph.capture_begin(), InvalidArgument,
                 "expected an empty graph, but got one whose capture is under way; call reset()");
    EXPECT_ERROR(graph.replay(), CaptureError, "but got one whose capture is under way");
    Graph nested;
    EXPECT_ERROR(nested.capture_begin({.stream = capture.stream()}), CudaError, "captur");
  }
  EXPECT_ERROR(GraphCapture(graph), InvalidArgument,
               "expected an empty graph, but got one that is captured");
  EXPECT_FALSE(is_current_stream_capturing());
  graph.replay();
  EXPECT_EQ(value_of(x), 2);
  graph.reset();
  EXPECT_FALSE(graph.is_captured());
  {
    const GraphCapture capture(graph);
    x.add_(10);
  }
  graph.replay();
  EXPECT_EQ(value_of(x), 12);
}

TEST_F(GraphTest, AnExceptionInTheScopeLeavesNoCaptureAndNoMemory) {
  const Tensor x = equal(1);
  memory::empty_cache();
  const std::size_t before = memory::allocated(device_);
  Graph graph;
  const auto fail = [&](auto&& action) {
    const GraphCapture capture(graph);
    const Tensor temporary = x + 1;
    static_cast<void>(rand_like(x));  // its position lies in memory of the capture
    action(temporary);
  };
  EXPECT_THROW(fail([](const Tensor&) { throw std::runtime_error("user"); }), std::runtime_error);
  EXPECT_THROW(fail([](const Tensor& t) { (void)t.sum().item<float>(); }), Error)
      << "a call that waits for the device";
  EXPECT_FALSE(is_current_stream_capturing());
  EXPECT_FALSE(graph.is_captured());
  EXPECT_EQ(memory::allocated(device_), before);
  fail([&](const Tensor& temporary) { x.copy_(temporary); });
  graph.replay();
  EXPECT_EQ(value_of(x), 2);
}

TEST_F(GraphTest, AFailedCaptureTellsItsReasonAtReplay) {
  const Tensor x = equal(1);
  const Stream side = Stream::from_pool(device_);
  Graph graph;
  {
    const GraphCapture capture(graph);
    side.wait(capture.stream());
    const StreamGuard guard(side);
    x.add_(1);  // never joined
  }
  EXPECT_ERROR(graph.replay(), CaptureError,
               "expected a captured graph, but got one whose capture failed: ");
  {
    GraphCapture capture(graph);
    side.wait(capture.stream());
    {
      const StreamGuard guard(side);
      x.add_(1);
    }
    EXPECT_ERROR(capture.end(), CaptureError, "Graph::capture_end: failed to capture a graph: ");
    EXPECT_ERROR(capture.end(), InvalidArgument, "GraphCapture::end: expected");
  }
  EXPECT_FALSE(graph.is_captured());
  EXPECT_EQ(value_of(x), 1);
}

TEST_F(GraphTest, UpdateTakesTheParametersOfAnotherGraph) {
  const Tensor x = equal(1);
  const Tensor y = equal(100);
  Graph graph;
  {
    const GraphCapture capture(graph);
    x.add_(1);
    x.mul_(2);
  }
  graph.replay();
  {
    Graph other;
    {
      const GraphCapture capture(other);
      y.add_(5);
      y.mul_(3);
    }
    graph.update(other);
  }
  graph.replay();
  EXPECT_EQ(value_of(x), 4);
  EXPECT_EQ(value_of(y), 315);

  Graph different;
  {
    const GraphCapture capture(different);
    y.add_(1);
  }
  EXPECT_ERROR(graph.update(different), InvalidArgument,
               "Graph::update: expected graphs with the same nodes");
  graph.replay();
  EXPECT_EQ(value_of(y), 960) << "a refused update changes nothing";
  const Graph empty;
  EXPECT_ERROR(graph.update(empty), CaptureError, "Graph::update: expected a captured");
}

TEST_F(GraphTest, UpdateKeepsTheMemoryOfTheOtherCapture) {
  const Tensor in = equal(1, 1 << 20);
  const Tensor out = equal(0, 1 << 20);
  Graph graph;
  {
    const GraphCapture capture(graph);
    out.copy_((in + 1) * 2);
  }
  {
    Graph other;
    {
      const GraphCapture capture(other);
      out.copy_((in + 5) * 3);
    }
    ASSERT_NE(graph.pool(), other.pool());
    graph.update(other);
    EXPECT_EQ(graph.pool(), other.pool());
  }
  synchronize(device_);
  memory::empty_cache();
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(equal(7, 1 << 20));
  graph.replay();
  EXPECT_EQ(value_of(out), 18);
  for (const Tensor& other : others) EXPECT_EQ(value_of(other), 7);
}

TEST_F(GraphTest, DumpsNodesInDot) {
  const TemporaryFolder folder;
  const Tensor x = equal(1);
  Graph graph;
  {
    const GraphCapture capture(graph);
    x.add_(1);
    x.mul_(2);
  }
  const std::string path = (folder.path() / "graph.dot").string();
  graph.debug_dump(path);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, HasSubstr("digraph"));
  EXPECT_THAT(text, HasSubstr("->"));
  EXPECT_THROW(graph.debug_dump((folder.path() / "none" / "graph.dot").string()), CudaError);
}

TEST_F(GraphTest, AGraphInACaptureBecomesPartOfTheOuterOne) {
  const Tensor x = equal(1);
  const Stream side = Stream::from_pool(device_);
  Graph inner;
  {
    const GraphCapture capture(inner);
    x.add_(1);
    side.wait(capture.stream());
    {
      const StreamGuard guard(side);
      x.mul_(2);
    }
    capture.stream().wait(side);
  }
  Graph outer;
  {
    const GraphCapture capture(outer);
    inner.replay();
    x.add_(10);
    inner.replay();
  }
  inner.reset();
  outer.replay();
  EXPECT_EQ(value_of(x), 30);
}

TEST_F(GraphTest, ADestroyedGraphStillCompletes) {
  const Tensor x = equal(1);
  {
    Graph graph;
    {
      const GraphCapture capture(graph);
      for (int i = 0; i < 50; ++i) x.add_(1);
    }
    graph.replay();
    graph.replay();
  }
  EXPECT_EQ(value_of(x), 101);
  Graph open;
  const Stream stream = Stream::from_pool(device_);
  {
    Graph unfinished;
    unfinished.capture_begin({.stream = stream});
  }
  stream.synchronize();  // allowed again
}

TEST_F(GraphTest, AMovedFromGraphSaysSo) {
  const Tensor x = equal(1);
  Graph graph;
  {
    const GraphCapture capture(graph);
    x.add_(1);
  }
  Graph taken = std::move(graph);
  taken.replay();
  EXPECT_EQ(value_of(x), 2);
  EXPECT_ERROR(graph.replay(), InvalidArgument, "Graph::replay");
}

// Captures, replays, and ends with the graph. Returns the driver's error, if there was one.
std::string capture_and_replay(const Tensor& x) {
  try {
    Graph graph;
    {
      GraphCapture capture(graph);
      const Tensor temporary = x + 1;
      x.copy_(temporary * 0);
      capture.end();
    }
    graph.replay();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_F(GraphTest, ADriverThatFailsLeavesNothingBehind) {
  const Tensor x = equal(1, 1 << 18);
  ASSERT_EQ(capture_and_replay(x), "");
  synchronize(device_);
  std::map<std::string, std::uint64_t> calls;
  {
    const testing::FaultDriver faults;
    ASSERT_EQ(capture_and_replay(x), "");
    calls = faults.counts();
    synchronize(device_);
  }
  const std::size_t allocated = memory::allocated(device_);
  std::size_t failures = 0;
  for (const auto& [call, count] : calls) {
    if (call.starts_with("destroy_") || call == "restore_device") continue;
    for (std::uint64_t nth = 1; nth <= count; ++nth) {
      {
        testing::FaultDriver faults;
        faults.fail_on(call, nth);
        failures += capture_and_replay(x).empty() ? 0 : 1;
        faults.fail_nothing();
        synchronize(device_);
      }
      EXPECT_FALSE(is_current_stream_capturing()) << call << nth;
      EXPECT_EQ(memory::allocated(device_), allocated) << call << nth;
    }
  }
  EXPECT_GE(failures, 8U);
  x.fill_(1);
  EXPECT_EQ(capture_and_replay(x), "");
  EXPECT_EQ(value_of(x), 0);
}

}  // namespace
}  // namespace gantry
