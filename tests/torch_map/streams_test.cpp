// Rows about streams, events and graphs.
#include "tests/torch_map/torch_map_fixture.hpp"

namespace {

using namespace gantry;
using gantry::testing::TorchCudaMapTest;
using ::testing::ElementsAre;

TEST_F(TorchCudaMapTest, CurrentStream) {
  EXPECT_EQ(Stream::current("cuda:0"), Stream::default_stream("cuda:0"));
}

TEST_F(TorchCudaMapTest, PooledStream) {
  const Stream stream = Stream::from_pool("cuda:0", StreamPriority::high);
  EXPECT_EQ(stream.priority(), StreamPriority::high);
}

TEST_F(TorchCudaMapTest, OwnedStreams) {
  const auto range = stream_priority_range("cuda:0");
  EXPECT_LE(range.greatest, range.least);
  const OwnedStream own("cuda:0", range.greatest);
  EXPECT_EQ(own.priority(), range.greatest);
  EXPECT_NE(own.stream(), Stream::default_stream("cuda:0"));
  own.stream().synchronize();
}

TEST_F(TorchCudaMapTest, ForeignStream) {
  const Stream pooled = Stream::from_pool("cuda:0");
  void* handle = pooled.native_handle();
  EXPECT_EQ(Stream::external(handle, "cuda:0"), pooled);
}

TEST_F(TorchCudaMapTest, StreamScope) {
  const Stream s = Stream::from_pool("cuda:0");
  {
    StreamGuard guard(s);
    EXPECT_EQ(Stream::current("cuda:0"), s);
  }
  EXPECT_EQ(Stream::current("cuda:0"), Stream::default_stream("cuda:0"));
}

TEST_F(TorchCudaMapTest, OptionalStreamScope) {
  const Stream s = Stream::from_pool("cuda:0");
  OptionalStreamGuard guard;
  EXPECT_EQ(guard.current_stream(), std::nullopt);
  guard.set_stream(s);
  EXPECT_EQ(Stream::current("cuda:0"), s);
  guard.reset();
  EXPECT_EQ(Stream::current("cuda:0"), Stream::default_stream("cuda:0"));
}

TEST_F(TorchCudaMapTest, SetStream) {
  const Stream s = Stream::from_pool("cuda:0");
  set_stream(s);
  EXPECT_EQ(Stream::current("cuda:0"), s);
  set_stream(Stream::default_stream("cuda:0"));
}

TEST_F(TorchCudaMapTest, StreamMembers) {
  const Stream a = Stream::from_pool("cuda:0");
  const Stream b = Stream::from_pool("cuda:0");
  const Event e = a.record();
  b.wait(e);
  b.wait(a);
  b.synchronize();
  EXPECT_TRUE(a.query());
}

TEST_F(TorchCudaMapTest, EventMembers) {
  Event e({.timing = true});
  Event end({.timing = true});
  e.record(Stream::current());
  end.record(Stream::current());
  e.wait(Stream::from_pool());
  end.synchronize();
  EXPECT_TRUE(e.query());
  EXPECT_GE(e.elapsed_ms(end), 0);
}

TEST_F(TorchCudaMapTest, EventIpc) {
  Event e({.interprocess = true});
  e.record(Stream::current());
  const IpcEventHandle handle = e.ipc_handle();
  const Device device = "cuda:0";
  try {
    Event::from_ipc(handle, device).synchronize();
  } catch (const Error&) {  // drivers open events of other processes only
  }
  EXPECT_TRUE(std::any_of(handle.bytes.begin(), handle.bytes.end(),
                          [](std::byte b) { return b != std::byte{0}; }));
  e.synchronize();
}

TEST_F(TorchCudaMapTest, GraphScope) {
  Tensor t = zeros({2}, "cuda:0");
  Graph graph;
  {
    GraphCapture capture(graph);
    EXPECT_TRUE(is_current_stream_capturing());
    t.add_(1);
  }
  EXPECT_FALSE(is_current_stream_capturing());
  graph.replay();
  graph.replay();
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(2, 2));
}

