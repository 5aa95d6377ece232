// Memory and signals of peers for kernels of the program.
#include <gantry/collectives/window.hpp>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/ipc/ipc.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;

class WindowTest : public testing::LocalGroupTest {
 protected:
  static int most_ranks() { return std::min(device_count(), 4); }
};

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Rank-dependent numbers, exact in f32.
Tensor numbers(const Communicator& group, int round = 0) {
  return arange(1000, {.dtype = f32, .device = group.device()}) + (1000 * group.rank() + 7 * round);
}

bool has_numbers(const Tensor& tensor, int rank, int round = 0) {
  const std::vector<float> all = tensor.to_vector<float>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != static_cast<float>(i) + static_cast<float>(1000 * rank + 7 * round)) return false;
  }
  return all.size() == 1000;
}

TEST_F(WindowTest, EveryRankReadsTheTensorsOfAll) {
  on_ranks(most_ranks(), [](CollectiveSuite&, Communicator& group) {
    const Tensor mine = numbers(group);
    const Window window = group.window(mine);
    require(window.rank() == group.rank() && window.size() == group.size(), "another group");
    window.barrier();
    for (int rank = 0; rank < group.size(); ++rank) {
      const Tensor theirs = window.peer(rank);
      require(theirs.device() == group.device(), "the device is not this rank's");
      require(theirs.data() == window.peer_pointers()[static_cast<std::size_t>(rank)], "pointer");
      require(has_numbers(theirs, rank), fmt::format("the numbers of rank {}", rank));
    }
    require(window.peer(group.rank()).data() == mine.data(), "this rank's tensor is itself");
    window.barrier();
  });
}

TEST_F(WindowTest, AViewOfAStorageIsTheSameViewOnAllRanks) {
  on_ranks(most_ranks(), [](CollectiveSuite&, Communicator& group) {
    const Tensor whole = zeros({4, 6}, {.dtype = f32, .device = group.device()});
    const Tensor part = whole.narrow(1, 2, 3).t();
    const Window window = group.window(part);
    window.barrier();
    const int next = (group.rank() + 1) % group.size();
    Tensor theirs = window.peer(next);
    require(theirs.sizes() == part.sizes() && theirs.strides() == part.strides(), "layout");
    theirs.fill_(group.rank() + 1);
    window.barrier();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    require(part.amin().item<int>() == previous + 1, "written by the previous rank");
    require(whole.sum().item<int>() == 12 * (previous + 1), "nothing else is written");
  });
}

// A ring in which every rank writes to the next one and signals it, many times over one buffer.
TEST_F(WindowTest, SignalsOrderWritesAndReads) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(most_ranks(), [](CollectiveSuite&, Communicator& group) {
    const Window window = group.window(zeros({1000}, {.dtype = f32, .device = group.device()}));
    const int next = (group.rank() + 1) % group.size();
    const int previous = (group.rank() + group.size() - 1) % group.size();
    const Stream writing = Stream::from_pool(group.device());
    const Stream reading = Stream::from_pool(group.device());
    std::vector<Tensor> read;
    constexpr int kFull = 3;
    constexpr int kTaken = Window::kChannels - 1;
    for (int round = 0; round < 30; ++round) {
      {
        const StreamGuard guard(writing);
        if (round > 0) window.wait_signal(next, kTaken);
        window.peer(next).copy_(numbers(group, round));
        window.put_signal(next, kFull);
      }
      const StreamGuard guard(reading);
      window.wait_signal(previous, kFull);
      read.push_back(window.peer(group.rank()).clone());
      window.put_signal(previous, reading, kTaken);
    }
    window.wait_signal(next, writing, kTaken);
    writing.synchronize();
    reading.synchronize();
    for (int round = 0; round < 30; ++round) {
      require(has_numbers(read[static_cast<std::size_t>(round)], previous, round),
              fmt::format("round {}", round));
    }
    require(!window.signal_pad().any().item<bool>(), "all signals are taken");
    window.barrier();
  });
}

// Each signal is taken once: a later one waits for it.
TEST_F(WindowTest, SignalsOfOneChannelAreNotLost) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "30", 1);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Window window = group.window(numbers(group));
    constexpr int kSignals = 5;
    if (group.rank() == 0) {
      for (int i = 0; i < kSignals; ++i) window.put_signal(1);
      group.host_barrier();
    } else {
      group.host_barrier();  // some of them wait by now
      for (int i = 0; i < kSignals; ++i) window.wait_signal(0);
    }
    synchronize(group.device());
    require(!window.signal_pad().any().item<bool>(), "all signals are taken");
    window.barrier();
  });
  unsetenv("GANTRY_COLL_TIMEOUT");
}

