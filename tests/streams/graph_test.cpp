#include <gantry/streams/graph.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

class GraphTest : public testing::DeviceTest {
 protected:
  const Device device_ = Device::cuda(0);
  const TensorOptions options_{.dtype = DType::f32, .device = device_};

  // `count` values, all equal.
  [[nodiscard]] Tensor equal(float value, std::int64_t count = 1000) const {
    return full({count}, value, options_);
  }
  // The value of all elements; fails if they differ.
  static float value_of(const Tensor& tensor) {
    const auto values = tensor.to_vector<float>();
    EXPECT_EQ(values, std::vector<float>(values.size(), values.at(0)));
    return values.at(0);
  }
};

TEST_F(GraphTest, ReplaysWhatWasCapturedWithTheInputsOfThatMoment) {
  const Tensor in = equal(1);
  const Tensor out = equal(0);
  Graph graph;
  EXPECT_FALSE(graph.is_captured());
  {
    const GraphCapture capture(graph);
    EXPECT_TRUE(is_current_stream_capturing());
    EXPECT_EQ(Stream::current(), capture.stream());
    out.add_(in * 10);
  }
  EXPECT_FALSE(is_current_stream_capturing());
  EXPECT_TRUE(graph.is_captured());
  EXPECT_EQ(graph.device(), device_);
  EXPECT_EQ(value_of(out), 0) << "captured work does not run";
  graph.replay();
  EXPECT_EQ(value_of(out), 10);
  in.fill_(2);
  graph.replay();
  graph.replay();
  EXPECT_EQ(value_of(out), 50);
}

TEST_F(GraphTest, ReplaysOnSeveralStreamsFollowEachOther) {
  const Tensor out = equal(1, 100'000);
  Graph graph;
  {
    const GraphCapture capture(graph);
    out.mul_(2);
    out.add_(1);
  }
  std::vector<Stream> streams;
  for (int i = 0; i < 4; ++i) {
    streams.push_back(Stream::from_pool(device_));
    streams.back().wait(Stream::current(device_));
  }
  float expected = 1;
  for (int i = 0; i < 12; ++i) {
    const StreamGuard guard(streams[static_cast<std::size_t>(i % 4)]);
    graph.replay();
    expected = 2 * expected + 1;
  }
  Stream::current(device_).wait(streams[3]);
  EXPECT_EQ(value_of(out), expected);
}

TEST_F(GraphTest, TemporariesOfACaptureStayTheGraphsOwn) {
  const Tensor in = equal(3);
  Graph graph;
  std::optional<Tensor> out;
  {
    const GraphCapture capture(graph);
    out = (in * 2 + 1) * (in - 1);
  }
  std::vector<Tensor> others;
  for (int i = 0; i < 16; ++i) others.push_back(equal(7));
  graph.replay();
  EXPECT_EQ(value_of(*out), 14);
  for (const Tensor& other : others) EXPECT_EQ(value_of(other), 7);
}

TEST_F(GraphTest, ADestroyedGraphGivesItsMemoryBack) {
  memory::empty_cache();
  const std::size_t before = memory::reserved(device_);
  {
    Graph graph;
    {
      const GraphCapture capture(graph);
      const Tensor temporary = zeros({4 << 20}, options_);
      temporary.add_(1);
    }
    graph.replay();
    memory::empty_cache();
    EXPECT_GE(memory::reserved(device_), before + (16 << 20));
  }
  synchronize(device_);
  EXPECT_TRUE(testing::eventually([&] {
    memory::empty_cache();
    return memory::reserved(device_) == before;
  }));
}

TEST_F(GraphTest, BranchesOfOtherStreamsRunBetweenForkAndJoin) {
  const Tensor a = equal(0, 50'000);
  const Tensor b = equal(0, 50'000);
  const Tensor sum = equal(0, 50'000);
  const Stream side = Stream::from_pool(device_);
  const Stream third = Stream::from_pool(device_);
  Graph graph;
  {
    const GraphCapture capture(graph);
    a.add_(1);
    side.wait(capture.stream());
    third.wait(capture.stream());
    {
      const StreamGuard guard(side);
      b.copy_(a);
      b.mul_(10);
    }
    {
      const StreamGuard guard(third);
      sum.copy_(a);
      third.wait(side);
      sum.add_(b);
    }
    capture.stream().wait(third);
    sum.mul_(2);
  }
  for (int run = 1; run <= 3; ++run) {
    graph.replay();
    EXPECT_EQ(value_of(sum), static_cast<float>(22 * run));
  }
}

TEST_F(GraphTest, OneCaptureHoldsWorkOfSeveralDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const Device other = Device::cuda(1);
  const Tensor here = equal(1);
  const Tensor there = zeros({1000}, {.dtype = DType::f32, .device = other});
  const Stream side = Stream::from_pool(other);
  Graph graph;
  {
    const GraphCapture capture(graph);
    here.add_(1);
    side.wait(capture.stream());
    {
      const StreamGuard guard(side);
      there.add_(5);
    }
    capture.stream().wait(side);
    here.mul_(3);
  }
  synchronize(other);  // its stream is not ordered after `there`
  graph.replay();
  graph.replay();
  synchronize(device_);
  EXPECT_EQ(value_of(here), 21);
  EXPECT_EQ(value_of(there), 10);
}

TEST_F(GraphTest, CapturesThatShareMemoryReuseEachOthersFreedBlocks) {
  const MemPoolId pool = graph_pool_handle();
  const Tensor in = equal(1, 1 << 20);
  Graph first;
  Graph second;
  Graph alone;
  std::optional<Tensor> out_of_first;
  std::optional<Tensor> out_of_second;
  const auto capture = [&](Graph& graph, MemPoolId shared, std::optional<Tensor>& out) {
    const std::size_t before = memory::reserved(device_);
    const GraphCapture scope(graph, {.pool = shared});
    out = (in + 1) * (in + 2) - (in + 3) * (in + 4);
    return memory::reserved(device_) - before;
  };
  std::optional<Tensor> out_of_alone;
  const std::size_t first_bytes = capture(first, pool, out_of_first);
  const std::size_t second_bytes = capture(second, pool, out_of_second);
  const std::size_t alone_bytes = capture(alone, MemPoolId::none, out_of_alone);
  EXPECT_EQ(first.pool(), pool);
  EXPECT_EQ(second.pool(), pool);
  EXPECT_NE(alone.pool(), pool);
  EXPECT_LT(second_bytes, first_bytes);
  EXPECT_EQ(alone_bytes, first_bytes);
  EXPECT_NE(out_of_first->data_ptr(), out_of_second->data_ptr());
  first.replay();
  in.fill_(2);
  second.replay();
  EXPECT_EQ(value_of(*out_of_first), 6 - 20) << "a held output is not overwritten";
  EXPECT_EQ(value_of(*out_of_second), 12 - 30);
}

TEST_F(GraphTest, SharedMemoryLastsUntilTheLastOfItsGraphs) {
  Graph second;
  const Tensor in = equal(1, 1 << 20);
  std::optional<Tensor> out;
  {
    Graph first;
    {
      const GraphCapture capture(first);
      const Tensor temporary = in + 1;
    }
    const GraphCapture capture(second, {.pool = first.pool()});
    const Tensor temporary = in + 1;
    out = temporary * 3;
  }
  synchronize(device_);
  memory::empty_cache();
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(equal(7, 1 << 20));
  second.replay();
  EXPECT_EQ(value_of(*out), 6);
  for (const Tensor& other : others) EXPECT_EQ(value_of(other), 7);
}

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
    graph.update(other);
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
