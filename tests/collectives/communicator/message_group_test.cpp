// Sends and receives side by side: send_recv() and group().
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/throws.hpp"
#include "tests/support/sanitized.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;

// More than what is under way between two ranks at a time.
constexpr std::int64_t kLarge = testing::kIsSanitized ? 5 << 20 : 16 << 20;

Tensor content(int sender, int number, std::int64_t bytes) {
  constexpr std::int64_t kPeriod = 251;
  const Tensor period =
      arange(kPeriod, {.dtype = i64}).mul_(7 * sender + 13).add_(number).remainder(kPeriod).to(u8);
  const std::int64_t periods = bytes / kPeriod + 1;
  return period.expand({periods, kPeriod})
      .contiguous()
      .view({periods * kPeriod})
      .narrow(0, 0, bytes);
}

void require_content(const Tensor& received, int sender, int number) {
  if (received.cpu().equal(content(sender, number, received.numel()))) return;
  throw std::runtime_error(fmt::format("message {} of {} bytes from rank {} is wrong", number,
                                       received.numel(), sender));
}

// Over each transport that a group inside one process may have.
class MessageGroupTest : public testing::LocalGroupTest,
                         public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    LocalGroupTest::SetUp();
    setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  }
  void TearDown() override {
    unsetenv("GANTRY_COLL_ALGO");
    unsetenv("GANTRY_COLL_TIMEOUT");
    LocalGroupTest::TearDown();
  }
  static bool is_host() { return std::string(GetParam()) == "host"; }
  static int most_ranks() { return std::min(device_count(), is_host() ? 4 : 8); }
};

