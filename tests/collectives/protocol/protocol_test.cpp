// The kernels' protocol by itself: host threads as ranks, without streams and communicators.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/selection/selector.hpp"
#include "collectives/sim/block.hpp"
#include "job/flight_file.hpp"
#include "tests/collectives/protocol/pause_counts.hpp"
#include "tests/collectives/protocol/protocol_ranks.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry::protocol {
namespace {

// Begins another operation of a rank, once, at a moment that is chosen.
class Intruder {
 public:
  explicit Intruder(Ranks& ranks) {
    ranks_ = &ranks;
    schedule::set_hook([] {
      if (!std::exchange(is_due_, false)) return;
      EXPECT_FALSE(begins<false>());
      EXPECT_FALSE(begins<true>());
    });
    // As the host does after a fault. Who found it may have left the others alone.
    schedule::set_pause_hook([] {
      if (std::atomic_ref(ranks_->words(0).fault).load() == 0) return;
      for (int p = 0; p < ranks_->size(); ++p) std::atomic_ref(ranks_->words(p).abort).store(1);
    });
  }
  ~Intruder() {
    schedule::set_hook(nullptr);
    schedule::set_pause_hook(nullptr);
  }
  Intruder(const Intruder&) = delete;
  Intruder& operator=(const Intruder&) = delete;

  // At the next signal of the calling thread.
  static void make_due() { is_due_ = true; }
  template <bool kWaits>
  static bool begins() {
    SimBlock block(0, 1);
    Begun begun;
    return begin<kWaits>(block, ranks_->group(0), 9, begun);
  }

 private:
  inline static Ranks* ranks_ = nullptr;
  inline static thread_local bool is_due_ = false;
};

// A block that another operation overtakes after it has seen that none is running.
class OvertakenBlock : public SimBlock {
 public:
  using SimBlock::SimBlock;
  std::uint32_t count_own(std::uint32_t* word) {
    EXPECT_TRUE(Intruder::begins<true>());
    return SimBlock::count_own(word);
  }
};

// Note [Operations that overlap]: the one that begins later touches nothing.
TEST(ProtocolTest, AnOperationFindsThatAnotherOneIsRunning) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const bool is_intruded : {false, true}) {
      Ranks ranks(2);
      const Intruder intruder(ranks);
      testing::rank_threads(ranks.size(), [&](int rank) {
        std::vector<std::int32_t> data(3001, rank);
        CollectiveCall call;
        call.what = {
            .call = 4, .count = 3001, .kind = CollectiveKind::all_reduce, .dtype = DType::i32};
        call.in = call.out = data.data();
        if (is_intruded && rank == 0) Intruder::make_due();
        run(algorithm, ranks.group(rank), call, 3);
      });
      const auto expected = is_intruded ? OperationFault::overlap : OperationFault::none;
      EXPECT_EQ(fault_of(ranks.words(0).fault), expected) << name(algorithm);
      EXPECT_NE(fault_of(ranks.words(1).fault), OperationFault::overlap) << name(algorithm);
    }
  }
}

// Both begin before either of them is counted.
TEST(ProtocolTest, AnOperationFindsAtItsEndThatAnotherOneBeganWithIt) {
  for (const std::uint32_t before : {0u, 7u, UINT32_MAX - 1, UINT32_MAX}) {
    Ranks ranks(2);
    ranks.set_epoch(before);
    const Intruder intruder(ranks);
    const Group group = ranks.group(0);
    OvertakenBlock block(0, 1);
    Begun begun;
    ASSERT_TRUE(begin<false>(block, group, 4, begun));
    EXPECT_EQ(begun.epoch, before + 1);
    EXPECT_TRUE(is_overlapped(block, group, begun.epoch));
    end(block, group, 4, begun.epoch);
    EXPECT_EQ(ranks.words(0).fault, 0u);
    check_begun(block, group, 4, begun);
    EXPECT_EQ(fault_of(ranks.words(0).fault), OperationFault::overlap);
    EXPECT_EQ(ranks.words(0).fault_call, 4u);
    // Nor does a later one begin.
    SimBlock later(0, 1);
    EXPECT_FALSE(begin(later, group, 5, begun));
  }
}

