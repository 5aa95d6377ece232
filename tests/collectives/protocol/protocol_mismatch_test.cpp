// The kernels' protocol when ranks call different things.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/sim/schedule.hpp"
#include "tests/collectives/protocol/pause_counts.hpp"
#include "tests/collectives/protocol/protocol_ranks.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry::protocol {
namespace {

// An all_reduce of ranks that differ in `count`.
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

// After a mismatch the epochs of all ranks stay equal, and ranks without a slice of the array do
// not stay behind.
TEST(ProtocolMismatchTest, AMismatchIsReportedByAllAndTheNextCallWorks) {
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

// Waits until rank 0 waits in operation `number`, or in a later one if it does not wait for what it
// should.
void await_rank_0_in(Ranks& ranks, std::uint64_t number) {
  while (ranks.started(0) < number) std::this_thread::yield();
  PauseCounts::await_check(0);
}

// Rank 2 has sent all LL packets of the first operation, but has received none, when the others
// detect the mismatch in the second.
TEST(ProtocolMismatchTest, WhoLeavesAMismatchDoesNotRunAhead) {
  // All LL packets, and all entries but one.
  for (const auto& [algorithm, signals] :
       {std::pair(Algorithm::ll, 4), std::pair(Algorithm::ll128_two_shot, 3)}) {
    Hold hold;
    const PauseCounts counts;
    Ranks ranks(3);
    std::atomic<bool> left = false;
    std::thread watcher([&] {
      await_rank_0_in(ranks, 2);
      EXPECT_FALSE(left) << name(algorithm);
      hold.release();
    });
    testing::rank_threads(ranks.size(), [&, algorithm = algorithm, signals = signals](int rank) {
      PauseCounts::begin(rank);
      if (rank == 2) Hold::before(signals);
      all_reduce(ranks, rank, algorithm, 1, 2, 1);
      all_reduce_that_fails(ranks, rank, algorithm, 2, rank == 1 ? 1 : 2);
      if (rank == 0) left = true;
      all_reduce(ranks, rank, algorithm, 3, 2, 1);
    });
    watcher.join();
  }
}

// The others send the units of the second operation before rank 2 reads the first one's.
TEST(ProtocolMismatchTest, UnitsOfTheNextOperationReplaceNoneThatWasNotRead) {
  for (const auto& [algorithm, signals] :
       {std::pair(Algorithm::ll, 4), std::pair(Algorithm::ll128_two_shot, 3)}) {
    Hold hold;
    const PauseCounts counts;
    Ranks ranks(3);
    std::thread watcher([&] {
      await_rank_0_in(ranks, 2);
      hold.release();
    });
    testing::rank_threads(ranks.size(), [&, algorithm = algorithm, signals = signals](int rank) {
      PauseCounts::begin(rank);
      if (rank == 2) Hold::before(signals);
      for (std::int64_t number = 1; number <= 3; ++number) {
        all_reduce(ranks, rank, algorithm, number, 2, 1);
      }
    });
    watcher.join();
  }
}

// Elements that rank `from` sends to rank `to`: the last of three ranks has several chunks with
// each.
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
  run(Algorithm::one_shot, ranks.group(rank), call, 2);
  const auto fault = fault_of(ranks.words(rank).fault);
  EXPECT_EQ(fault, differ ? OperationFault::mismatch : OperationFault::none) << "rank " << rank;
  EXPECT_TRUE(differ || out == expected) << "rank " << rank << " #" << number;
}

// Rank 2 agrees with both others, who do not agree with each other.
TEST(ProtocolMismatchTest, UnevenCountsOfOthersThatDifferEndTheOperation) {
  Ranks ranks(3);
  testing::rank_threads(ranks.size(), [&](int rank) {
    for (const std::int64_t number : {1, 2, 3, 4, 5}) {
      uneven_all_to_all(ranks, rank, number, number == 2 || number == 3);
    }
  });
}

// Rank 2 would take a chunk of the next operation for the end of this one.
TEST(ProtocolMismatchTest, WhoLeavesAnUnevenOperationDoesNotRunAhead) {
  Hold hold;
  const PauseCounts counts;
  Ranks ranks(3);
  std::atomic<bool> left = false;
  std::thread watcher([&] {
    await_rank_0_in(ranks, 1);
    EXPECT_FALSE(left);
    hold.release();
  });
  testing::rank_threads(ranks.size(), [&](int rank) {
    PauseCounts::begin(rank);
    // It has the entries of both, and is about to send more.
    if (rank == 2) Hold::before(5);
    uneven_all_to_all(ranks, rank, 1, true);
    if (rank == 0) left = true;
    uneven_all_to_all(ranks, rank, 2, false);
  });
  watcher.join();
}

}  // namespace
}  // namespace gantry::protocol
