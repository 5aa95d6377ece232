#include <gantry/streams/graph.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>

#include "tests/streams/graph_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry {
namespace {

using testing::GraphTest;

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

}  // namespace
}  // namespace gantry
