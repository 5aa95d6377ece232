// Messages of mixed sizes between ranks, whose tags the ranks or threads beside them compute.
#include "collectives/host/links/links.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>

#include "tests/collectives/throws.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using testing::expect_throws;
using testing::rank_threads;

constexpr int kRanks = 3;

class HostLinksTest : public ::testing::TestWithParam<TagThread::Start> {
 protected:
  // Calls `fn` on every rank of a group with links over TCP.
  static void linked_ranks(const std::function<void(int rank, HostLinks& links)>& fn) {
    auto bootstraps = make_local_bootstraps(kRanks);
    rank_threads(kRanks, [&](int rank) {
      Bootstrap& bootstrap = *bootstraps[static_cast<std::size_t>(rank)];
      LinkGroup group{rank, kRanks, std::chrono::seconds(60)};
      group.tags = GetParam();
      const auto links = make_tcp_links(bootstrap, group);
      (void)bootstrap.all_gather("linked");
      fn(rank, *links);
      (void)bootstrap.all_gather("done");
    });
  }

  // The bytes of a message from one rank to another.
  static std::vector<std::byte> message(int from, int to, std::size_t bytes) {
    std::mt19937 random(static_cast<unsigned>(from * kRanks + to));
    std::vector<std::byte> made(bytes);
    for (std::byte& byte : made) byte = static_cast<std::byte>(random());
    return made;
  }
};

INSTANTIATE_TEST_SUITE_P(Tags, HostLinksTest,
                         ::testing::Values(TagThread::Start::with_spare_cpus,
                                           TagThread::Start::always),
                         [](const auto& test) {
                           return test.param == TagThread::Start::always ? "aside" : "spare_cpus";
                         });

TEST_P(HostLinksTest, AllPairsExchangeLongAndShortMessagesAtOnce) {
  linked_ranks([](int rank, HostLinks& links) {
    for (const std::size_t size : {3'000'000, 0, 131'072, 131'071, 7, 1'500'000}) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<std::vector<std::byte>> buffers;
      std::vector<int> others;
      for (int other = 0; other < kRanks; ++other) {
        if (other == rank) continue;
        others.push_back(other);
        sent.push_back(message(rank, other, size + static_cast<std::size_t>(rank)));
        buffers.emplace_back(size + kRanks);
      }
      std::vector<Outgoing> sends;
      std::vector<Incoming> receives;
      for (std::size_t i = 0; i < others.size(); ++i) {
        sends.push_back({others[i], {}, sent[i]});
        receives.push_back({others[i], buffers[i]});
      }
      links.exchange(sends, receives);
      for (std::size_t i = 0; i < others.size(); ++i) {
        buffers[i].resize(receives[i].bytes);
        EXPECT_EQ(buffers[i], message(others[i], rank, size + static_cast<std::size_t>(others[i])));
      }
      // The bytes are the caller's again.
      for (std::vector<std::byte>& bytes : sent) bytes.assign(bytes.size(), std::byte{0});
    }
  });
}

TEST_P(HostLinksTest, ARankThatAbortsInALongMessageLeavesNoBytesInUse) {
  linked_ranks([](int rank, HostLinks& links) {
    const std::byte hello{};
    if (rank == 0) {
      const Outgoing hellos[]{{1, {}, {&hello, 1}}, {2, {}, {&hello, 1}}};
      links.exchange(hellos, {});
      // The long messages have begun to arrive.
      for (const int other : {1, 2}) {
        while (!links.has_message(other)) std::this_thread::yield();
      }
      links.abort();
      return;
    }
    std::byte got{};
    Incoming first{0, {&got, 1}};
    links.exchange({}, {&first, 1});
    const std::vector<std::byte> sent(16'000'000, std::byte{1});
    std::vector<std::byte> received(sent.size());
    const int other = kRanks - rank;
    const Outgoing sends[]{{other, {}, sent}, {0, {}, sent}};
    Incoming receives[]{{other, received}};
    expect_throws<PeerLostError>([&] { links.exchange(sends, receives); }, "rank");
  });
}

}  // namespace
}  // namespace gantry
