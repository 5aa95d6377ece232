// Waits of kernels of the program that do not come to their end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include <gantry/collectives/channel.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/windows/view_fixture.hpp"
#include "tests/collectives/windows/view_kernels.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;
using testing::PeerViewTest;
using testing::some_window;
using testing::Step;
using testing::stream_of;
using testing::timeout_of;
using testing::words;

TEST_F(PeerViewTest, PacketsThatDoNotComeAreATimeout) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "1", 1);
  Step late;
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Window window = group.window(zeros({1024}, {.dtype = u8, .device = group.device()}));
    if (group.rank() == 1) return late.await();
    const Tensor mine = ones({5}, {.dtype = f32, .device = group.device()});
    const Tensor all = zeros({10}, {.dtype = f32, .device = group.device()});
    const auto [text, ranks] = timeout_of([&] {
      view_kernels::gather_ll(stream_of(group), window, mine, all, 1, 7);
      synchronize(group.device());
    });
    late.finish();
    EXPECT_EQ(ranks, std::vector<int>{1}) << text;
    EXPECT_THAT(text, ::testing::HasSubstr("rank 1 did not put the packets"));
  });
}

TEST_F(PeerViewTest, AWaitReturnsFalseWhenTheGroupIsAborted) {
  GANTRY_REQUIRE_DEVICES(2);
  Step waits;
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Window window = some_window(group);
    const Tensor taken = words(group);
    const Tensor results = words(group, 64);
    synchronize(group.device());
    if (group.rank() == 1) {
      waits.await();
      group.abort();
      return;
    }
    const Stream other = Stream::from_pool(group.device());
    view_kernels::wait(stream_of(group), window, taken, 1, 0);
    view_kernels::meet(other, window, results, 2, 32, 3);
    waits.finish();
    expect_throws<PeerLostError>([&] { synchronize(group.device()); }, "rank 1 aborted");
    EXPECT_EQ(taken.item<int>(), -1);
    EXPECT_EQ(results.amax().item<int>(), 0);
    expect_throws<PeerLostError>([&] { view_kernels::signal(stream_of(group), window, 1, 0); },
                                 "rank 1 aborted");
  });
}

TEST_F(PeerViewTest, ALoopOnTheDeviceEndsWithTheGroup) {
  GANTRY_REQUIRE_DEVICES(2);
  Step waits;
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Window window = some_window(group);
    const Tensor results = words(group, 32);
    const Tensor flag = full({1}, 1, {.dtype = i32, .device = group.device()});
    Graph graph;
    {
      GraphCapture capture(graph);
      // The flag stays set.
      graph_while(flag, [&] { view_kernels::meet(stream_of(group), window, results, 1, 32, 1); });
      capture.end();
    }
    group.host_barrier();
    graph.replay();
    if (group.rank() == 1) {
      waits.await();
      group.abort();
    } else {
      waits.finish();
    }
    expect_throws<PeerLostError>([&] { synchronize(group.device()); }, "rank 1 aborted");
  });
}

TEST_F(PeerViewTest, ASignalThatDoesNotComeIsATimeoutThatNamesTheRank) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "1", 1);
  for (const bool replays : {false, true}) {
    Step late;
    on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
      const Window window = some_window(group);
      const Tensor taken = words(group);
      if (group.rank() == 1) return late.await();
      Graph graph;
      if (replays) {
        GraphCapture capture(graph);
        view_kernels::wait(stream_of(group), window, taken, 1, 300);
        capture.end();
      }
      const auto [text, ranks] = timeout_of([&] {
        replays ? graph.replay() : view_kernels::wait(stream_of(group), window, taken, 1, 300);
        synchronize(group.device());
      });
      late.finish();
      EXPECT_EQ(ranks, std::vector<int>{1}) << text;
      EXPECT_THAT(text, ::testing::HasSubstr(
                            "PeerView: rank 0 waited 1 s in a kernel, but rank 1 did not signal on "
                            "channel 300 (GANTRY_COLL_TIMEOUT sets the deadline)"));
      EXPECT_EQ(taken.item<int>(), -1);
    });
  }
}