INSTANTIATE_TEST_SUITE_P(Transports, MessageGroupTest, ::testing::Values("auto", "host"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(MessageGroupTest, ALargeRingOnOneStreamPasses) {
  GANTRY_REQUIRE_DEVICES(2);
  constexpr std::int64_t kBytes = kLarge;
  for (const int ranks : {2, 3, most_ranks()}) {
    if (ranks > device_count()) continue;
    on_ranks(ranks, [&](CollectiveSuite&, Communicator& group) {
      const int rank = group.rank();
      const int next = (rank + 1) % ranks;
      const int previous = (rank + ranks - 1) % ranks;
      const Tensor out = content(rank, 1, kBytes).to(group.device());
      Tensor in = zeros({kBytes}, {.dtype = u8, .device = group.device()});
      group.send_recv(out, next, in, previous).synchronize();
      require_content(in, previous, 1);

      Tensor again = zeros({kBytes}, {.dtype = u8, .device = group.device()});
      Work sent;
      {
        auto messages = group.group();
        sent = group.send(out, next);
        group.recv(again, previous);
        messages.end().synchronize();
      }
      EXPECT_TRUE(sent.query());
      require_content(again, previous, 1);
    });
  }
}

TEST_P(MessageGroupTest, AllPairsInAnyOrderPass) {
  GANTRY_REQUIRE_DEVICES(3);
  const int ranks = std::min(most_ranks(), 5);
  on_ranks(ranks, [&](CollectiveSuite&, Communicator& group) {
    std::mt19937 random(static_cast<unsigned>(group.rank()));
    for (int round = 0; round < 8; ++round) {
      // Of every pair: some messages, the same ones at both ends, in their order.
      const auto size_of = [&](int from, int to, int k) {
        const std::uint64_t mixed = (from * 31ull + to * 17 + k * 7 + round * 101) * 2654435761ull;
        constexpr std::int64_t kSizes[] = {0, 1, 777, 40'000, 300'001, 3'000'000};
        return kSizes[mixed / 65'536 % std::size(kSizes)];
      };
      struct Half {
        bool sends;
        int peer;
        int k;
      };
      std::vector<Half> halves;
      for (int peer = 0; peer < ranks; ++peer) {
        for (int k = 0; k < (round + peer + group.rank()) % 3 + 1; ++k) {
          halves.push_back({true, peer, k});
          halves.push_back({false, peer, k});
        }
      }
      // Any order, but for the messages of one pair and direction.
      std::shuffle(halves.begin(), halves.end(), random);
      std::map<std::pair<bool, int>, int> next;
      for (Half& half : halves) half.k = next[{half.sends, half.peer}]++;
      std::vector<std::pair<Half, Tensor>> received;
      auto messages = group.group();
      for (const Half& half : halves) {
        const int from = half.sends ? group.rank() : half.peer;
        const int to = half.sends ? half.peer : group.rank();
        const std::int64_t bytes = size_of(from, to, half.k);
        if (half.sends) {
          group.send(content(from, half.k, bytes).to(group.device()), to);
        } else {
          const Tensor in = full({bytes}, 3, {.dtype = u8, .device = group.device()});
          group.recv(in, from);
          received.emplace_back(half, in);
        }
      }
      messages.end();
      for (const auto& [half, in] : received) require_content(in, half.peer, half.k);
    }
  });
}

TEST_P(MessageGroupTest, TheOtherEndsMayBePlainCalls) {
  GANTRY_REQUIRE_DEVICES(3);
  constexpr std::int64_t kBytes = kLarge + 11;
  on_ranks(3, [&](CollectiveSuite&, Communicator& group) {
    const TensorOptions here{.dtype = u8, .device = group.device()};
    const int rank = group.rank();
    const auto mine = [&](int number) { return content(rank, number, kBytes).to(group.device()); };
    Tensor first = zeros({kBytes}, here);
    Tensor second = zeros({kBytes}, here);
    if (rank == 0) {
      auto messages = group.group();
      group.send(mine(1), 1);
      group.recv(first, 1);
      group.send(mine(2), 2);
      group.recv(second, 2);
      messages.end();
      require_content(first, 1, 1);
      require_content(second, 2, 2);
    } else if (rank == 1) {
      // What rank 2 waits for comes only after rank 0's message.
      group.recv(first, 0);
      group.send(mine(5), 2);
      group.send(mine(1), 0);
      require_content(first, 0, 1);
    } else {
      group.recv(first, 1);
      group.recv(second, 0);
      group.send(mine(2), 0);
      require_content(first, 1, 5);
      require_content(second, 0, 2);
    }
  });
}

TEST_P(MessageGroupTest, OneThreadMayDriveAllRanks) {
  GANTRY_REQUIRE_DEVICES(2);
  if (is_host()) GTEST_SKIP() << "the host takes part in each operation";
  constexpr std::int64_t kBytes = kLarge;
  const std::vector<Communicator> group = Communicator::local(devices(2));
  std::vector<Tensor> received;
  for (const Communicator& rank : group) {
    const Tensor out = content(rank.rank(), 0, kBytes).to(rank.device());
    received.push_back(zeros({kBytes}, {.dtype = u8, .device = rank.device()}));
    rank.send_recv(out, 1 - rank.rank(), received.back(), 1 - rank.rank());
  }
  require_content(received[0], 1, 0);
  require_content(received[1], 0, 0);
}

TEST_P(MessageGroupTest, SlicesStreamsAndMemoryInPlace) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const int other = 1 - group.rank();
    constexpr std::int64_t kRows = 1000;
    // Columns of a matrix, in one exchange on the same memory.
    Tensor matrix = zeros({kRows, 3}, {.dtype = u8, .device = group.device()});
    matrix.select(1, 1).copy_(content(group.rank(), 4, kRows));
    group.send_recv(matrix.select(1, 1), other, matrix.select(1, 1), other);
    require_content(matrix.select(1, 1).contiguous(), other, 4);
    EXPECT_EQ(matrix.select(1, 0).sum().item<int>(), 0);

    // Each on a stream of its own, whose earlier work it follows.
    const Stream sends = Stream::from_pool(group.device());
    const Stream receives = Stream::from_pool(group.device());
    Tensor out;
    Tensor in;
    auto messages = group.group();
    {
      const StreamGuard guard(sends);
      out = content(group.rank(), 5, kRows).to(group.device());
      group.send(out, other);
    }
    {
      const StreamGuard guard(receives);
      in = zeros({kRows}, {.dtype = u8, .device = group.device()});
      group.recv(in, other);
    }
    messages.end();
    const StreamGuard guard(receives);
    require_content(in, other, 5);
  });
}

TEST_P(MessageGroupTest, ARankMaySendToItself) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const int ranks : {1, 2}) {
    on_ranks(ranks, [&](CollectiveSuite&, Communicator& group) {
      const int me = group.rank();
      const Tensor out = content(me, 6, 5000).to(group.device());
      Tensor in = zeros({5000}, {.dtype = u8, .device = group.device()});
      group.send_recv(out, me, in, me).synchronize();
      require_content(in, me, 6);
      expect_throws<InvalidArgument>([&] { group.send(out, me); }, "this rank itself");
      auto messages = group.group();
      group.send(out, me);
      expect_throws<InvalidArgument>(
          [&] { messages.end(); },
          fmt::format(
              "expected as many receives as sends between rank {} and itself, but got 0 and "
              "1",
              me));
      auto different = group.group();
      group.send(out, me);
      group.recv(zeros({3}, {.device = group.device()}), me);
      expect_throws<InvalidArgument>([&] { different.end(); }, "u8[5000]");
    });
  }
}

