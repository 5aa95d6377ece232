// The ring by itself: host threads as ranks, without streams and communicators.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/collectives/protocol/protocol_ranks.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry::protocol {
namespace {

constexpr std::int32_t kUntouched = -7;

// An array that is not aligned to 8 bytes.
class Oddly {
 public:
  explicit Oddly(std::int64_t count, std::int32_t value)
      : values_(static_cast<std::size_t>(count) + 1, value) {}
  std::int32_t* data() { return values_.data() + 1; }
  std::int32_t& operator[](std::int64_t i) { return values_[static_cast<std::size_t>(i) + 1]; }

 private:
  std::vector<std::int32_t> values_;
};

CollectiveCall call_of_kind(CollectiveKind kind, std::int64_t number, std::int64_t count,
                            int root) {
  CollectiveCall call;
  call.what = {.call = number, .count = count, .root = root, .kind = kind, .dtype = DType::i32};
  return call;
}

void broadcast(Ranks& ranks, int rank, std::int64_t number, std::int64_t count, int root,
               int blocks) {
  Oddly data(count, kUntouched);
  for (std::int64_t i = 0; rank == root && i < count; ++i) data[i] = given(root, number, i);
  CollectiveCall call = call_of_kind(CollectiveKind::broadcast, number, count, root);
  call.in = rank == root ? data.data() : nullptr;
  call.out = rank == root ? nullptr : data.data();
  run(Algorithm::ring, ranks.group(rank), call, blocks);
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(data[i], given(root, number, i)) << "#" << number << " rank " << rank << " at " << i;
  }
}

void reduce(Ranks& ranks, int rank, std::int64_t number, std::int64_t count, int root, int blocks) {
  Oddly in(count, 0);
  for (std::int64_t i = 0; i < count; ++i) in[i] = given(rank, number, i);
  Oddly out(count, kUntouched);
  CollectiveCall call = call_of_kind(CollectiveKind::reduce, number, count, root);
  call.in = in.data();
  call.out = rank == root ? out.data() : nullptr;
  run(Algorithm::ring, ranks.group(rank), call, blocks);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t sum = 0;
    for (int p = 0; p < ranks.size(); ++p) sum += static_cast<std::uint32_t>(given(p, number, i));
    const auto wanted = rank == root ? static_cast<std::int32_t>(sum) : kUntouched;
    ASSERT_EQ(out[i], wanted) << "#" << number << " rank " << rank << " at " << i;
    ASSERT_EQ(in[i], given(rank, number, i)) << "an input was changed";
  }
}

// Every sum is a multiple of the number of ranks, so each mean is exact.
void average(Ranks& ranks, int rank, std::int64_t number, std::int64_t count, int root) {
  const auto size = static_cast<float>(ranks.size());
  std::vector<float> in(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = size * static_cast<float>(rank + 1) * static_cast<float>(i % 97);
  }
  std::vector<float> out(in.size(), -7);
  CollectiveCall call = call_of_kind(CollectiveKind::reduce, number, count, root);
  call.what.op = ReduceOp::avg;
  call.what.dtype = DType::f32;
  call.in = in.data();
  call.out = rank == root ? out.data() : nullptr;
  run(Algorithm::ring, ranks.group(rank), call, 3);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float mean = size * (size + 1) / 2 * static_cast<float>(i % 97);
    ASSERT_EQ(out[i], rank == root ? mean : -7) << "root " << root << " rank " << rank << " " << i;
  }
}

TEST(ProtocolRingTest, AnAverageIsTheSumDividedOnce) {
  for (const int size : {3, 4, 5}) {
    Ranks ranks(size);
    testing::rank_threads(size, [&](int rank) {
      for (int root = 0; root < size; ++root) average(ranks, rank, root + 1, 4099, root);
    });
  }
}

TEST(ProtocolRingTest, EveryRootNumberOfBlocksAndSize) {
  for (const int size : {3, 4, 5, 8}) {
    Ranks ranks(size);
    testing::rank_threads(size, [&](int rank) {
      std::int64_t number = 0;
      for (int root = 0; root < size; ++root) {
        for (const int blocks : {1, 3, 64}) {
          for (const std::int64_t count : {0, 1, 5, 4099}) {
            reduce(ranks, rank, ++number, count, root, blocks);
            broadcast(ranks, rank, ++number, count, root, blocks);
          }
        }
      }
    });
  }
}

// Many more chunks than a FIFO has slots, in both buffers, and beside other algorithms, which use
// the same staging.
TEST(ProtocolRingTest, ManyChunksAmongOtherOperations) {
  constexpr std::int64_t kLarge = 3'000'017;
  for (const int size : {3, 5}) {
    Ranks ranks(size);
    const auto plan =
        plan_ring(ranks.group(0), call_of_kind(CollectiveKind::reduce, 1, kLarge, 0), 2);
    ASSERT_GT(kLarge * 4 / (plan.chunk_bytes * 2), 2 * kRingSlots);
    testing::rank_threads(size, [&](int rank) {
      std::int64_t number = 0;
      for (const int blocks : {1, 2, 7}) {
        reduce(ranks, rank, ++number, kLarge, size - 1, blocks);
        broadcast(ranks, rank, ++number, kLarge, 1, blocks);
        all_reduce(ranks, rank, Algorithm::two_shot, ++number, 100'003, 3);
        reduce(ranks, rank, ++number, kLarge, 1, blocks);
        all_reduce(ranks, rank, Algorithm::one_shot, ++number, 1'600'003, 3);
        all_reduce(ranks, rank, Algorithm::ll, ++number, 100, 1);
        broadcast(ranks, rank, ++number, kLarge, 0, blocks);
        reduce(ranks, rank, ++number, kLarge, 0, blocks);
      }
    });
  }
}

TEST(ProtocolRingTest, EpochsWrap) {
  Ranks ranks(4);
  ranks.set_epoch(UINT32_MAX - 7);
  testing::rank_threads(ranks.size(), [&](int rank) {
    for (std::int64_t number = 1; number <= 18; ++number) {
      const int blocks = 1 + static_cast<int>(number * 5 % 7);
      const int root = static_cast<int>(number % 4);
      number % 3 == 0 ? broadcast(ranks, rank, number, 30'011, root, blocks)
                      : reduce(ranks, rank, number, 30'011, root, blocks);
    }
  });
}

TEST(ProtocolRingTest, AMismatchIsReportedByAllAndTheNextCallWorks) {
  for (const CollectiveKind kind : {CollectiveKind::reduce, CollectiveKind::broadcast}) {
    Ranks ranks(4);
    testing::rank_threads(ranks.size(), [&](int rank) {
      std::vector<std::int32_t> in(900, rank);
      std::vector<std::int32_t> out(900, kUntouched);
      CollectiveCall call = call_of_kind(kind, 1, 900, rank == 2 ? 0 : 1);
      call.in = in.data();
      call.out = out.data();
      run(Algorithm::ring, ranks.group(rank), call, 2);
      EXPECT_EQ(fault_of(ranks.words(rank).fault), OperationFault::mismatch);
      EXPECT_EQ(ranks.words(rank).fault_call, 1u);
      EXPECT_EQ(out, std::vector<std::int32_t>(900, kUntouched)) << "a result of nothing";
      reduce(ranks, rank, 2, 500, 3, 3);
      broadcast(ranks, rank, 3, 500, 3, 3);
    });
  }
}

}  // namespace
}  // namespace gantry::protocol