TEST_F(PeerViewTest, ManyWaitsForOneRankHaveADeadline) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "1", 1);
  Step late;
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Window window = some_window(group);
    const Tensor taken = words(group, 4);
    const Tensor results = words(group, 64);
    synchronize(group.device());
    if (group.rank() == 1) return late.await();
    const auto [text, ranks] = timeout_of([&] {
      for (int i = 0; i < 4; ++i) {
        const Stream stream = Stream::from_pool(group.device());
        view_kernels::wait(stream, window, taken.narrow(0, i, 1), 1, i / 2);
      }
      view_kernels::meet(Stream::from_pool(group.device()), window, results, 2, 32, 1);
      synchronize(group.device());
    });
    late.finish();
    EXPECT_EQ(ranks, std::vector<int>{1}) << text;
  });
}

// Ranks 0 and 1 run `wait`, for each other or for rank 2, which does not come.
class LateRankTest : public PeerViewTest {
 protected:
  template <class Wait>
  static void expect_rank_2_named(Wait wait) {
    setenv("GANTRY_COLL_TIMEOUT", "3", 1);  // both wait by then
    std::atomic<int> ended{0};
    on_ranks(3, [&](CollectiveSuite&, Communicator& group) {
      const Window window = some_window(group);
      const Tensor taken = words(group);
      synchronize(group.device());
      group.host_barrier();
      if (group.rank() == 2) {
        for (int seen = ended; seen < 2; seen = ended) ended.wait(seen);
        return;
      }
      const auto [text, ranks] = timeout_of([&] {
        wait(group, window, taken);
        synchronize(group.device());
      });
      EXPECT_EQ(ranks, std::vector<int>{2}) << text;
      ++ended;
      ended.notify_all();
    });
  }
};

TEST_F(LateRankTest, ARankThatWaitsInACollectiveIsNotLate) {
  GANTRY_REQUIRE_DEVICES(3);
  expect_rank_2_named([](Communicator& group, const Window& window, const Tensor& taken) {
    if (group.rank() == 1) return static_cast<void>(group.all_reduce(taken));
    view_kernels::wait(stream_of(group), window, taken, 1, 0);
  });
}

TEST_F(LateRankTest, ARankThatWaitsItselfIsNotLate) {
  GANTRY_REQUIRE_DEVICES(3);
  expect_rank_2_named([](Communicator& group, const Window& window, const Tensor& taken) {
    view_kernels::wait(stream_of(group), window, taken, group.rank() + 1, 0);
  });
}

TEST_F(PeerViewTest, RanksThatWaitForEachOtherAreAnError) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "3", 1);  // all ranks wait by then
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Window window = some_window(group);
    const Tensor taken = words(group);
    const auto [text, ranks] = timeout_of([&] {
      view_kernels::wait(stream_of(group), window, taken, 1 - group.rank(), 0);
      synchronize(group.device());
    });
    EXPECT_EQ(ranks.size(), 1U) << text;
    EXPECT_THAT(text, ::testing::HasSubstr("the ranks wait for each other"));
  });
}

TEST_F(PeerViewTest, WrongRanksAndChannelsAreErrorsOfGpusToo) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Window window = some_window(group);
    const Tensor taken = words(group);
    const auto finish = [&] { stream_of(group).synchronize(); };
    view_kernels::signal(stream_of(group), window, 2, 0);
    expect_throws<InvalidArgument>(finish, "PeerView: ");
    view_kernels::wait(stream_of(group), window, taken, 0, PeerView::kChannels);
    expect_throws<InvalidArgument>(finish, "PeerView: ");
    window.barrier();  // the group is intact
    finish();
  });
}

TEST_F(PeerViewTest, RanksAndChannelsThatDoNotExist) {
  GANTRY_REQUIRE_DEVICES(1);
  GANTRY_REQUIRE_SIM();  // texts of the simulator
  const Communicator group = Communicator::local({Device::cuda(0)}).front();
  const Window window = some_window(group);
  const Tensor taken = words(group);
  const auto fails = [&](auto launch, const std::string& text) {
    expect_throws<InvalidArgument>(
        [&] {
          launch();
          stream_of(group).synchronize();
        },
        text);
  };
  fails([&] { view_kernels::signal(stream_of(group), window, 1, 0); },
        "PeerView: expected a rank from 0 to 0, but got 1");
  fails([&] { view_kernels::signal(stream_of(group), window, -1, 0); }, "but got -1");
  fails([&] { view_kernels::wait(stream_of(group), window, taken, 0, PeerView::kChannels); },
        "PeerView: expected a channel from 0 to 1023, but got 1024");
  EXPECT_EQ(taken.item<int>(), 0);
  expect_throws<InvalidArgument>([] { static_cast<void>(Window().view()); },
                                 "Window::view: expected a window");
}

}  // namespace
}  // namespace gantry