TEST(ProtocolTest, EpochsWrap) {
  Ranks ranks(4);
  ranks.set_epoch(UINT32_MAX - 7);
  testing::rank_threads(ranks.size(), [&](int rank) {
    for (std::int64_t number = 1; number <= 18; ++number) {
      // Numbers of blocks that divide nothing, so that all blocks must keep their epochs.
      const int blocks = 1 + static_cast<int>(number * 5 % 7);
      all_reduce(ranks, rank, kAlgorithms[number % 4], number, 3001, blocks);
    }
  });
  for (int rank = 0; rank < ranks.size(); ++rank) {
    for (const std::uint32_t ended : ranks.pad(rank).ended) ASSERT_EQ(ended, 10u);
  }
}

// Words of blocks that last took part many epochs ago must not look like current ones.
TEST(ProtocolTest, OldWordsAreNotTakenForNewOnes) {
  for (const std::uint32_t distance :
       {2u, 3u, 0x40000000u, 0x80000001u, 0xc0000000u, 0xffffffffu}) {
    Ranks ranks(3);
    ranks.set_epoch(77);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      std::ranges::fill(ranks.pad(rank).begun, 77 + distance - 1);
      std::ranges::fill(ranks.pad(rank).ended, 77 + distance - 1);
    }
    testing::rank_threads(ranks.size(), [&](int rank) {
      if (rank == 2) std::this_thread::yield();
      all_reduce(ranks, rank, Algorithm::two_shot, 1, 200'003, 5);
      all_reduce(ranks, rank, Algorithm::one_shot, 2, 200'003, 5);
    });
  }
}

// Nor must zeroed words of blocks that never took part: they have the epoch after the last one.
TEST(ProtocolTest, ZeroedWordsAreNotTakenForEntries) {
  for (const Algorithm algorithm : kAlgorithms) {
    const PauseCounts counts;
    Ranks ranks(3);
    ranks.set_epoch(UINT32_MAX);
    testing::rank_threads(ranks.size(), [&](int rank) {
      PauseCounts::begin(rank);
      // The others wait for it so long that they check its entry.
      for (const int other : {1, 2}) {
        if (rank == 0) PauseCounts::await_check(other);
      }
      all_reduce(ranks, rank, algorithm, 1, 3001, 4);
      all_reduce(ranks, rank, algorithm, 2, 3001, 4);
    });
    for (int rank = 0; rank < ranks.size(); ++rank) EXPECT_EQ(ranks.words(rank).fault, 0u);
  }
}

TEST(ProtocolTest, ManyRanksAndManyChunks) {
  for (const int size : {3, 11, kMaxRanks}) {
    Ranks ranks(size);
    const auto run_rank = [&](int rank) {
      std::int64_t number = 0;
      for (const Algorithm algorithm : kAlgorithms) {
        all_reduce(ranks, rank, algorithm, ++number, 1, 1);
        all_reduce(ranks, rank, algorithm, ++number, 4099, 3);
      }
      // More chunks than there are slots.
      all_reduce(ranks, rank, Algorithm::two_shot, ++number, 300'007, kMaxBlocks);
    };
    // Threads that spin take turns on few cores.
    testing::rank_threads(size, run_rank, std::chrono::seconds(240));
  }
}

// Large operations use both staging buffers; small ones before and after them only one.
TEST(ProtocolTest, LargeOperationsBetweenSmallOnes) {
  constexpr std::int64_t kLarge = 1'600'003;
  Ranks ranks(3);
  CollectiveCall large;
  large.what = {.count = kLarge, .kind = CollectiveKind::all_reduce, .dtype = DType::i32};
  ASSERT_TRUE(plan_two_shot(ranks.group(0), large, 5).both_buffers);
  ASSERT_TRUE(plan_one_shot(ranks.group(0), large, 5).both_buffers);
  testing::rank_threads(ranks.size(), [&](int rank) {
    std::int64_t number = 0;
    const auto small = [&](Algorithm algorithm) {
      all_reduce(ranks, rank, algorithm, ++number, 20'011, 2);
    };
    for (const Algorithm algorithm : {Algorithm::two_shot, Algorithm::one_shot}) {
      // One and two small ones between them, so that large ones begin with either buffer.
      all_reduce(ranks, rank, algorithm, ++number, kLarge, 5);
      small(Algorithm::one_shot);
      all_reduce(ranks, rank, algorithm, ++number, kLarge, 3);
      small(Algorithm::two_shot);
      small(Algorithm::ll128_two_shot);
      all_reduce(ranks, rank, algorithm, ++number, kLarge, 7);
    }
  });
}

// Empty operations send no data, but no rank may run ahead: the operation after the next would
// overwrite memory that other ranks may still need.
TEST(ProtocolTest, EmptyOperationsWaitForEveryone) {
  for (const Algorithm algorithm : kAlgorithms) {
    Ranks ranks(3);
    std::atomic<bool> left = false;
    testing::rank_threads(ranks.size(), [&](int rank) {
      if (rank == 1) {
        while (ranks.started(0) != 7 && !left) std::this_thread::yield();
        EXPECT_FALSE(left) << name(algorithm);
      }
      all_reduce(ranks, rank, algorithm, 7, 0, 2);
      if (rank == 0) left = true;
    });
  }
}

// An operation in which a rank waited long is reported to the host, and its end when all blocks
// have ended.
TEST(ProtocolTest, LongWaitsAreReportedToTheHost) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (const int blocks : {1, 5}) {
      Ranks ranks(3);
      constexpr std::int64_t kNumber = 41;
      testing::rank_threads(ranks.size(), [&](int rank) {
        if (rank == 1) {
          while (ranks.started(0) != std::uint64_t{kNumber}) std::this_thread::yield();
          EXPECT_LT(ranks.finished(0), std::uint64_t{kNumber});
        }
        all_reduce(ranks, rank, algorithm, kNumber, 2000, blocks);
      });
      EXPECT_EQ(ranks.started(0), std::uint64_t{kNumber});
      EXPECT_EQ(ranks.finished(0), std::uint64_t{kNumber}) << name(algorithm);
      EXPECT_EQ(ranks.words(0).fault, 0u);
    }
  }
}

// Rows hold the largest slices, in either buffer, and nothing is written past them.
TEST(ProtocolTest, Ll128UpToItsLimits) {
  for (const int size : {2, 3, 4, 7}) {
    Ranks ranks(size);
    testing::rank_threads(size, [&](int rank) {
      std::int64_t number = 0;
      for (int turn = 0; turn < 3; ++turn) {
        all_reduce(ranks, rank, Algorithm::ll128, ++number, ll128_limit_bytes(size) / 4, 3);
        if (size < 3) continue;
        all_reduce(ranks, rank, Algorithm::ll128_two_shot, ++number, kLl128TwoShotLimitBytes / 4,
                   2);
        all_reduce(ranks, rank, Algorithm::ll, ++number, kLlLimitBytes / 4, 5);
        // One reducer less, with larger slices.
        std::vector<std::int32_t> data(kLl128TwoShotLimitBytes / 4, -1);
        const int root = turn % size;
        for (std::size_t i = 0; rank == root && i < data.size(); ++i) {
          data[i] = given(root, number, static_cast<std::int64_t>(i));
        }
        CollectiveCall call;
        call.what = {.call = ++number,
                     .count = std::ssize(data),
                     .root = root,
                     .kind = CollectiveKind::broadcast,
                     .dtype = DType::i32};
        if (rank == root) {
          call.in = data.data();
        } else {
          call.out = data.data();
        }
        run(Algorithm::ll128_two_shot, ranks.group(rank), call, 4);
        for (std::size_t i = 0; i < data.size(); ++i) {
          ASSERT_EQ(data[i], given(root, number - 1, static_cast<std::int64_t>(i))) << i;
        }
      }
    });
  }
}

// Reports of calls whose kernels make none. A graph runs a call again.
TEST(ProtocolTest, ReportedCallsAreUnderWayUntilTheyEnd) {
  DeviceWords words;
  std::uint64_t runs = 0;
  ProgressReport call{
      .started = &words.started, .finished = &words.finished, .runs = &runs, .call = 7};
  const auto progress = [&] {
    return reinterpret_cast<const flight::Words&>(words).progress(flight::Queue::collective);
  };
  std::uint32_t run_before = 0;
  for (int run = 0; run < 3; ++run) {
    EXPECT_FALSE(progress().is_under_way());
    call.begins = true;
    kernel::progress_report::simulate(call, 1);
    EXPECT_TRUE(progress().is_under_way());
    EXPECT_EQ(progress().started, 7U);
    EXPECT_LT(progress().finished, 7U);
    EXPECT_NE(progress().run, run_before);
    run_before = progress().run;
    call.begins = false;
    kernel::progress_report::simulate(call, 1);
  }
  EXPECT_FALSE(progress().is_under_way());
  EXPECT_EQ(progress().finished, 7U);
}

}  // namespace
}  // namespace gantry::protocol
