// Operations of a group in the bodies of graph_if() and graph_while().
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/window.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/event.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/uses.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;
using ::testing::HasSubstr;

class ConditionsTest : public testing::LocalGroupTest {
 protected:
  static int most_ranks() { return std::min(device_count(), 4); }

  template <class Body>
  static void on_groups(int least, Body body) {
    for (int count = least; count <= most_ranks(); ++count) {
      on_ranks(count, [&](CollectiveSuite&, Communicator& group) { body(group); });
    }
  }
};

Tensor words(const Communicator& group, int value = 0) {
  return full({1}, value, {.dtype = i32, .device = group.device()});
}

// A step of Jacobi's method for a ring of cells, spread over the ranks. `goes_on` becomes whether
// the largest change of all ranks is above the bound.
class Jacobi {
 public:
  explicit Jacobi(const Communicator& group) : group_(group) {
    const TensorOptions here{.dtype = f32, .device = group.device()};
    cells_ = zeros({kCells + 2}, here);
    source_ = arange(kCells, here).add(kCells * group.rank()).mul(0.1).sin();
    residual_ = full({1}, 1.0, here);
    goes_on = full({1}, true, {.dtype = bool_, .device = group.device()});
    rounds = words(group);
  }

  void step() {
    const int next = (group_.rank() + 1) % group_.size();
    const int previous = (group_.rank() + group_.size() - 1) % group_.size();
    if (group_.size() > 1) {
      const auto exchange = group_.group();
      group_.send(cells_.narrow(0, kCells, 1), next);
      group_.recv(cells_.narrow(0, 0, 1), previous);
      group_.send(cells_.narrow(0, 1, 1), previous);
      group_.recv(cells_.narrow(0, kCells + 1, 1), next);
    } else {
      cells_.narrow(0, 0, 1).copy_(cells_.narrow(0, kCells, 1));
      cells_.narrow(0, kCells + 1, 1).copy_(cells_.narrow(0, 1, 1));
    }
    const Tensor after =
        cells_.narrow(0, 0, kCells).add(cells_.narrow(0, 2, kCells)).add(source_).mul(0.49);
    residual_.copy_(after.sub(cells_.narrow(0, 1, kCells)).abs().amax().view({1}));
    group_.all_reduce(residual_, ReduceOp::max);
    cells_.narrow(0, 1, kCells).copy_(after);
    goes_on.copy_(gt(residual_, 0.01));
    rounds.add_(1);
  }
  std::vector<float> cells() const { return cells_.to_vector<float>(); }

  Tensor goes_on;
  Tensor rounds;

 private:
  static constexpr std::int64_t kCells = 40;

  const Communicator group_;
  Tensor cells_;
  Tensor source_;
  Tensor residual_;
};

TEST_F(ConditionsTest, ALoopOnTheDeviceHasTheBitsOfTheLoopOnTheHost) {
  on_groups(1, [](const Communicator& group) {
    Jacobi on_host(group);
    graph_while(on_host.goes_on, [&] { on_host.step(); });
    Jacobi on_device(group);
    Graph graph;
    {
      GraphCapture capture(graph);
      graph_while(on_device.goes_on, [&] { on_device.step(); });
      capture.end();
    }
    EXPECT_EQ(on_device.rounds.item<int>(), 0);
    graph.replay();
    EXPECT_GT(on_host.rounds.item<int>(), 10);
    EXPECT_EQ(on_device.rounds.item<int>(), on_host.rounds.item<int>());
    EXPECT_EQ(on_device.cells(), on_host.cells());
    group.host_barrier();
  });
}

// Every operation, several replays, calls outside of the graph between them.
TEST_F(ConditionsTest, EveryOperationRunsInALoop) {
  on_groups(1, [](const Communicator& group) {
    const TensorOptions here{.dtype = i32, .device = group.device()};
    const int size = group.size();
    const Tensor turns = words(group);
    const Tensor sum = zeros({300}, here);
    const Tensor one = zeros({7}, here);
    const Tensor all = zeros({7 * size}, here);
    const Tensor part = zeros({7}, here);
    const Tensor large = zeros({1'100'000}, here);
    const auto body = [&] {
      group.all_reduce(sum.fill_(group.rank() + 1));
      one.fill_(group.rank()).add_(turns);
      group.all_gather(all, one);
      group.reduce_scatter(part, all);
      group.broadcast(one, size - 1);
      group.reduce(one, 0);
      group.barrier();
      group.all_reduce(large.fill_(group.rank()));
      turns.sub_(1);
    };
    body();
    Graph graph;
    {
      GraphCapture capture(graph);
      graph_while(turns, body);
      capture.end();
    }
    group.host_barrier();
    for (int round = 1; round <= 3; ++round) {
      turns.fill_(2 * round);
      graph.replay();
      EXPECT_EQ(turns.item<int>(), 0);
      EXPECT_EQ(sum.amin().item<int>(), size * (size + 1) / 2);
      EXPECT_EQ(large.amax().item<int>(), size * (size - 1) / 2);
      EXPECT_EQ(large.amin().item<int>(), size * (size - 1) / 2);
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(all.narrow(0, 7 * rank, 7).amax().item<int>(), rank + 1);
      }
      EXPECT_EQ(part.amin().item<int>(), size * (group.rank() + 1));
      Tensor after = words(group, 1);
      group.all_reduce(after);
      EXPECT_EQ(after.item<int>(), size);
    }
    group.host_barrier();
  });
}

