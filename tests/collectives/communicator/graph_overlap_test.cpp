// Graphs of a group's operations, replayed concurrently with its calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "job/flight_file.hpp"
#include "job/flight_folder.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;

class GraphOverlapTest : public testing::LocalGroupTest {
 protected:
  void TearDown() override {
    unsetenv("GANTRY_COLL_TIMEOUT");
    LocalGroupTest::TearDown();
  }
};

NativeGraph captured_all_reduce(Communicator& group, Tensor& tensor, const Stream& stream) {
  const StreamGuard guard(stream);
  driver().begin_capture(stream.native(), CaptureMode::relaxed);
  group.all_reduce(tensor);
  return driver().end_capture(stream.native());
}

TEST_F(GraphOverlapTest, ACallBesideAReplayIsAnErrorOfAllRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "60", 1);
  std::vector<Communicator> group = Communicator::local(devices(2));
  Tensor replayed = ones({1000}, {.device = Device::cuda(0)});
  Tensor called = ones({1000}, {.device = Device::cuda(0)});
  Tensor theirs = ones({1000}, {.device = Device::cuda(1)});
  synchronize(Device::cuda(0));
  const Stream stream = Stream::from_pool(Device::cuda(0));
  const Stream other = Stream::from_pool(Device::cuda(0));
  const NativeGraph graph = captured_all_reduce(group[0], replayed, stream);
  // Both wait for rank 1, so whichever comes second finds the first one running.
  driver().launch_graph(graph, stream.native());
  const auto call = [&] {
    const StreamGuard guard(other);
    return group[0].all_reduce(called);
  };
  const Work work = call();
  constexpr const char* kText = "order replays of graphs, and calls beside them, by a stream";
  expect_throws<InvalidArgument>([&] { synchronize(Device::cuda(0)); }, kText);
  expect_throws<InvalidArgument>([&] { work.synchronize(); }, kText);
  expect_throws<InvalidArgument>([&] { (void)group[1].all_reduce(theirs); }, "on rank 0");
  expect_throws<InvalidArgument>([&] { (void)call(); }, "all_reduce sum f32[1000]");
  driver().destroy_graph(graph);
}

// Its end waits for the device. A synchronization would spoil the capture.
TEST_F(GraphOverlapTest, AGroupMayEndInACapture) {
  GANTRY_REQUIRE_DEVICES(2);
  std::vector<Communicator> older = Communicator::local(devices(2));
  const Stream stream = Stream::from_pool(Device::cuda(0));
  const StreamGuard guard(stream);
  const Tensor made = zeros({4}, {.device = Device::cuda(0)});
  synchronize(Device::cuda(0));
  Graph graph;
  GraphCapture capture(graph);
  older.clear();
  if (platform() == Platform::simulated) (void)Communicator::local(devices(2));
  made.add_(1);
  capture.end();
  graph.replay();
  EXPECT_EQ(made[0].item<float>(), 1);
}

// A call that was enqueued before the first capture of the group runs once a replay does.
class EarlyCallTest : public GraphOverlapTest,
                      public ::testing::WithParamInterface<std::tuple<const char*, int>> {};

TEST_P(EarlyCallTest, BesideAReplayIsAnErrorOfAllRanks) {
  GANTRY_REQUIRE_DEVICES(3);
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the program's error is a race: both kernels write one buffer";
#endif
  const testing::FlightFolder folder;
  setenv("GANTRY_COLL_TIMEOUT", "60", 1);
  const auto& [algorithm, replayed_count] = GetParam();
  setenv("GANTRY_COLL_ALGO", algorithm, 1);
  std::vector<Communicator> group = Communicator::local(devices(3));
  std::vector<Tensor> called, replayed;
  std::vector<Stream> calling, replaying;
  for (const Device device : devices(3)) {
    called.push_back(ones({1000}, {.device = device}));
    replayed.push_back(ones({replayed_count}, {.device = device}));
    calling.push_back(Stream::from_pool(device));
    replaying.push_back(Stream::from_pool(device));
    synchronize(device);
  }
  std::deque<testing::StreamHold> holds;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    holds.emplace_back(calling[rank]);
    const StreamGuard guard(calling[rank]);
    group[rank].all_reduce(called[rank]);
  }
  std::vector<NativeGraph> graphs;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    graphs.push_back(captured_all_reduce(group[rank], replayed[rank], replaying[rank]));
  }
  driver().launch_graph(graphs[0], replaying[0].native());
  const std::vector<std::string> files = flight::list_files();
  ASSERT_EQ(files.size(), 1U);
  ASSERT_TRUE(testing::eventually([&] {
    const auto file = flight::OpenFile::open(files[0]);
    return file && file->view().words(0).progress(flight::Queue::collective).is_under_way();
  }));
  // The replay waits for the other ranks, so the call begins meanwhile.
  holds.front().release();
  constexpr const char* kText = "order replays of graphs, and calls beside them, by a stream";
  expect_throws<InvalidArgument>([&] { synchronize(Device::cuda(0)); }, kText);
  holds.clear();
  // The calls of the other ranks end, with the same error, while their tensors live.
  for (const Device device : devices(3)) {
    try {
      driver().synchronize_device(device.index);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(kText));
    }
  }
  for (const Communicator& rank : group) {
    Tensor tensor = ones({10}, {.device = rank.device()});
    expect_throws<InvalidArgument>([&] { (void)rank.all_reduce(tensor); }, "on rank 0");
  }
  for (const NativeGraph graph : graphs) driver().destroy_graph(graph);
}

INSTANTIATE_TEST_SUITE_P(
    All, EarlyCallTest,
    ::testing::Combine(::testing::Values("ll", "ll128", "ll128_two_shot", "one_shot", "two_shot"),
                       // The same call, and another one, whose digest the peers see too.
                       ::testing::Values(1000, 3000)),
    [](const auto& chosen) {
      return fmt::format("{}_{}", std::get<0>(chosen.param), std::get<1>(chosen.param));
    });

TEST_F(GraphOverlapTest, ReplaysAndCallsThatAreOrderedGoOn) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const Device device = group.device();
    suite.all(i32, 100);
    const Stream stream = Stream::from_pool(device);
    const Stream other = Stream::from_pool(device);
    for (const std::int64_t count : {10, 3000, 100'000, 1'000'000}) {
      Tensor replayed = ones({count}, {.dtype = i32, .device = device});
      Tensor called = ones({count}, {.dtype = i32, .device = device});
      synchronize(device);
      const NativeGraph graph = captured_all_reduce(group, replayed, stream);
      constexpr int kRounds = 10;
      for (int round = 0; round < kRounds; ++round) {
        driver().launch_graph(graph, stream.native());
        other.wait(stream);
        {
          const StreamGuard guard(other);
          group.all_reduce(called);
        }
        stream.wait(other);
      }
      synchronize(device);
      for (const Tensor& tensor : {replayed, called}) {
        if (tensor.amin().item<int>() != 1 << kRounds ||
            tensor.amax().item<int>() != 1 << kRounds) {
          throw std::runtime_error("a replay or a call went wrong");
        }
      }
      driver().destroy_graph(graph);
    }
    suite.all(i32, 100);
  });
}

}  // namespace
}  // namespace gantry
