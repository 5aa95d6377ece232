// The kernels' protocol by itself: host threads as ranks, without streams and communicators.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/p2p/plans.hpp"
#include "collectives/protocol/launch.hpp"
#include "collectives/protocol/signal.hpp"
#include "collectives/sim/schedule.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry::protocol {
namespace {

// Zeroed memory that takes no room until it is written.
class WorkspaceMemory {
 public:
  WorkspaceMemory()
      : data_(mmap(nullptr, kWorkspaceBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0)) {
    if (data_ == MAP_FAILED) throw std::runtime_error("no memory for a workspace");
  }
  ~WorkspaceMemory() { munmap(data_, kWorkspaceBytes); }
  WorkspaceMemory(const WorkspaceMemory&) = delete;
  WorkspaceMemory& operator=(const WorkspaceMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

class Ranks {
 public:
  explicit Ranks(int size) : workspaces_(size), words_(size), groups_(size) {
    for (int rank = 0; rank < size; ++rank) {
      Group& group = groups_[rank];
      group.rank = rank;
      group.size = size;
      group.layout = layout_for(size);
      group.words = &words_[rank];
      for (int p = 0; p < size; ++p) group.workspaces[p] = workspaces_[p].data();
    }
  }

  int size() const { return static_cast<int>(groups_.size()); }
  const Group& group(int rank) const { return groups_[rank]; }
  SignalPad& pad(int rank) { return pad_of(groups_[rank], rank); }
  DeviceWords& words(int rank) { return words_[rank]; }

  // As if all had made this many operations, the last one with all blocks and in no steps.
  void set_sequence(std::uint32_t sequence) {
    for (int rank = 0; rank < size(); ++rank) {
      SignalPad& words = pad(rank);
      for (int block = 0; block < kMaxBlocks; ++block) {
        words.ended[block] = sequence;
        for (int p = 0; p < size(); ++p) {
          words.staged[block][p] = words.ready[block][p] = words.taken[block][p] =
              signal(sequence, 0);
        }
      }
    }
  }

 private:
  std::deque<WorkspaceMemory> workspaces_;
  std::deque<DeviceWords> words_;
  std::vector<Group> groups_;
};

constexpr Algorithm kAlgorithms[] = {Algorithm::ll, Algorithm::ll_relay, Algorithm::direct,
                                     Algorithm::relay};

void run(Algorithm algorithm, const Group& group, const CollectiveCall& call, int blocks) {
  switch (algorithm) {
    case Algorithm::ll:
      return sim::packets(plan_packets(group, call), blocks);
    case Algorithm::ll_relay:
      return sim::packet_relay(plan_packet_relay(group, call), blocks);
    case Algorithm::relay:
      return sim::relay(plan_relay(group, call, blocks), blocks);
    default:
      return sim::exchange(plan_exchange(group, call, blocks), blocks);
  }
}

// Element i of what rank `rank` gives to call `number`.
std::int32_t given(int rank, std::int64_t number, std::int64_t i) {
  return static_cast<std::int32_t>((rank + 1) * 1000003 + number * 7919 + i * 31);
}

void all_reduce(Ranks& ranks, int rank, Algorithm algorithm, std::int64_t number,
                std::int64_t count, int blocks) {
  std::vector<std::int32_t> in(static_cast<std::size_t>(count));
  std::vector<std::int32_t> out(in.size(), -1);
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = given(rank, number, static_cast<std::int64_t>(i));
  }
  CollectiveCall call;
  call.what = {
      .call = number, .count = count, .kind = CollectiveKind::all_reduce, .dtype = DType::i32};
  call.in = in.data();
  call.out = out.data();
  run(algorithm, ranks.group(rank), call, blocks);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint32_t sum = 0;
    for (int p = 0; p < ranks.size(); ++p) {
      sum += static_cast<std::uint32_t>(given(p, number, static_cast<std::int64_t>(i)));
    }
    ASSERT_EQ(static_cast<std::uint32_t>(out[i]), sum)
        << name(algorithm) << " #" << number << " rank " << rank << " element " << i;
  }
}

// The same, of ranks that differ in `count`.
void all_reduce_that_fails(Ranks& ranks, int rank, Algorithm algorithm, std::int64_t number,
                           std::int64_t count) {
  std::vector<std::int32_t> in(static_cast<std::size_t>(count), rank);
  std::vector<std::int32_t> out(in.size(), -7);
  CollectiveCall call;
  call.what = {
      .call = number, .count = count, .kind = CollectiveKind::all_reduce, .dtype = DType::i32};
  call.in = in.data();
  call.out = out.data();
  run(algorithm, ranks.group(rank), call, 2);
  EXPECT_EQ(fault_of(ranks.words(rank).fault), OperationFault::mismatch);
  EXPECT_EQ(ranks.words(rank).fault_call, static_cast<std::uint64_t>(number));
  EXPECT_EQ(out, std::vector<std::int32_t>(in.size(), -7)) << "a result of nothing";
}

TEST(ProtocolTest, NumbersOfOperationsGoRound) {
  Ranks ranks(4);
  ranks.set_sequence(UINT32_MAX - 7);
  testing::rank_threads(ranks.size(), [&](int rank) {
    for (std::int64_t number = 1; number <= 18; ++number) {
      // As many blocks as not to divide anything, so that all their numbers are kept.
      const int blocks = 1 + static_cast<int>(number * 5 % 7);
      all_reduce(ranks, rank, kAlgorithms[number % 4], number, 3001, blocks);
    }
  });
  for (int rank = 0; rank < ranks.size(); ++rank) {
    for (const std::uint32_t ended : ranks.pad(rank).ended) ASSERT_EQ(ended, 10u);
  }
}

// Blocks that took part long ago left words that must not look like those of today.
TEST(ProtocolTest, OldWordsAreNotTakenForNewOnes) {
  for (const std::uint32_t distance :
       {2u, 3u, 0x40000000u, 0x80000001u, 0xc0000000u, 0xffffffffu}) {
    Ranks ranks(3);
    ranks.set_sequence(77);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      for (std::uint32_t& ended : ranks.pad(rank).ended) ended = 77 + distance - 1;
    }
    testing::rank_threads(ranks.size(), [&](int rank) {
      if (rank == 2) std::this_thread::yield();
      all_reduce(ranks, rank, Algorithm::relay, 1, 200'003, 5);
      all_reduce(ranks, rank, Algorithm::direct, 2, 200'003, 5);
    });
  }
}

// Nor must those of blocks that never took part: zeroed, they have the number of the operation
// after the last one.
TEST(ProtocolTest, ZeroedWordsAreNotTakenForEntries) {
  for (const Algorithm algorithm : kAlgorithms) {
    Ranks ranks(3);
    ranks.set_sequence(UINT32_MAX);
    testing::rank_threads(ranks.size(), [&](int rank) {
      // Others wait for it longer than it takes them to look what it calls.
      if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      all_reduce(ranks, rank, algorithm, 1, 3001, 4);
      all_reduce(ranks, rank, algorithm, 2, 3001, 4);
    });
    for (int rank = 0; rank < ranks.size(); ++rank) EXPECT_EQ(ranks.words(rank).fault, 0u);
  }
}

TEST(ProtocolTest, ManyRanksAndManySteps) {
  for (const int size : {3, 11, kMaxRanks}) {
    Ranks ranks(size);
    testing::rank_threads(size, [&](int rank) {
      std::int64_t number = 0;
      for (const Algorithm algorithm : kAlgorithms) {
        all_reduce(ranks, rank, algorithm, ++number, 1, 1);
        all_reduce(ranks, rank, algorithm, ++number, 4099, 3);
      }
      // More steps than there are slots.
      all_reduce(ranks, rank, Algorithm::relay, ++number, 300'007, kMaxBlocks);
    });
  }
}

// Large operations use the staging of both parities; small ones before and after them only one.
TEST(ProtocolTest, LargeOperationsBetweenSmallOnes) {
  constexpr std::int64_t kLarge = 1'600'003;
  Ranks ranks(3);
  CollectiveCall large;
  large.what = {.count = kLarge, .kind = CollectiveKind::all_reduce, .dtype = DType::i32};
  ASSERT_TRUE(plan_relay(ranks.group(0), large, 5).whole);
  ASSERT_TRUE(plan_exchange(ranks.group(0), large, 5).whole);
  testing::rank_threads(ranks.size(), [&](int rank) {
    std::int64_t number = 0;
    const auto small = [&](Algorithm algorithm) {
      all_reduce(ranks, rank, algorithm, ++number, 20'011, 2);
    };
    for (const Algorithm algorithm : {Algorithm::relay, Algorithm::direct}) {
      // One and two small ones between them, so that large ones begin with either parity.
      all_reduce(ranks, rank, algorithm, ++number, kLarge, 5);
      small(Algorithm::direct);
      all_reduce(ranks, rank, algorithm, ++number, kLarge, 3);
      small(Algorithm::relay);
      small(Algorithm::ll_relay);
      all_reduce(ranks, rank, algorithm, ++number, kLarge, 7);
    }
  });
}

// Nothing is sent in them, but nobody may run ahead: the others may still need what the next but
// one would overwrite.
TEST(ProtocolTest, EmptyOperationsWaitForEveryone) {
  for (const Algorithm algorithm : kAlgorithms) {
    Ranks ranks(3);
    std::atomic<bool> left = false;
    testing::rank_threads(ranks.size(), [&](int rank) {
      if (rank == 1) {
        std::atomic_ref<std::uint64_t> started(ranks.words(0).started);
        while (started.load() != 7 && !left) std::this_thread::yield();
        EXPECT_FALSE(left) << name(algorithm);
      }
      all_reduce(ranks, rank, algorithm, 7, 0, 2);
      if (rank == 0) left = true;
    });
  }
}

// The host learns of an operation in which a rank waited long, and of its end, when all blocks
// ended.
TEST(ProtocolTest, WhoWaitsLongTellsTheHost) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const int blocks : {1, 5}) {
      Ranks ranks(3);
      constexpr std::int64_t kNumber = 41;
      testing::rank_threads(ranks.size(), [&](int rank) {
        if (rank == 1) {
          std::atomic_ref<std::uint64_t> started(ranks.words(0).started);
          while (started.load() != kNumber) std::this_thread::yield();
          std::atomic_ref<std::uint64_t> finished(ranks.words(0).finished);
          EXPECT_LT(finished.load(), static_cast<std::uint64_t>(kNumber));
        }
        all_reduce(ranks, rank, algorithm, kNumber, 2000, blocks);
      });
      EXPECT_EQ(ranks.words(0).started, static_cast<std::uint64_t>(kNumber));
      EXPECT_EQ(ranks.words(0).finished, static_cast<std::uint64_t>(kNumber)) << name(algorithm);
      EXPECT_EQ(ranks.words(0).fault, 0u);
    }
  }
}

// A rank that calls something else does not take the others out of step, nor does it leave anybody
// behind who has no part of the array.
TEST(ProtocolTest, AMismatchIsReportedByAllAndTheNextCallWorks) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const std::int64_t count : {2, 900}) {
      Ranks ranks(4);
      testing::rank_threads(ranks.size(), [&](int rank) {
        all_reduce_that_fails(ranks, rank, algorithm, 1, rank == 2 ? count - 1 : count);
        all_reduce(ranks, rank, algorithm, 2, 500, 3);
      });
    }
  }
}

