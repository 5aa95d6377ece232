// broadcast() from one tensor into another: the root's own copy, beside kernels and by them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::expect_throws;

class BroadcastApartTest : public testing::LocalGroupTest {
 protected:
  // Calls body(rank) on a thread for each rank of a group of `count`.
  static void on_each(int count, const std::function<void(const Communicator&)>& body) {
    const std::vector<Communicator> group = Communicator::local(devices(count));
    testing::rank_threads(
        count,
        [&](int rank) {
          const Communicator& mine = group[static_cast<std::size_t>(rank)];
          const DeviceGuard guard(mine.device());
          body(mine);
        },
        std::chrono::seconds(testing::kIsSanitized ? 1200 : 240), [&] { group.front().abort(); });
  }
  static TensorOptions on(const Communicator& rank) {
    return {.dtype = i32, .device = rank.device()};
  }
};

// In one kernel, by a copy in the stream, and by a copy beside the transfer.
TEST_F(BroadcastApartTest, WorkEndsBehindTheRootsOwnCopy) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const std::int64_t count : {1, 1000, 500'000, 3'000'001}) {
    on_each(2, [count](const Communicator& rank) {
      constexpr int kRoot = 1;
      const Tensor input = arange(count, on(rank));
      const Tensor output = zeros({count}, on(rank));
      const Stream reader = Stream::from_pool(rank.device());
      const Work work = rank.broadcast(output, rank.rank() == kRoot ? input : Tensor(), kRoot);
      const StreamGuard guard(reader);
      work.wait();
      EXPECT_TRUE(output.equal(input)) << count << " on rank " << rank.rank();
    });
  }
}

TEST_F(BroadcastApartTest, MeetsTheFormWithOneTensor) {
  GANTRY_REQUIRE_DEVICES(3);
  on_each(3, [](const Communicator& rank) {
    for (const std::int64_t count : {5, 100'000}) {
      const Tensor input = full({count}, rank.rank(), on(rank));
      const Tensor output = zeros({count}, on(rank));
      if (rank.rank() == 0) {
        rank.broadcast(output, input, 0);
      } else {
        rank.broadcast(output, 0);
      }
      EXPECT_EQ(output.amax().item<int>(), 0);
      if (rank.rank() == 2) {
        rank.broadcast(output, input, 2);
        EXPECT_EQ(input.amin().item<int>(), 2);
      } else {
        rank.broadcast(output, Tensor(), 2);
      }
      EXPECT_EQ(output.amin().item<int>(), 2);
    }
  });
}

TEST_F(BroadcastApartTest, ReadsTheInputBeforeAnOverlappingOutputIsWritten) {
  GANTRY_REQUIRE_DEVICES(2);
  on_each(2, [](const Communicator& rank) {
    for (const std::int64_t count : {6, 40'000}) {
      const Tensor whole = arange(count + 3, on(rank));
      const Tensor output = whole.narrow(0, 3, count);
      rank.broadcast(output, whole.narrow(0, 0, count), 0);
      EXPECT_TRUE(output.equal(arange(count, on(rank)))) << rank.rank();
      // The same elements need no copy.
      rank.broadcast(output, output, 0);
      EXPECT_TRUE(output.equal(arange(count, on(rank)))) << rank.rank();
    }
  });
}

TEST_F(BroadcastApartTest, TakesStridedTensors) {
  GANTRY_REQUIRE_DEVICES(2);
  on_each(2, [](const Communicator& rank) {
    const Tensor input = arange(12, on(rank)).view({3, 4}).t();
    const Tensor output = zeros({4, 6}, on(rank)).narrow(1, 2, 3);
    rank.broadcast(output, input, 1);
    EXPECT_TRUE(output.equal(input)) << rank.rank();
  });
}

TEST_F(BroadcastApartTest, CopiesInAGroupOfOne) {
  on_each(1, [](const Communicator& rank) {
    const Tensor input = arange(7, on(rank));
    const Tensor output = zeros({7}, on(rank));
    rank.broadcast(output, input);
    EXPECT_TRUE(output.equal(input));
  });
}

TEST_F(BroadcastApartTest, IsReplayedWithItsCopy) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const std::int64_t count : {10, 2'000'000}) {
    on_each(2, [count](const Communicator& rank) {
      const Tensor input = ones({count}, on(rank));
      const Tensor output = zeros({count}, on(rank));
      const Stream stream = Stream::from_pool(rank.device());
      synchronize(rank.device());
      const StreamGuard guard(stream);
      rank.broadcast(output, input, 0);
      stream.synchronize();
      Graph graph;
      {
        const GraphCapture capture(graph);
        rank.broadcast(output, input, 0);
      }
      input.fill_(rank.rank() + 5);
      graph.replay();
      EXPECT_EQ(output.amin().item<int>(), 5) << rank.rank();
      EXPECT_EQ(output.amax().item<int>(), 5) << rank.rank();
      stream.synchronize();
    });
  }
}

TEST_F(BroadcastApartTest, RefusesOtherShapesDtypesAndDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Communicator> group = Communicator::local(devices(2));
  const Communicator& root = group[0];
  const Tensor output = zeros({4}, on(root));
  expect_throws<ShapeError>([&] { root.broadcast(output, zeros({5}, on(root)), 0); }, "broadcast");
  expect_throws<DTypeError>(
      [&] { root.broadcast(output, zeros({4}, {.dtype = f32, .device = root.device()}), 0); },
      "broadcast");
  expect_throws<DeviceMismatchError>([&] { root.broadcast(output, zeros({4}, on(group[1])), 0); },
                                     "'input'");
  expect_throws<InvalidArgument>([&] { root.broadcast(output, Tensor(), 0); }, "'input'");
  expect_throws<InvalidArgument>([&] { root.broadcast(output, output, 2); }, "root");
}

}  // namespace
}  // namespace gantry
