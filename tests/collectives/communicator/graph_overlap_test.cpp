// Graphs of a group's operations, replayed concurrently with its calls.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"

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