TEST_F(ConditionsTest, ConditionsNest) {
  on_groups(1, [](const Communicator& group) {
    const Tensor outer = words(group);
    const Tensor inner = words(group);
    const Tensor odd = words(group);
    Tensor total = words(group);
    Tensor one = words(group);
    Graph graph;
    {
      GraphCapture capture(graph);
      graph_while(outer, [&] {
        inner.fill_(3);
        graph_while(inner, [&] {
          odd.copy_(inner.remainder(2));
          graph_if(odd, [&] {
            group.all_reduce(one.fill_(1));
            total.add_(one);
          });
          inner.sub_(1);
        });
        group.all_reduce(one.fill_(100));
        total.add_(one);
        outer.sub_(1);
      });
      capture.end();
    }
    for (int round = 1; round <= 2; ++round) {
      outer.fill_(4);
      graph.replay();
      EXPECT_EQ(total.item<int>(), round * 4 * group.size() * 102);
    }
    group.host_barrier();
  });
}

TEST_F(ConditionsTest, OperationsOfOtherBranchesFollowTheLoop) {
  on_groups(2, [](const Communicator& group) {
    const Tensor turns = words(group);
    Tensor in_loop = words(group);
    Tensor behind = words(group);
    Graph graph;
    {
      GraphCapture capture(graph);
      const Stream main = Stream::current(group.device());
      const Stream side = Stream::from_pool(group.device());
      side.wait(main);
      graph_while(turns, [&] {
        group.all_reduce(in_loop.fill_(1));
        turns.sub_(1);
      });
      {
        const StreamGuard guard(side);
        group.all_reduce(behind.fill_(2));
      }
      main.wait(side);
      capture.end();
    }
    for (int round = 0; round < 10; ++round) {
      turns.fill_(5);
      graph.replay();
      EXPECT_EQ(in_loop.item<int>(), group.size());
      EXPECT_EQ(behind.item<int>(), 2 * group.size());
    }
    group.host_barrier();
  });
}

TEST_F(ConditionsTest, ALoopOnAnotherStreamThanEarlierOperationsIsRefused) {
  on_groups(2, [](const Communicator& group) {
    const Tensor turns = words(group);
    Tensor sum = words(group);
    const auto capture_it = [&] {
      Graph graph;
      GraphCapture capture(graph);
      const Stream main = Stream::current(group.device());
      const Stream side = Stream::from_pool(group.device());
      side.wait(main);
      {
        const StreamGuard guard(side);
        group.all_reduce(sum);
      }
      graph_while(turns, [&] { group.all_reduce(sum); });
    };
    expect_throws<CaptureError>(capture_it, "but got the last one on another stream");
    group.all_reduce(sum.fill_(1));
    EXPECT_EQ(sum.item<int>(), group.size());
  });
}

TEST_F(ConditionsTest, OtherStreamsThanTheBodysAreRefused) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Tensor turns = words(group);
    Tensor sum = words(group);
    const Window window = group.window(words(group, 4));
    const auto capture_it = [&](const auto& call) {
      Graph graph;
      GraphCapture capture(graph);
      graph_while(turns, [&] {
        const Stream body = Stream::current(group.device());
        const Stream side = Stream::from_pool(group.device());
        side.wait(body);
        const StreamGuard guard(side);
        call(side);
      });
    };
    const std::string text = "expected the stream of the body of graph_if or graph_while";
    expect_throws<CaptureError>([&] { capture_it([&](const Stream&) { group.all_reduce(sum); }); },
                                text);
    expect_throws<CaptureError>(
        [&] { capture_it([&](const Stream& side) { window.put_signal(1 - group.rank(), side); }); },
        text);
    expect_throws<CaptureError>(
        [&] {
          capture_it([&](const Stream& side) {
            parallel_for(side, 1, uses(window), [](std::int64_t) {});
          });
        },
        text);
    group.all_reduce(sum.fill_(1));
    EXPECT_EQ(sum.item<int>(), 2);
    window.barrier();
  });
}