TEST_P(MessageGroupTest, MessagesThatDifferNameBothEnds) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::string text =
      "expected a recv of what is sent, but rank 0 called send u8[200000] to 1 and rank 1 called "
      "recv f32[200000] from 0";
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const TensorOptions bytes{.dtype = u8, .device = group.device()};
    const int other = 1 - group.rank();
    expect_throws<InvalidArgument>(
        [&] {
          Tensor in =
              zeros({200'000}, {.dtype = group.rank() == 1 ? f32 : u8, .device = group.device()});
          group.send_recv(zeros({200'000}, bytes), other, in, other).synchronize();
          // Over the host small messages are refused later.
          group.barrier().synchronize();
        },
        text);
  });
}

TEST_P(MessageGroupTest, WhatDoesNotBelongIntoAGroupIsRefused) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const int other = 1 - group.rank();
    const Tensor data = ones({64}, {.device = group.device()});
    {
      auto messages = group.group();
      expect_throws<InvalidArgument>([&] { group.all_reduce(data); },
                                     "all_reduce: expected send, recv or send_recv inside group()");
      expect_throws<InvalidArgument>([&] { group.barrier(); }, "barrier: expected send");
      expect_throws<InvalidArgument>([&] { (void)group.group(); }, "but got one with 0 message(s)");
      expect_throws<InvalidArgument>([&] { group.send(data, 2); },
                                     "send: expected a rank from 0 to 1 for 'destination'");
      const Work work = group.send(data, other);
      expect_throws<InvalidArgument>([&] { work.wait(); }, "whose group() has ended");
      expect_throws<InvalidArgument>([&] { (void)work.query(); }, "whose group() has ended");
      Tensor in = zeros({64}, {.device = group.device()});
      group.recv(in, other);
      messages.end().synchronize();
      EXPECT_EQ(in.sum().item<float>(), 64);
      EXPECT_TRUE(work.query());
      expect_throws<InvalidArgument>([&] { messages.end(); }, "but got one that has ended");
    }
    {
      auto messages = group.group();
      Tensor in = zeros({64}, {.device = group.device()});
      group.recv(in, other);
      group.recv(in.narrow(0, 32, 32), other);
      expect_throws<InvalidArgument>([&] { messages.end(); }, "two of them share some");
    }
    // A group that its scope ends tells later what end() would have thrown.
    Work lost;
    {
      auto messages = group.group();
      lost = group.send(data, group.rank());
    }
    expect_throws<InvalidArgument>([&] { lost.synchronize(); }, "as many receives as sends");
    expect_throws<InvalidArgument>([&] { group.barrier(); }, "as many receives as sends");
    // One that an exception leaves sends nothing.
    try {
      auto messages = group.group();
      lost = group.send(data, other);
      throw std::runtime_error("elsewhere");
    } catch (const std::runtime_error&) {
    }
    expect_throws<Error>([&] { lost.synchronize(); }, "an exception left the scope of the group");
    // Nothing of all that has harmed the communicator.
    Tensor sum = ones({10}, {.device = group.device()});
    group.all_reduce(sum).synchronize();
    EXPECT_EQ(sum.sum().item<float>(), 20);
    Tensor in = zeros({64}, {.device = group.device()});
    group.send_recv(data, other, in, other);
    EXPECT_EQ(in.sum().item<float>(), 64);
  });
}

TEST_P(MessageGroupTest, AsManyMessagesAsAreAllowedAndNoMore) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const int other = 1 - group.rank();
    std::vector<Tensor> received;
    auto messages = group.group();
    for (int k = 0; k < 256; ++k) {
      group.send(content(group.rank(), k, 3 * k).to(group.device()), other);
      received.push_back(zeros({3 * k}, {.dtype = u8, .device = group.device()}));
      group.recv(received.back(), other);
    }
    expect_throws<InvalidArgument>([&] { group.send(received.back(), other); },
                                   "at most 512 messages in one group()");
    messages.end();
    for (int k = 0; k < 256; ++k) {
      require_content(received[static_cast<std::size_t>(k)], other, k);
    }
  });
}