TEST_F(TorchCudaMapTest, GraphMembers) {
  Tensor t = zeros({2}, "cuda:0");
  const Stream s = Stream::from_pool("cuda:0");
  StreamGuard guard(s);
  synchronize();
  Graph graph;
  graph.capture_begin({.stream = s});
  t.add_(1);
  graph.capture_end();
  graph.replay();
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(1, 1));
  EXPECT_NE(graph.pool(), MemPoolId::none);
  graph.reset();
  EXPECT_FALSE(graph.is_captured());
}

TEST_F(TorchCudaMapTest, GraphDump) {
  const gantry::testing::TemporaryFolder folder;
  Tensor t = zeros({2}, "cuda:0");
  Graph graph;
  {
    GraphCapture capture(graph);
    t.add_(1);
  }
  const std::string path = folder.path() / "graph.dot";
  graph.debug_dump(path);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(TorchCudaMapTest, GraphPool) {
  const MemPoolId pool = graph_pool_handle();
  Graph first;
  Graph second;
  Tensor t = zeros({2}, "cuda:0");
  {
    GraphCapture capture(first, {.pool = pool});
    t.add_(1);
  }
  {
    GraphCapture capture(second, {.pool = pool});
    t.mul_(3);
  }
  first.replay();
  second.replay();
  EXPECT_THAT(t.to_vector<float>(), ElementsAre(3, 3));
}

TEST_F(TorchCudaMapTest, GraphedCallables) {
  const std::vector<Tensor> samples{zeros({2}, "cuda:0")};
  auto graphed = make_graphed(
      [](std::span<const Tensor> in) { return std::vector<Tensor>{in[0].add(1)}; }, samples);
  const std::vector<Tensor> in{ones({2}, "cuda:0")};
  EXPECT_THAT(graphed(in)[0].to_vector<float>(), ElementsAre(2, 2));
}

TEST_F(TorchCudaMapTest, GraphRandom) {
  manual_seed_all(7);
  const Tensor eager = rand({4}, "cuda:0");
  manual_seed_all(7);
  Tensor t = zeros({4}, "cuda:0");
  Graph graph;
  {
    GraphCapture capture(graph);
    t.uniform_();
  }
  graph.replay();
  EXPECT_TRUE(t.equal(eager));
}

TEST_F(TorchCudaMapTest, NvtxMark) {
  nvtx::mark("a step begins");
  EXPECT_THROW(nvtx::mark(std::string("a\0b", 3)), InvalidArgument);
}

TEST_F(TorchCudaMapTest, NvtxPushPop) {
  EXPECT_EQ(nvtx::range_push("outer"), 0);
  EXPECT_EQ(nvtx::range_push("inner"), 1);
  EXPECT_EQ(nvtx::range_pop(), 1);
  EXPECT_EQ(nvtx::range_pop(), 0);
  EXPECT_THROW(nvtx::range_pop(), InvalidArgument);
}

TEST_F(TorchCudaMapTest, NvtxRange) {
  nvtx::Range range("forward");
  EXPECT_EQ(nvtx::range_push("inside"), 1);
  nvtx::range_pop();
}

TEST_F(TorchCudaMapTest, ProfilerSwitch) {
  profiler::start();
  EXPECT_EQ(ones({2}, "cuda:0").add(1).sum().item<float>(), 4);
  profiler::stop();
}

TEST_F(TorchCudaMapTest, ProfilerScope) {
  profiler::Scope recorded;
  EXPECT_EQ(ones({2}, "cuda:0").add(1).sum().item<float>(), 4);
}

TEST_F(TorchCudaMapTest, NvtxStartEnd) {
  const auto id = nvtx::range_start("an epoch");
  nvtx::range_end(id);
  EXPECT_THROW(nvtx::range_end(id), InvalidArgument);
}

}  // namespace