TEST_F(ConditionsTest, SeveralGroupsShareALoop) {
  GANTRY_REQUIRE_DEVICES(2);
  on_groups(2, [](const Communicator& group) {
    const Communicator other = group.split(0, -group.rank());
    const Tensor turns = words(group);
    Tensor first = words(group);
    Tensor second = words(group);
    Graph graph;
    {
      GraphCapture capture(graph);
      graph_while(turns, [&] {
        group.all_reduce(first.fill_(1));
        other.broadcast(second.fill_(group.rank() + 1), 0);
        turns.sub_(1);
      });
      capture.end();
    }
    turns.fill_(3);
    graph.replay();
    EXPECT_EQ(first.item<int>(), group.size());
    EXPECT_EQ(second.item<int>(), group.size());
    group.host_barrier();
  });
}

// The ranks replay graphs that are equal but for their flags.
// `earlier_calls`: between the capture and the replay.
void disagree(const Communicator& group, const std::vector<int>& flags, bool is_loop,
              int earlier_calls = 0) {
  const Tensor turns = words(group);
  Tensor sum = words(group);
  const auto body = [&] {
    group.all_reduce(sum);
    turns.sub_(1);
  };
  Graph graph;
  {
    GraphCapture capture(graph);
    is_loop ? graph_while(turns, body) : graph_if(turns, body);
    capture.end();
  }
  group.host_barrier();  // no capture is under way
  for (int i = 0; i < earlier_calls; ++i) group.barrier();
  turns.fill_(flags[static_cast<std::size_t>(group.rank())]);
  expect_throws<CollectiveMismatch>(
      [&] {
        graph.replay();
        synchronize(group.device());
      },
      "the flags of graph_if and graph_while must be equal on all ranks");
  expect_throws<CollectiveMismatch>(
      [&] { group.barrier(); },
      earlier_calls == 0 ? "the end of graph_if or graph_while" : "must be equal on all ranks");
}

TEST_F(ConditionsTest, RanksThatDisagreeOnAFlagAreAnErrorOnAllRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const std::vector<int>& flags :
       {std::vector{3, 5}, std::vector{4, 1}, std::vector{0, 2}, std::vector{1 << 30, 7}}) {
    on_ranks(2, [&](CollectiveSuite&, Communicator& group) { disagree(group, flags, true); });
  }
  for (const std::vector<int>& flags : {std::vector{0, 1}, std::vector{1, 0}}) {
    on_ranks(2, [&](CollectiveSuite&, Communicator& group) { disagree(group, flags, false); });
  }
  // The records of the captured calls are overwritten.
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) { disagree(group, {2, 5}, true, 1100); });
  if (most_ranks() < 4) return;
  on_ranks(4, [&](CollectiveSuite&, Communicator& group) { disagree(group, {9, 9, 2, 9}, true); });
}

TEST_F(ConditionsTest, ALoopEndsWithTheGroup) {
  GANTRY_REQUIRE_DEVICES(2);
  std::atomic<bool> is_running{false};
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Tensor turns = words(group, 1);
    Tensor sum = words(group);
    Graph graph;
    {
      GraphCapture capture(graph);
      graph_while(turns, [&] { group.all_reduce(sum); });  // its flag stays set
      capture.end();
    }
    group.host_barrier();
    graph.replay();
    if (group.rank() == 1) {
      is_running.wait(false);
      group.abort();
    } else {
      is_running = true;
      is_running.notify_all();
    }
    expect_throws<PeerLostError>([&] { synchronize(group.device()); }, "rank 1 aborted");
  });
}

TEST_F(ConditionsTest, OtherTransportsAreRefused) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "host", 1);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Tensor turns = words(group);
    Tensor sum = words(group);
    const auto capture_it = [&] {
      Graph graph;
      GraphCapture capture(graph);
      graph_while(turns, [&] { group.all_reduce(sum); });
    };
    expect_throws<CaptureError>(capture_it,
                                "all_reduce: expected a stream outside of graph_if and "
                                "graph_while, since 'host' carries the operations of the group");
    group.all_reduce(sum.fill_(1));
    EXPECT_EQ(sum.item<int>(), 2);
  });
}

}  // namespace
}  // namespace gantry
