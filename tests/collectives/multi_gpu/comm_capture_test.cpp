// comm::* captured into one graph over several devices, and replayed.
#include <gantry/collectives/comm.hpp>

#include <gtest/gtest.h>

#include <functional>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/event.hpp>

#include "tests/collectives/multi_gpu/comm_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using testing::all_tunings;
using testing::TuningScope;

class CommCaptureTest : public testing::CommFixture {
 protected:
  // Captures `body` with all `streams` taking part, which are current; the first is the origin.
  static NativeGraph capture(const std::vector<Stream>& streams,
                             const std::function<void()>& body) {
    driver().begin_capture(streams[0].native(), CaptureMode::relaxed);
    for (std::size_t i = 1; i < streams.size(); ++i) streams[i].wait(streams[0]);
    body();
    for (std::size_t i = 1; i < streams.size(); ++i) streams[0].wait(streams[i]);
    return driver().end_capture(streams[0].native());
  }

  static void replay(NativeGraph graph, const std::vector<Stream>& streams) {
    for (std::size_t i = 1; i < streams.size(); ++i) streams[0].wait(streams[i]);
    driver().launch_graph(graph, streams[0].native());
    for (std::size_t i = 1; i < streams.size(); ++i) streams[i].wait(streams[0]);
  }
};

TEST_F(CommCaptureTest, ReplaysDoWhatTheCallsDid) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    const auto n = static_cast<std::int64_t>(devices().size());
    Tensor source = ramp({3000 * n}, Device::cuda(0), 0);
    // Outputs that an earlier call cached must not be used in the graph.
    for (int i = 0; i < 2; ++i) (void)comm::broadcast(source, devices());
    std::vector<Tensor> copies;
    std::vector<Tensor> chunks;
    std::vector<std::vector<Tensor>> lists;
    std::vector<Tensor> sums;
    Tensor sum;
    Tensor joined;
    const NativeGraph graph = capture(streams, [&] {
      copies = comm::broadcast(source, devices());
      sum = comm::reduce_add(copies, devices().back());
      chunks = comm::scatter(sum, devices());
      joined = comm::gather(chunks, {.destination = Device::cuda(0)});
      lists = comm::broadcast_coalesced({joined, source}, devices());
      sums = comm::reduce_add_coalesced(lists, Device::cuda(0));
    });
    for (int round = 1; round < 4; ++round) {
      source.fill_(round);
      replay(graph, streams);
      source.fill_(-1);
      for (const Tensor& copy : copies) {
        if (copy.is_view_of(source)) continue;
        EXPECT_EQ(copy.amax().item<int>(), round);
      }
      for (const Tensor& tensor : {sum, joined}) {
        EXPECT_EQ(tensor.amin().item<int>(), n * round);
        EXPECT_EQ(tensor.amax().item<int>(), n * round);
      }
      EXPECT_EQ(sums[0].amin().item<int>(), n * n * round);
      EXPECT_EQ(sums[1].amax().item<int>(), n * round);
    }
    driver().destroy_graph(graph);
  }
}

TEST_F(CommCaptureTest, InPlaceExchangesCanBeCaptured) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Stream> streams = side_streams();
  const MultiStreamGuard guard(streams);
  std::vector<Tensor> tensors;
  for (const Device device : devices()) tensors.push_back(ones({500}, {.device = device}));
  const NativeGraph graph = capture(streams, [&] { comm::all_reduce(tensors); });
  int expected = 1;
  for (int round = 0; round < 3; ++round) {
    replay(graph, streams);
    expected *= device_count();
  }
  for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.amin().item<int>(), expected);
  driver().destroy_graph(graph);
}