// A kernel of the last rank that stands still at one of its signals.
class Hold {
 public:
  // The thread that calls this comes to its `signal`-th signal from here and no further.
  static void before(int signal) { left_ = signal; }
  Hold() {
    released_ = false;
    schedule::set_hook([] {
      if (left_ == 0 || --left_ > 0) return;
      while (!released_) std::this_thread::yield();
    });
  }
  ~Hold() { schedule::set_hook(nullptr); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  void release() { released_ = true; }

 private:
  static thread_local int left_;
  static std::atomic<bool> released_;
};
thread_local int Hold::left_ = 0;
std::atomic<bool> Hold::released_ = false;

// Waits until rank 0 waits in operation `number`, and then for as long as it needs to leave it if
// it does not wait for what it should.
void await_rank_0_in(Ranks& ranks, std::uint64_t number) {
  std::atomic_ref<std::uint64_t> started(ranks.words(0).started);
  while (started.load() < number) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// Rank 2 has sent all packets of the first operation, but none has come to its hands yet, when
// the others find out that they differ in the second.
TEST(ProtocolTest, WhoLeavesAMismatchDoesNotRunAhead) {
  // Packets, and entries but one.
  for (const auto& [algorithm, signals] :
       {std::pair(Algorithm::ll, 4), std::pair(Algorithm::ll_relay, 3)}) {
    Hold hold;
    Ranks ranks(3);
    std::atomic<bool> left = false;
    std::thread watcher([&] {
      await_rank_0_in(ranks, 2);
      EXPECT_FALSE(left) << name(algorithm);
      hold.release();
    });
    testing::rank_threads(ranks.size(), [&, algorithm = algorithm, signals = signals](int rank) {
      if (rank == 2) Hold::before(signals);
      all_reduce(ranks, rank, algorithm, 1, 2, 1);
      all_reduce_that_fails(ranks, rank, algorithm, 2, rank == 1 ? 1 : 2);
      if (rank == 0) left = true;
      all_reduce(ranks, rank, algorithm, 3, 2, 1);
    });
    watcher.join();
  }
}

// What rank `from` sends to rank `to`, so that the last of three ranks has several steps with each.
std::int64_t uneven_count(int from, int to) {
  return from == to ? 1 : from + to < 2 ? 10 : 700'000;
}

// An all_to_all of three ranks; rank 1 expects more of rank 0 than it sends if they `differ`.
void uneven_all_to_all(Ranks& ranks, int rank, std::int64_t number, bool differ) {
  std::vector<std::int64_t> sends;
  std::vector<std::int64_t> gets;
  std::vector<std::int32_t> in;
  std::vector<std::int32_t> expected;
  for (int p = 0; p < ranks.size(); ++p) {
    sends.push_back(uneven_count(rank, p));
    gets.push_back(uneven_count(p, rank) + (differ && rank == 1 && p == 0 ? 1 : 0));
    in.insert(in.end(), static_cast<std::size_t>(sends.back()), given(rank, number, p));
    expected.insert(expected.end(), static_cast<std::size_t>(gets.back()), given(p, number, rank));
  }
  std::vector<std::int32_t> out(expected.size(), -7);
  CollectiveCall call;
  call.what = {
      .call = number, .count = -1, .kind = CollectiveKind::all_to_all, .dtype = DType::i32};
  call.in = in.data();
  call.out = out.data();
  call.send_counts = sends;
  call.recv_counts = gets;
  ranks.words(rank).fault = 0;
  run(Algorithm::direct, ranks.group(rank), call, 2);
  const auto fault = fault_of(ranks.words(rank).fault);
  EXPECT_EQ(fault, differ ? OperationFault::mismatch : OperationFault::none) << "rank " << rank;
  EXPECT_TRUE(differ || out == expected) << "rank " << rank << " #" << number;
}

// Rank 2 agrees with both others, who do not agree with each other.
TEST(ProtocolTest, UnevenCountsOfOthersThatDifferEndTheOperation) {
  Ranks ranks(3);
  testing::rank_threads(ranks.size(), [&](int rank) {
    for (const std::int64_t number : {1, 2, 3, 4, 5}) {
      uneven_all_to_all(ranks, rank, number, number == 2 || number == 3);
    }
  });
}

// What is pushed in the next operation would look to rank 2 as if this one had come to its end.
TEST(ProtocolTest, WhoLeavesAnUnevenOperationDoesNotRunAhead) {
  Hold hold;
  Ranks ranks(3);
  std::atomic<bool> left = false;
  std::thread watcher([&] {
    await_rank_0_in(ranks, 1);
    EXPECT_FALSE(left);
    hold.release();
  });
  testing::rank_threads(ranks.size(), [&](int rank) {
    // It has heard of both, and is about to push more.
    if (rank == 2) Hold::before(5);
    uneven_all_to_all(ranks, rank, 1, true);
    if (rank == 0) left = true;
    uneven_all_to_all(ranks, rank, 2, false);
  });
  watcher.join();
}

}  // namespace
}  // namespace gantry::protocol