TEST_F(WindowTest, KernelsOfTheProgramMaySignalThroughThePads) {
  GANTRY_REQUIRE_DEVICES(2);
  if (testing::kIsThreadSanitized) GTEST_SKIP() << "a simulated fill writes without atomics";
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Window window = group.window(numbers(group));
    const int other = 1 - group.rank();
    require(window.signal_pad().sizes() == Dims{Window::kChannels, 2}, "shape");
    require(window.signal_pad(group.rank()).data() == window.signal_pad().data(), "own pad");
    // A fill is a kernel that sets the word as put_signal() does.
    window.signal_pad(other).select(0, 5).select(0, group.rank()).fill_(1);
    window.wait_signal(other, 5);
    require(!window.signal_pad().any().item<bool>(), "the signal is taken");
    window.barrier();
  });
}

TEST_F(WindowTest, SignalsAreReplayedWithGraphs) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Stream stream = Stream::from_pool(group.device());
    const StreamGuard guard(stream);
    const Tensor mine = zeros({1}, {.dtype = i64, .device = group.device()});
    const Window window = group.window(mine);
    const int other = 1 - group.rank();
    const Tensor seen = zeros({1}, {.dtype = i64, .device = group.device()});
    Graph graph;
    {
      GraphCapture capture(graph);
      window.peer(other).add_(1);
      window.put_signal(other);
      window.wait_signal(other);
      Tensor(seen).add_(mine);
      window.put_signal(other, 1);
      window.wait_signal(other, 1);
    }
    for (int i = 0; i < 5; ++i) graph.replay();
    stream.synchronize();
    require(seen.item<int>() == 15, fmt::format("saw {}", seen.item<int>()));
    window.barrier();
    stream.synchronize();
  });
}

TEST_F(WindowTest, TensorsThatDifferAreRefusedOnEveryRank) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const TensorOptions options{.dtype = f32, .device = group.device()};
    expect_throws<InvalidArgument>(
        [&] { (void)group.window(zeros({group.rank() + 2}, options)); },
        "window: expected one dtype, shape and layout on all ranks, but rank 0 has f32 [2]");
    const Tensor ok = zeros({8}, options);
    if (group.rank() == 0) {
      expect_throws<InvalidArgument>([&] { (void)group.window(ok); },
                                     "window: rank 1 could not take part: window: ");
    } else {
      expect_throws<DeviceMismatchError>([&] { (void)group.window(zeros({8})); }, "window: ");
    }
    suite.all(i32, 100);
    const Window window = group.window(ok);
    window.barrier();
    suite.all(i32, 100);
  });
}

TEST_F(WindowTest, BadInput) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const Window window = group.window(numbers(group));
    const int other = 1 - group.rank();
    for (const int rank : {-1, 2}) {
      const std::string text = fmt::format(": expected a rank from 0 to 1, but got {}", rank);
      expect_throws<InvalidArgument>([&] { (void)window.peer(rank); }, "peer" + text);
      expect_throws<InvalidArgument>([&] { (void)window.signal_pad(rank); }, "signal_pad" + text);
      expect_throws<InvalidArgument>([&] { window.put_signal(rank); }, "put_signal" + text);
      expect_throws<InvalidArgument>([&] { window.wait_signal(rank); }, "wait_signal" + text);
    }
    expect_throws<InvalidArgument>(
        [&] { window.put_signal(group.rank()); },
        fmt::format("put_signal: expected another rank than this one, {}", group.rank()));
    for (const int channel : {-1, Window::kChannels}) {
      expect_throws<InvalidArgument>(
          [&] { window.wait_signal(other, channel); },
          fmt::format("wait_signal: expected a channel from 0 to 63, but got {}", channel));
    }
    const Stream foreign = Stream::default_stream(Device::cuda(other));
    expect_throws<InvalidArgument>([&] { window.barrier(foreign); },
                                   "barrier: expected a stream of cuda:");
    expect_throws<InvalidArgument>([&] { window.put_signal(other, foreign); },
                                   "put_signal: expected a stream of cuda:");
    window.barrier();
  });
  const Window undefined;
  EXPECT_FALSE(undefined.defined());
  expect_throws<InvalidArgument>([&] { (void)undefined.rank(); },
                                 "Window::rank: expected a window, but got an undefined one");
  expect_throws<InvalidArgument>([&] { undefined.barrier(); },
                                 "Window::barrier: expected a window");
}

