// Connections between ranks that are made when they are needed, with ranks as threads.
#include "collectives/host/links/connections.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <filesystem>
#include <future>
#include <iterator>
#include <limits>
#include <random>
#include <thread>

#include <gantry/core/error.hpp>

#include "tests/collectives/throws.hpp"
#include "tests/support/rank_threads.hpp"

namespace {

// The limit of open files that cannot be raised; 0: the system's.
std::atomic<rlim_t> hard_limit{0};

}  // namespace

// Replaces the system's function in this process.
extern "C" [[gnu::visibility("default")]] int getrlimit(__rlimit_resource_t resource,
                                                        rlimit* limit) noexcept {
  const long code = syscall(SYS_prlimit64, 0, resource, nullptr, limit);
  const rlim_t hard = hard_limit;
  if (code == 0 && resource == RLIMIT_NOFILE && hard > 0) limit->rlim_max = hard;
  return static_cast<int>(code);
}

namespace gantry {
namespace {

using testing::expect_throws;
using testing::rank_threads;

constexpr std::chrono::seconds kLong{60};
// More than a small group, in which all ranks are neighbours.
constexpr int kRanks = 40;

using LinkTest = std::function<void(int rank, HostLinks& links)>;

// Calls `fn` on every rank of a group with links.
void linked_ranks(
    int size, const LinkTest& fn, const std::function<void()>& when_linked = [] {},
    std::chrono::milliseconds timeout = kLong) {
  auto bootstraps = make_local_bootstraps(size);
  rank_threads(size, [&](int rank) {
    Bootstrap& bootstrap = *bootstraps[static_cast<std::size_t>(rank)];
    const auto links = make_tcp_links(bootstrap, {rank, size, timeout});
    (void)bootstrap.all_gather("linked");
    if (rank == 0) when_linked();
    (void)bootstrap.all_gather("begin");
    fn(rank, *links);
    (void)bootstrap.all_gather("done");
  });
}

std::span<const std::byte> bytes_of(const int& value) {
  return std::as_bytes(std::span(&value, 1));
}

// Sends this rank's number to the ranks `to`, and expects the numbers of the ranks `from`.
void expect_exchange(HostLinks& links, int rank, const std::vector<int>& to,
                     const std::vector<int>& from) {
  std::vector<Outgoing> sends;
  for (const int other : to) sends.push_back({other, bytes_of(rank)});
  std::vector<int> values(from.size(), -1);
  std::vector<Incoming> receives;
  for (std::size_t i = 0; i < from.size(); ++i) {
    receives.push_back({from[i], std::as_writable_bytes(std::span(&values[i], 1))});
  }
  links.exchange(sends, receives);
  EXPECT_EQ(values, from);
}

// Waits for a message of `from` that does not come.
void await_nothing(HostLinks& links, int from) {
  int value = 0;
  Incoming message{from, std::as_writable_bytes(std::span(&value, 1))};
  links.exchange({}, {&message, 1});
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST(HostConnectionsTest, ALargeGroupBeginsWithAFewConnectionsOfEachRank) {
  const std::ptrdiff_t before = open_descriptors();
  std::ptrdiff_t linked = 0;
  std::ptrdiff_t exchanged = 0;
  linked_ranks(
      kRanks,
      [&](int rank, HostLinks& links) {
        // One pair, at a distance that no neighbours have.
        if (rank == 3) expect_exchange(links, rank, {25}, {25});
        if (rank == 25) expect_exchange(links, rank, {3}, {3});
        if (rank == 3) exchanged = open_descriptors();
      },
      [&] { linked = open_descriptors(); });
  // Three descriptors of each rank, and both ends of connections to distances 1, 4, 16.
  EXPECT_EQ(linked - before, kRanks * (3 + 6));
  // One connection, or two where both sides made one at once, with what their handshakes hold.
  EXPECT_GE(exchanged - linked, 2);
  EXPECT_LE(exchanged - linked, 6);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(HostConnectionsTest, PairsThatConnectFromBothSidesAtOnceExchangeEveryMessage) {
  std::vector<int> all(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) all[static_cast<std::size_t>(rank)] = rank;
  for (unsigned round = 0; round < 4; ++round) {
    linked_ranks(kRanks, [&](int rank, HostLinks& links) {
      std::vector<int> others = all;
      std::erase(others, rank);
      std::shuffle(others.begin(), others.end(),
                   std::mt19937(round * kRanks + static_cast<unsigned>(rank)));
      for (int turn = 0; turn < 3; ++turn) expect_exchange(links, rank, others, others);
    });
  }
}

TEST(HostConnectionsTest, ASmallMessageDoesNotWaitForItsReceiver) {
  linked_ranks(kRanks, [](int rank, HostLinks& links) {
    // The receivers are not in an exchange before they have sent themselves.
    const int peer = (rank + kRanks / 2) % kRanks;
    expect_exchange(links, rank, {peer}, {});
    expect_exchange(links, rank, {}, {peer});
  });
}

TEST(HostConnectionsTest, AnAbortReachesRanksThatHaveNoConnectionToIt) {
  linked_ranks(kRanks, [](int rank, HostLinks& links) {
    if (rank == 0) return links.abort();
    // No two of them wait for each other, or for rank 0.
    const int from = rank % (kRanks - 1) + 1;
    expect_throws<PeerLostError>([&] { await_nothing(links, from); },
                                 "rank 0 aborted; the communicator of 40 ranks is unusable");
  });
}

TEST(HostConnectionsTest, ARankThatHasLeftIsNamedToRanksThatConnectLater) {
  linked_ranks(kRanks, [](int rank, HostLinks& links) {
    if (rank == 9) return links.leave();
    if (rank != 31) return;
    expect_throws<PeerLostError>([&] { await_nothing(links, 9); }, "rank 9 has left the job");
  });
}

TEST(HostConnectionsTest, ARankThatDoesNotAnswerItsMessagesIsLate) {
  linked_ranks(
      kRanks,
      [](int rank, HostLinks& links) {
        if (rank != 31) return;
        expect_throws<TimeoutError>([&] { await_nothing(links, 9); },
                                    "rank 31 waited 1 s, but rank(s) 9 did not enter");
      },
      [] {}, std::chrono::seconds(1));
}

// A scope with room for few more descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{static_cast<rlim_t>(open_descriptors()) + count, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() {
    hard_limit = 0;
    setrlimit(RLIMIT_NOFILE, &before_);
  }
  static rlim_t limit() {
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    return now.rlim_cur;
  }

 private:
  rlimit before_{};
};

std::vector<int> all_but(int rank, int size) {
  std::vector<int> others;
  for (int other = 0; other < size; ++other) {
    if (other != rank) others.push_back(other);
  }
  return others;
}

// Two ends of two connections for each pair of ranks.
constexpr rlim_t kAllPairs = 2 * kRanks * (kRanks - 1);
// Enough for the neighbours.
constexpr rlim_t kNoPairs = kAllPairs / 4;

TEST(HostConnectionsTest, AGroupRaisesTheLimitOfOpenFiles) {
  const FewDescriptors few(kNoPairs);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_max < limit.rlim_cur + kAllPairs) GTEST_SKIP() << "the hard limit is too low";
  linked_ranks(kRanks, [&](int rank, HostLinks& links) {
    const std::vector<int> others = all_but(rank, kRanks);
    expect_exchange(links, rank, others, others);
  });
  EXPECT_EQ(FewDescriptors::limit(), limit.rlim_max);
}

TEST(HostConnectionsTest, ALimitOfOpenFilesThatCannotBeRaisedIsNamed) {
  const FewDescriptors few(kNoPairs);
  hard_limit = FewDescriptors::limit();
  std::atomic<int> named = 0;
  linked_ranks(kRanks, [&](int rank, HostLinks& links) {
    const std::vector<int> others = all_but(rank, kRanks);
    try {
      expect_exchange(links, rank, others, others);
      ADD_FAILURE() << "rank " << rank << " is connected";
    } catch (const PeerLostError& error) {
      const std::string text = error.what();
      const std::string cause = "the limit of open files is " + std::to_string(hard_limit) +
                                "; raise it (ulimit -n); the communicator of 40 ranks is unusable";
      // The rank that lacks descriptors is the one that fails.
      EXPECT_THAT(text, ::testing::HasSubstr(" aborted"));
      if (text.find(cause) == std::string::npos) return;
      EXPECT_EQ(error.rank(), rank) << text;
      ++named;
    }
  });
  EXPECT_GE(named, 1);
}

TEST(HostConnectionsTest, AProbeFindsTheProgressOfEveryRank) {
  constexpr int kFew = 5;
  std::atomic<int> are_set = 0;
  std::atomic<int> have_probed = 0;
  std::atomic<bool> is_gone = false;
  linked_ranks(kFew, [&](int rank, HostLinks& links) {
    const auto begun = static_cast<std::uint64_t>(10 + rank);
    links.monitor()->set_progress({begun, begun - 1});
    ++are_set;
    while (are_set < kFew) std::this_thread::yield();
    const auto all = links.monitor()->probe();
    ASSERT_EQ(all.size(), std::size_t{kFew});
    for (std::uint64_t other = 0; other < kFew; ++other) {
      ASSERT_TRUE(all[other].has_value()) << other;
      EXPECT_EQ(all[other]->begun, 10 + other);
      EXPECT_EQ(all[other]->finished, 9 + other);
    }
    ++have_probed;
    if (rank == 3) {  // leaves in order: it is not behind
      while (have_probed < kFew) std::this_thread::yield();
      links.leave();
      EXPECT_TRUE(links.monitor()->probe().empty());
      while (!is_gone) std::this_thread::yield();
    } else if (rank == 0) {
      while (links.monitor()->probe()[3]->begun == 13) std::this_thread::yield();
      EXPECT_EQ(links.monitor()->probe()[3]->finished, std::numeric_limits<std::uint64_t>::max());
      is_gone = true;
    }
  });
}

// Ranks whose replies a failure cuts off are not silent.
TEST(HostConnectionsTest, AProbeThatAFailureCutsOffNamesNobody) {
  std::atomic<int> are_ready = 0;
  linked_ranks(kRanks, [&](int rank, HostLinks& links) {
    LinkMonitor& monitor = *links.monitor();
    ++are_ready;
    while (are_ready < kRanks) std::this_thread::yield();
    if (rank == 7) return monitor.report_late(5);
    // All processes run, so a reply is missing only where the failure was quicker.
    while (true) {
      const auto replies = monitor.probe();
      if (replies.empty()) break;
      for (std::size_t other = 0; other < replies.size(); ++other) {
        EXPECT_TRUE(replies[other].has_value()) << rank << " of " << other;
      }
    }
    EXPECT_NE(monitor.failure(), nullptr);
  });
}

TEST(HostConnectionsTest, EveryRankIsToldOfALateOneAndOfOneWithoutNccl) {
  std::atomic<int> told = 0;
  linked_ranks(kRanks, [&](int rank, HostLinks& links) {
    LinkMonitor& monitor = *links.monitor();
    std::promise<std::exception_ptr> failure;
    if (rank != 7) {
      monitor.on_failure([&](std::exception_ptr why) { failure.set_value(std::move(why)); });
    } else {
      monitor.report_no_nccl();
    }
    while (monitor.rank_without_nccl() != 7) std::this_thread::yield();
    ++told;
    while (told < kRanks) std::this_thread::yield();
    if (rank == 7) return monitor.report_late(5);
    // Whichever rank passed it on.
    expect_throws<TimeoutError>([&] { std::rethrow_exception(failure.get_future().get()); },
                                "rank 5 did not enter the operation in time, says rank 7 "
                                "(GANTRY_COLL_TIMEOUT sets the deadline)");
  });
}

TEST(HostConnectionsTest, ALateRankIsNamedByTheRankThatWaited) {
  const LinkGroup group{.rank = 1, .size = 4};
  const auto text_of = [&](const ControlMessage& message, int from) {
    try {
      std::rethrow_exception(LinkError::error_of(group, message, {}, from));
    } catch (const TimeoutError& error) {
      EXPECT_EQ(error.ranks(), std::vector<int>{0});
      return std::string(error.what());
    }
  };
  const std::string late = "collective: rank 0 did not enter the operation in time, says rank ";
  // Rank 0 hears that it is late, and passes that on.
  EXPECT_EQ(text_of(ControlMessage::of_late(0, 3, DeadlineSource::group), 0),
            late + "3 (the group's timeout sets the deadline)");
  EXPECT_EQ(text_of(ControlMessage::of_late(0, 2, DeadlineSource::call), 0),
            late + "2 (the call's timeout sets the deadline)");
  EXPECT_EQ(text_of(ControlMessage::of_late(0, 2, DeadlineSource::variable), 2),
            late + "2 (GANTRY_COLL_TIMEOUT sets the deadline)");
  // No rank of the group sends this.
  EXPECT_EQ(text_of(ControlMessage::of_late(0, 9, static_cast<DeadlineSource>(77)), 2),
            late + "2 (GANTRY_COLL_TIMEOUT sets the deadline)");
}

TEST(HostConnectionsTest, AReportOfALateRankHasWhatSetTheDeadline) {
  linked_ranks(2, [&](int rank, HostLinks& links) {
    LinkMonitor& monitor = *links.monitor();
    if (rank == 1) return monitor.report_late(0);
    std::promise<std::exception_ptr> failure;
    monitor.on_failure([&](std::exception_ptr why) { failure.set_value(std::move(why)); });
    expect_throws<TimeoutError>([&] { std::rethrow_exception(failure.get_future().get()); },
                                "says rank 1 (");
  });
}

}  // namespace
}  // namespace gantry