TEST_P(MessageGroupTest, AGraphExchangesAtEveryLaunch) {
  GANTRY_REQUIRE_DEVICES(2);
  if (is_host()) GTEST_SKIP() << "the host takes part in each operation";
  constexpr std::int64_t kBytes = 2'000'000;
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const int other = 1 - group.rank();
    Tensor out = content(group.rank(), 0, kBytes).to(group.device());
    Tensor in = zeros({kBytes}, {.dtype = u8, .device = group.device()});
    Tensor small = zeros({100}, {.dtype = u8, .device = group.device()});
    const Stream stream = Stream::from_pool(group.device());
    const StreamGuard guard(stream);
    synchronize(group.device());
    driver().begin_capture(stream.native(), CaptureMode::relaxed);
    group.send_recv(out, other, in, other);
    {
      const auto messages = group.group();
      group.send(out.narrow(0, 0, 100), other);
      group.recv(small, other);
    }
    const NativeGraph graph = driver().end_capture(stream.native());
    for (int round = 0; round < 3; ++round) {
      out.copy_(content(group.rank(), round, kBytes));
      in.zero_();
      driver().launch_graph(graph, stream.native());
      require_content(in, other, round);
      require_content(small, other, round);
    }
    group.host_barrier();
    driver().destroy_graph(graph);
  });
}

TEST_P(MessageGroupTest, APlainSendThatWaitsInVainNamesTheRemedy) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_TIMEOUT", "3", 1);
  on_ranks(2, [&](CollectiveSuite&, Communicator& group) {
    const int other = 1 - group.rank();
    const Tensor data = zeros({16 << 20}, {.dtype = u8, .device = group.device()});
    Tensor in = zeros({16 << 20}, {.dtype = u8, .device = group.device()});
    const auto ring = [&] {
      group.send(data, other);
      group.recv(in, other).synchronize();
    };
    try {
      ring();
      ADD_FAILURE() << "both wait for each other";
    } catch (const TimeoutError& error) {
      EXPECT_THAT(error.what(), ::testing::AnyOf(::testing::HasSubstr("send_recv(), group()"),
                                                 ::testing::HasSubstr(", says rank ")));
    }
  });
}

TEST_P(MessageGroupTest, ACaptureOverTheHostSaysWhyItIsRefused) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!is_host()) GTEST_SKIP() << "kernels can be captured";
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const Stream stream = Stream::from_pool(group.device());
    const StreamGuard guard(stream);
    const Tensor data = ones({100}, {.device = group.device()});
    driver().begin_capture(stream.native(), CaptureMode::relaxed);
    const std::string why =
        ": expected a stream that is not being captured, because the host takes part in the "
        "operation, but got one that is";
    expect_throws<CaptureError>([&] { group.barrier(); }, "barrier" + why);
    expect_throws<CaptureError>([&] { group.all_reduce(data); }, "all_reduce" + why);
    driver().destroy_graph(driver().end_capture(stream.native()));
    group.host_barrier();
    suite.uneven(i32, 3, 0);
  });
}

TEST_P(MessageGroupTest, ATimeoutHasTheCallOfTheRankThatWaited) {
  GANTRY_REQUIRE_DEVICES(3);
  for (const int waiting : {1, 2}) {
    on_ranks(3, [&](CollectiveSuite&, Communicator& group) {
      const int next = (group.rank() + 1) % 3;
      const Tensor data = zeros({16 << 20}, {.dtype = u8, .device = group.device()});
      Tensor in = zeros({16 << 20}, {.dtype = u8, .device = group.device()});
      group.set_timeout(std::chrono::milliseconds(group.rank() == waiting ? 500 : 600'000));
      const std::string late = std::to_string((waiting + 1) % 3);
      try {
        group.send(data, next);
        group.recv(in, (group.rank() + 2) % 3).synchronize();
        ADD_FAILURE() << "all wait for each other";
      } catch (const TimeoutError& error) {
        EXPECT_EQ(error.ranks(), std::vector<int>{(waiting + 1) % 3});
        const std::string waited = "rank " + std::to_string(waiting) + " waited ";
        const std::string missing = ", but rank(s) " + late + " did not enter the operation" +
                                    (is_host() ? "" : " #1 send u8[16777216] to " + late) +
                                    " (the group's timeout sets the deadline)";
        const std::string told =
            "rank " + late + " did not enter the operation in time, says rank " +
            std::to_string(waiting) + " (the group's timeout sets the deadline)";
        using ::testing::HasSubstr;
        EXPECT_THAT(error.what(),
                    ::testing::AnyOf(::testing::AllOf(HasSubstr(waited), HasSubstr(missing)),
                                     HasSubstr(told)));
      }
    });
  }
}

}  // namespace
}  // namespace gantry
