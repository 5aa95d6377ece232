// Kernels of the program that read, write, signal and await peers.
#include <gantry/collectives/channel.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include <gantry/streams/graph.hpp>
#include <gantry/tensor/activations.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/windows/view_fixture.hpp"
#include "tests/collectives/windows/view_kernels.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::PeerViewTest;
using testing::some_window;
using testing::stream_of;
using testing::words;

TEST_F(PeerViewTest, AFusedKernelHasTheBitsOfTheUnfusedForm) {
  on_groups(1, [](const Communicator& group) {
    constexpr std::int64_t kRows = 37;
    constexpr std::int64_t kColumns = 29;
    const TensorOptions options{.dtype = f32, .device = group.device()};
    const Tensor mine = zeros({kRows, kColumns}, options);
    const Tensor bias = arange(kColumns, options).mul(0.37).sub(3.1);
    const Window window = group.window(mine);
    for (int round = 0; round < 6; ++round) {
      const Tensor values = arange(kRows * kColumns, options)
                                .mul(0.11 + 0.013 * group.rank() + round)
                                .sub(20.0 + 0.7 * group.rank())
                                .sin()
                                .view({kRows, kColumns});
      mine.copy_(values);
      group.all_reduce(values);
      const Tensor expected = relu(values.add(bias));
      const Tensor out = empty_like(values);
      view_kernels::fused(stream_of(group), window, bias, out, 1 + round % 3, 1 + 31 * round);
      EXPECT_EQ(out.to_vector<float>(), expected.to_vector<float>()) << round;
    }
    window.barrier();
  });
}

TEST_F(PeerViewTest, SignalsOrderWritesAndReads) {
  on_groups(1, [](const Communicator& group) {
    const Window window = some_window(group);
    const Tensor wrong = words(group);
    for (int launches = 0; launches < 3; ++launches) {
      view_kernels::ring(stream_of(group), window, wrong, 20);
    }
    EXPECT_EQ(wrong.item<int>(), 0);
    window.barrier();
  });
}

TEST_F(PeerViewTest, EveryThreadMaySignalAndWaitOnOneChannel) {
  on_groups(1, [](const Communicator& group) {
    const Window window = some_window(group);
    for (const auto& [blocks, threads] : {std::pair(1, 1), std::pair(1, 96), std::pair(5, 33)}) {
      const Tensor taken = words(group, std::int64_t{blocks} * threads);
      for (int round = 0; round < 3; ++round) {
        view_kernels::crowd(stream_of(group), window, taken, blocks, threads);
      }
      EXPECT_EQ(taken.amin().item<int>(), 3);
      EXPECT_EQ(taken.amax().item<int>(), 3);
    }
    window.barrier();
  });
}

TEST_F(PeerViewTest, AThreadWaitsWhileAnotherOneOfItsBlockSignals) {
  on_groups(1, [](const Communicator& group) {
    const Window window = some_window(group);
    const Tensor taken = words(group);
    for (const int threads : {2, 64, 257}) {
      view_kernels::roles(stream_of(group), window, taken, threads);
    }
    EXPECT_EQ(taken.item<int>(), 3);
    window.barrier();
  });
}

TEST_F(PeerViewTest, SeveralSignalsAreUnderWayAndNoneIsLost) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Window window = some_window(group);
    const Tensor taken = words(group);
    view_kernels::counts(stream_of(group), window, taken, 7, 3);
    if (group.rank() == 0) synchronize(group.device());  // signals do not wait
    group.host_barrier();
    view_kernels::counts(stream_of(group), window, taken, 0, 4);
    EXPECT_EQ(taken.item<int>(), group.rank() == 1 ? 7 : 0);
    window.barrier();
  });
}

TEST_F(PeerViewTest, PutWritesTheElementsAndNoOthers) {
  on_groups(1, [](const Communicator& group) {
    for (const DType dtype : {u8, i32, f64}) {
      const TensorOptions options{.dtype = dtype, .device = group.device()};
      const Tensor mine = zeros({300}, options);
      const Window window = group.window(mine);
      const int previous = (group.rank() + group.size() - 1) % group.size();
      for (const int skip : {0, 1, 3, 16}) {
        for (const int offset : {0, 1, 5, 16}) {
          for (const int n : {0, 1, 2, 15, 16, 17, 100, 200}) {
            mine.zero_();
            const Tensor source = arange(300, options).remainder(100).add(group.rank() + 1);
            window.barrier();
            view_kernels::put(stream_of(group), window, source.narrow(0, skip, n), offset, n);
            std::vector<double> expected(300, 0.0);
            for (int i = 0; i < n; ++i) {
              expected[static_cast<std::size_t>(offset + i)] = (skip + i) % 100 + previous + 1;
            }
            ASSERT_EQ(mine.to(f64).to_vector<double>(), expected)
                << name(dtype) << " " << skip << " " << offset << " " << n;
            window.barrier();
          }
        }
      }
    }
  });
}