// What an operation makes for itself, and outputs that the program has let go of.
TEST_F(CommCaptureTest, ReplaysChangeNothingOutsideOfTheGraph) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const CommTuning& tuning : all_tunings()) {
    const TuningScope scope(tuning);
    const std::vector<Stream> streams = side_streams();
    const MultiStreamGuard guard(streams);
    const auto n = static_cast<std::int64_t>(devices().size());
    const Tensor source = ramp({3000 * n}, Device::cuda(0), 0);
    const auto call_all = [&] {
      const std::vector<Tensor> copies = comm::broadcast(source, devices());
      const Tensor sum = comm::reduce_add(copies, devices().back());
      const std::vector<Tensor> chunks = comm::scatter(sum, devices());
      const Tensor joined = comm::gather(chunks, {.destination = Device::cuda(0)});
      const auto lists = comm::broadcast_coalesced({joined, source}, devices());
      static_cast<void>(comm::reduce_add_coalesced(lists, Device::cuda(0)));
    };
    for (int i = 0; i < 2; ++i) call_all();  // caches of all kinds have what the graph needs
    const NativeGraph graph = capture(streams, call_all);
    std::vector<Tensor> outside;
    for (const Device device : devices()) {
      for (const std::int64_t size : {300, 3000, 6000}) {
        for (int i = 0; i < 8; ++i) outside.push_back(full({size * n}, 42, {.device = device}));
      }
    }
    for (int round = 0; round < 3; ++round) replay(graph, streams);
    for (const Tensor& tensor : outside) {
      EXPECT_EQ(tensor.amin().item<int>(), 42);
      EXPECT_EQ(tensor.amax().item<int>(), 42);
    }
    driver().destroy_graph(graph);
  }
}

TEST_F(CommCaptureTest, OutputsOfAStreamThatJoinsAreMemoryOfTheGraph) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Stream> streams = side_streams();
  const MultiStreamGuard guard(streams);
  const std::vector<Tensor> chunks{ramp({500}, Device::cuda(1), 0),
                                   ramp({500}, Device::cuda(1), 1)};
  for (const Device device : devices(2)) synchronize(device);
  driver().begin_capture(streams[1].native(), CaptureMode::relaxed);
  for (int i = 0; i < 2; ++i) {  // made and let go of
    static_cast<void>(comm::gather(chunks, {.destination = Device::cuda(0)}));
    static_cast<void>(comm::reduce_add(chunks, Device::cuda(0)));
    static_cast<void>(comm::reduce_add_coalesced({{chunks[0]}, {chunks[1]}}, Device::cuda(0)));
  }
  const NativeGraph graph = driver().end_capture(streams[1].native());
  std::vector<Tensor> outside;
  for (int i = 0; i < 20; ++i) {
    outside.push_back(full({i % 2 == 0 ? 500 : 1000}, 42, {.device = "cuda:0"}));
  }
  streams[0].synchronize();
  driver().launch_graph(graph, streams[1].native());
  streams[1].synchronize();
  for (const Tensor& tensor : outside) {
    EXPECT_EQ(tensor.amin().item<int>(), 42);
    EXPECT_EQ(tensor.amax().item<int>(), 42);
  }
  driver().destroy_graph(graph);
}

TEST_F(CommCaptureTest, AGatherIsAKernelAlsoIfItBringsItsStreamIntoTheGraph) {
  GANTRY_REQUIRE_DEVICES(2);
  const TuningScope scope({.send_by_engines_bytes = 1, .fetch_by_engines_bytes = 1});
  const std::vector<Stream> streams = side_streams();
  const MultiStreamGuard guard(streams);
  const std::vector<Tensor> chunks{ramp({500}, Device::cuda(1), 0),
                                   ramp({300}, Device::cuda(1), 1)};
  Tensor joined = zeros({800}, {.device = "cuda:0"});
  for (const Device device : devices(2)) synchronize(device);
  NativeGraph graph = nullptr;
  {
    testing::FaultDriver counting;
    driver().begin_capture(streams[1].native(), CaptureMode::relaxed);
    comm::gather(chunks, joined);
    graph = driver().end_capture(streams[1].native());
    EXPECT_EQ(counting.calls("copy_batch"), 0u);
  }
  driver().launch_graph(graph, streams[1].native());
  streams[1].synchronize();
  EXPECT_EQ(bits(joined.narrow(0, 0, 500)), bits(chunks[0]));
  EXPECT_EQ(bits(joined.narrow(0, 500, 300)), bits(chunks[1]));
  driver().destroy_graph(graph);
}

}  // namespace
}  // namespace gantry