// Which launches may wait for other ranks.
TEST_F(WindowTest, LaunchesThatUseAWindowMayWaitForPeers) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const int other = 1 - group.rank();
    const Stream stream = Stream::current(group.device());
    const Tensor mine = numbers(group);
    const Tensor unrelated = ones({4}, {.device = group.device()});
    require(!uses(mine).waits_for_peers(), "without a window");
    Tensor theirs;
    {
      const Window window = group.window(mine);
      theirs = window.peer(other);
      require(uses(window).waits_for_peers(), "the window");
      require(uses(unrelated, window, window).writes(mine).waits_for_peers(), "among others");
      require(uses(mine.narrow(0, 7, 3)).waits_for_peers(), "a part of this rank's tensor");
      require(uses().writes(theirs).waits_for_peers(), "a tensor of another rank");
      require(uses(window.signal_pad()).waits_for_peers(), "this rank's pad");
      require(uses(window.signal_pad(other)[3]).waits_for_peers(), "a row of another pad");
      require(!uses(unrelated).waits_for_peers(), "other memory");
      uses(window).check("launch", stream);
      uses(window).record(stream);
      expect_throws<InvalidArgument>(
          [&] { uses(window).check("launch", Stream::default_stream(Device::cuda(other))); },
          "launch: expected a stream of cuda:");
      window.barrier();
    }
    require(uses(theirs).waits_for_peers(), "the tensor keeps the window");
    theirs = {};
    group.host_barrier();
    require(!uses(mine).waits_for_peers(), "after the window");
    group.host_barrier();
    const Window window = group.window(mine);
    group.host_barrier();
    if (group.rank() == 0) group.abort();
    while (true) {
      try {
        uses(window).check("launch", stream);
      } catch (const PeerLostError&) {
        break;
      }
    }
  });
  expect_throws<InvalidArgument>([] { (void)uses(Window()); },
                                 "Window::uses: expected a window, but got an undefined one");
}

// A step of one rank that another one waits for, also if the rank fails.
class Step {
 public:
  void await() const { is_done_.wait(false); }
  void finish() {
    is_done_ = true;
    is_done_.notify_all();
  }

 private:
  std::atomic<bool> is_done_{false};
};

TEST_F(WindowTest, AWaitEndsWithTheGroup) {
  GANTRY_REQUIRE_DEVICES(2);
  Step waits;
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Window window = group.window(numbers(group));
    window.barrier();
    synchronize(group.device());
    if (group.rank() == 1) {
      waits.await();
      group.abort();
      return;
    }
    window.wait_signal(1);
    waits.finish();
    expect_throws<PeerLostError>([&] { synchronize(group.device()); }, "rank 1 aborted");
    expect_throws<PeerLostError>([&] { window.put_signal(1); }, "rank 1 aborted");
  });
}

TEST_F(WindowTest, ASignalThatDoesNotComeIsATimeoutThatNamesTheRank) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "1", 1);
  Step late;
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const Window window = group.window(numbers(group));
    if (group.rank() == 1) late.await();
    std::string text = "nothing was thrown";
    std::vector<int> ranks;
    try {
      if (group.rank() == 0) window.wait_signal(1, 9);
      if (group.rank() == 0) synchronize(group.device());
      if (group.rank() == 1) window.put_signal(0);
    } catch (const TimeoutError& error) {
      text = error.what();
      ranks = error.ranks();
    }
    late.finish();
    require(ranks == std::vector<int>{1}, "the late rank: " + text);
    require(text.find("rank 0: wait_signal(1) on channel 9 did not finish within 1 s: the other "
                      "rank did not do its part (GANTRY_COLL_TIMEOUT sets the deadline)") !=
                std::string::npos,
            text);
  });
  unsetenv("GANTRY_COLL_TIMEOUT");
}

TEST_F(WindowTest, AWindowReturnsItsMemory) {
  on_ranks(most_ranks(), [](CollectiveSuite&, Communicator& group) {
    Tensor peer;
    {
      Window window = group.window(numbers(group));
      window.barrier();
      peer = window.peer((group.rank() + 1) % group.size());
    }
    // The tensor of a peer keeps the window.
    require(has_numbers(peer, (group.rank() + 1) % group.size()), "the numbers");
    group.barrier();
    synchronize(group.device());
    peer = Tensor();
    group.host_barrier();
    memory::ipc_collect();
  });
  for (int i = 0; i < most_ranks(); ++i) {
    EXPECT_EQ(memory::ipc_stats(Device::cuda(i)).imports, 0U) << i;
  }
}

TEST_F(WindowTest, RanksThatCannotReachEachOtherHaveNone) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "host", 1);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    expect_throws<NotSupported>(
        [&] { (void)group.window(numbers(group)); },
        "window: expected ranks that reach each other's memory, but the transport between them is "
        "'host'");
  });
}

}  // namespace
}  // namespace gantry