TEST_F(PeerViewTest, PacketsCarryTheElementsOfAllRanks) {
  on_groups(1, [](const Communicator& group) {
    for (const DType dtype : {u8, f32, f64}) {
      const Window window =
          group.window(zeros({64 << 10}, {.dtype = u8, .device = group.device()}));
      const TensorOptions options{.dtype = dtype, .device = group.device()};
      int first = 1;
      for (const std::int64_t n : {1, 2, 3, 7, 8, 9, 100, 333}) {
        const Tensor mine = arange(n, options).remainder(50).add(group.rank());
        const Tensor all = zeros({group.size() * n}, options);
        view_kernels::gather_ll(stream_of(group), window, mine, all, 5, first);
        first += 5;
        const Tensor expected = zeros({group.size() * n}, options);
        group.all_gather(expected, mine);
        EXPECT_EQ(all.to(f64).to_vector<double>(), expected.to(f64).to_vector<double>())
            << name(dtype) << " " << n;
        window.barrier();  // the next packets lie elsewhere
      }
    }
  });
}

TEST_F(PeerViewTest, GraphsGoOnCounting) {
  on_groups(1, [](const Communicator& group) {
    const Window window = some_window(group);
    const Tensor results = words(group, 3 * 8);
    const Tensor wrong = words(group);
    const auto step = [&] {
      view_kernels::meet(stream_of(group), window, results, 3, 8, 2);
      view_kernels::ring(stream_of(group), window, wrong, 2);
    };
    step();
    Graph graph;
    {
      GraphCapture capture(graph);
      step();
      capture.end();
    }
    for (int round = 0; round < 4; ++round) {
      graph.replay();
      step();
    }
    EXPECT_EQ(results.amin().item<int>(), 18);
    EXPECT_EQ(results.amax().item<int>(), 18);
    EXPECT_EQ(wrong.item<int>(), 0);
    window.barrier();
  });
}

TEST_F(PeerViewTest, BarriersMeetInsideALoopOnTheDevice) {
  on_groups(1, [](const Communicator& group) {
    const Window window = some_window(group);
    const Tensor results = words(group, 16);
    const Tensor turns = words(group);
    Graph graph;
    {
      GraphCapture capture(graph);
      graph_while(turns, [&] {
        view_kernels::meet(stream_of(group), window, results, 1, 16, 1);
        turns.sub_(1);
      });
      capture.end();
    }
    for (int round = 1; round <= 3; ++round) {
      turns.fill_(5);
      graph.replay();
      EXPECT_EQ(results.amin().item<int>(), 5 * round);
    }
    window.barrier();
  });
}

TEST_F(PeerViewTest, WindowsOfOneGroupCountForThemselves) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Window first = some_window(group);
    const Window second = some_window(group);
    const Tensor taken = words(group, 2);
    if (group.rank() == 0) {
      view_kernels::signal(stream_of(group), second, 1, 9);
      synchronize(group.device());
    }
    group.host_barrier();
    if (group.rank() == 1) {
      const Stream other = Stream::from_pool(group.device());
      other.wait(stream_of(group));
      view_kernels::wait(other, first, taken.narrow(0, 0, 1), 0, 9);
      view_kernels::wait(stream_of(group), second, taken.narrow(0, 1, 1), 0, 9);
      stream_of(group).synchronize();
      EXPECT_FALSE(other.query());
      group.host_barrier();
      other.synchronize();
      EXPECT_EQ(taken.amin().item<int>(), 1);
    } else {
      group.host_barrier();
      view_kernels::signal(stream_of(group), first, 1, 9);
      synchronize(group.device());
    }
    group.host_barrier();
  });
}

// All blocks, streams and channels wait for the same rank.

}  // namespace
}  // namespace gantry
