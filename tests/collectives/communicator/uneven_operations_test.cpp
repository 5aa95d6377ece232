// Operations on blocks of unequal sizes: random ones against a scalar oracle, and ranks that
// differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/reduction_checks.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::expect_throws;

using Rows = std::vector<std::int64_t>;

class UnevenOperationsTest : public testing::LocalGroupTest {
 protected:
  static int most_ranks() { return std::min(device_count(), 8); }

  // Equal seeds give equal calls on every rank.
  static void run_random_calls(CollectiveSuite& suite, const Communicator& group,
                               std::uint64_t first_seed, int calls, std::int64_t most_rows) {
    for (int i = 0; i < calls; ++i) {
      std::mt19937_64 random(first_seed + static_cast<std::uint64_t>(i));
      const auto below = [&](std::int64_t n) {
        return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
      };
      constexpr auto kTypes = std::to_array(testing::kAllDTypes);
      const DType dtype = kTypes[static_cast<std::size_t>(below(std::size(kTypes)))];
      Rows rows;
      for (int rank = 0; rank < group.size(); ++rank) {
        rows.push_back(below(3) == 0 ? 0 : below(most_rows));
      }
      ReduceOp op = testing::kAllOps[static_cast<std::size_t>(below(std::size(testing::kAllOps)))];
      if (!testing::is_defined(op, dtype)) op = ReduceOp::sum;
      CollectiveOptions options;
      if (op == ReduceOp::sum && is_floating_point(dtype) && below(2) == 0) options.scale = 0.3;
      suite.uneven(dtype, rows, static_cast<int>(below(group.size())), op, options);
    }
  }
};

TEST_F(UnevenOperationsTest, RandomRowsGiveTheElementsOfTheDefinition) {
  for (int ranks = 1; ranks <= most_ranks(); ++ranks) {
    on_ranks(ranks, [&](CollectiveSuite& suite, Communicator& group) {
      run_random_calls(suite, group, 1000 * static_cast<std::uint64_t>(ranks), 12, 70);
      run_random_calls(suite, group, 1000 * static_cast<std::uint64_t>(ranks) + 500, 2, 90'000);
    });
  }
}

TEST_F(UnevenOperationsTest, TheHostGivesTheSame) {
  GANTRY_REQUIRE_DEVICES(2);
  setenv("GANTRY_COLL_ALGO", "host", 1);
  for (const int ranks : {2, most_ranks()}) {
    on_ranks(ranks, [&](CollectiveSuite& suite, Communicator& group) {
      run_random_calls(suite, group, 77, 8, 70);
      run_random_calls(suite, group, 78, 1, 90'000);
    });
  }
}

TEST_F(UnevenOperationsTest, RowsOfSeveralDimensionsAndStridesTakePart) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const TensorOptions options{.dtype = i32, .device = group.device()};
    const int rank = group.rank();
    const std::int64_t own = rank == 0 ? 3 : 1;
    // Columns of a transposed matrix.
    const Tensor input = full({2, own}, 10 + rank, options).t();
    const Tensor output = zeros({2, 4}, options).t();
    group.all_gather(output, input, {3, 1});
    EXPECT_EQ(output.contiguous().to_vector<int>(),
              (std::vector<int>{10, 10, 10, 10, 10, 10, 11, 11}));
    const Tensor sum = zeros({2, own}, options).t();
    group.reduce_scatter(sum, output, {3, 1});
    EXPECT_EQ(sum.contiguous().to_vector<int>(),
              (std::vector<int>(static_cast<std::size_t>(2 * own), 20 + 2 * rank)));
    // An input that is this rank's block of the output, and the other way round.
    const Tensor memory = zeros({4}, options);
    const Tensor block = memory.narrow(0, rank == 0 ? 0 : 3, own);
    block.fill_(rank + 1);
    group.all_gather(memory, block, {3, 1});
    EXPECT_EQ(memory.to_vector<int>(), (std::vector<int>{1, 1, 1, 2}));
    group.reduce_scatter(block, memory, {3, 1});
    EXPECT_EQ(block.to_vector<int>(),
              std::vector<int>(static_cast<std::size_t>(own), rank == 0 ? 2 : 4));
  });
}

TEST_F(UnevenOperationsTest, TheInputIsReadBeforeAnotherRanksBlockOverwritesIt) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    constexpr std::int64_t kRows = 300'000;
    const Tensor memory = zeros({4 * kRows}, {.dtype = i32, .device = group.device()});
    // Where this rank's block would be if all were of its size: in the block of rank 0.
    const bool is_first = group.rank() == 0;
    const Tensor input = memory.narrow(0, is_first ? 0 : kRows, is_first ? 3 * kRows : kRows);
    for (int round = 1; round < 5; ++round) {
      input.fill_(10 * round + group.rank());
      group.all_gather(memory, input, {3 * kRows, kRows});
      for (const auto& [begin, count, value] : {std::tuple(std::int64_t{0}, 3 * kRows, 10 * round),
                                                std::tuple(3 * kRows, kRows, 10 * round + 1)}) {
        EXPECT_EQ(memory.narrow(0, begin, count).amin().item<int>(), value);
        EXPECT_EQ(memory.narrow(0, begin, count).amax().item<int>(), value);
      }
    }
  });
}

TEST_F(UnevenOperationsTest, EqualRowsAreTheOperationWithoutRows) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const TensorOptions options{.dtype = i32, .device = group.device()};
    const Tensor input = full({2}, group.rank(), options);
    const Tensor output = zeros({4}, options);
    if (group.rank() == 0) {
      group.all_gather(output, input, {2, 2});
    } else {
      group.all_gather(output, input);
    }
    EXPECT_EQ(output.to_vector<int>(), (std::vector<int>{0, 0, 1, 1}));
  });
}

using Call = std::function<Work(const Communicator&, const Tensor& part, const Tensor& whole,
                                const Rows& rows)>;
const std::vector<Call> kCalls{
    [](const Communicator& group, const Tensor& part, const Tensor& whole, const Rows& rows) {
      return group.all_gather(whole, part, rows);
    },
    [](const Communicator& group, const Tensor& part, const Tensor& whole, const Rows& rows) {
      return group.gather(whole, part, rows, 1);
    },
    [](const Communicator& group, const Tensor& part, const Tensor& whole, const Rows& rows) {
      return group.scatter(part, whole, rows, 1);
    },
    [](const Communicator& group, const Tensor& part, const Tensor& whole, const Rows& rows) {
      return group.reduce_scatter(part, whole, rows);
    }};

void expect_mismatch_on_all_ranks(const Communicator& group, const Rows& first, const Rows& other) {
  const TensorOptions options{.dtype = f32, .device = group.device()};
  const Rows& mine = group.rank() == 0 ? first : other;
  const std::int64_t total = std::accumulate(mine.begin(), mine.end(), std::int64_t{0});
  const std::int64_t own = mine[static_cast<std::size_t>(group.rank())];
  for (const Call& call : kCalls) {
    const Tensor part = full({own}, 7, options);
    const Tensor whole = full({total}, 8, options);
    expect_throws<CollectiveMismatch>([&] { call(group, part, whole, mine).synchronize(); },
                                      "rank 0 called ");
    EXPECT_EQ(part.to_vector<float>(), std::vector<float>(static_cast<std::size_t>(own), 7));
    EXPECT_EQ(whole.to_vector<float>(), std::vector<float>(static_cast<std::size_t>(total), 8));
  }
}

TEST_F(UnevenOperationsTest, RanksWithOtherRowsGetAMismatchAndGoOn) {
  GANTRY_REQUIRE_DEVICES(3);
  for (const char* algorithm : {"auto", "host"}) {
    setenv("GANTRY_COLL_ALGO", algorithm, 1);
    on_ranks(3, [](CollectiveSuite& suite, Communicator& group) {
      // This rank sends and expects as many elements in both lists.
      expect_mismatch_on_all_ranks(group, {1, 2, 3}, {1, 3, 2});
      expect_mismatch_on_all_ranks(group, {1, 2, 3}, {2, 2, 3});
      expect_mismatch_on_all_ranks(group, {0, 0, 5}, {0, 5, 0});
      expect_mismatch_on_all_ranks(group, {2, 2, 2}, {1, 2, 3});
      suite.uneven(f32, 40, 2);
    });
  }
}

TEST_F(UnevenOperationsTest, TheMismatchNamesTheRows) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite&, Communicator& group) {
    const TensorOptions options{.device = group.device()};
    const Rows rows = group.rank() == 0 ? Rows{0, 3} : Rows{1, 2};
    const Tensor part = zeros({rows[static_cast<std::size_t>(group.rank())], 2}, options);
    const Tensor whole = zeros({3, 2}, options);
    expect_throws<CollectiveMismatch>(
        [&] { group.all_gather(whole, part, rows).synchronize(); },
        "rank 0 called all_gather f32[0+3,2] and rank 1 called all_gather f32[1+2,2]");
  });
}

TEST_F(UnevenOperationsTest, OperationsRunInGraphs) {
  GANTRY_REQUIRE_DEVICES(3);
  on_ranks(3, [](CollectiveSuite&, Communicator& group) {
    const TensorOptions options{.dtype = i32, .device = group.device()};
    const Rows rows{4, 0, 1000};
    const std::int64_t own = rows[static_cast<std::size_t>(group.rank())];
    const Tensor part = zeros({own}, options);
    const Tensor all = zeros({1004}, options);
    const Tensor sum = zeros({own}, options);
    const Tensor gathered = zeros({1004}, options);
    const Tensor scattered = zeros({own}, options);
    Graph graph;
    {
      GraphCapture capture(graph);
      group.all_gather(all, part, rows);
      group.reduce_scatter(sum, all, rows);
      group.gather(gathered, part, rows, 2);
      group.scatter(scattered, all, rows, 0);
      capture.end();
    }
    group.host_barrier();
    for (int round = 1; round < 4; ++round) {
      part.fill_(round * (group.rank() + 1));
      graph.replay();
      const auto expect_all = [&](const Tensor& tensor, int value) {
        if (tensor.numel() == 0) return;
        EXPECT_EQ(tensor.amin().item<int>(), value);
        EXPECT_EQ(tensor.amax().item<int>(), value);
      };
      expect_all(all.narrow(0, 0, 4), round);
      expect_all(all.narrow(0, 4, 1000), 3 * round);
      expect_all(sum, 3 * round * (group.rank() + 1));
      expect_all(scattered, round * (group.rank() + 1));
      if (group.rank() == 2) expect_all(gathered.narrow(0, 4, 1000), 3 * round);
    }
    synchronize(group.device());
    group.host_barrier();
  });
}

TEST_F(UnevenOperationsTest, WrongRowsAreRefusedBeforeAnythingChanges) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const TensorOptions options{.device = group.device()};
    const Tensor part = full({2}, 5.0, options);
    const Tensor whole = full({5}, 6.0, options);
    const auto refuses = [&](const Rows& rows, const std::string& phrase) {
      expect_throws<ShapeError>([&] { group.all_gather(whole, part, rows); }, phrase);
      expect_throws<ShapeError>([&] { group.gather(whole, part, rows, 0); }, phrase);
      expect_throws<ShapeError>([&] { group.scatter(part, whole, rows, 0); }, phrase);
      expect_throws<ShapeError>([&] { group.reduce_scatter(part, whole, rows); }, phrase);
    };
    refuses({2, 2, 1}, "expected 2 numbers in 'rows', one per rank, but got 3");
    refuses({7, -2}, "expected no negative number in 'rows', but got -2");
    refuses({1, 4}, group.rank() == 0 ? "of 1 rows, as 'rows' has them for rank 0" : "of 4 rows");
    if (group.rank() == 0) {
      expect_throws<ShapeError>(
          [&] {
            group.all_gather(whole, part, {2, 2});
          },
          "expected 'output' of 4 rows, the sum of 'rows', but its shape is");
      expect_throws<ShapeError>(
          [&] {
            group.gather(whole, part, {2, 2}, 0);
          },
          "gather: expected 'output' of 4 rows, the sum of 'rows'");
      expect_throws<ShapeError>(
          [&] {
            group.scatter(part, whole, {2, 2}, 0);
          },
          "scatter: expected 'input' of 4 rows, the sum of 'rows'");
      expect_throws<ShapeError>(
          [&] {
            group.reduce_scatter(part, whole, {2, 2});
          },
          "reduce_scatter: expected 'input' of 4 rows, the sum of 'rows'");
      expect_throws<ShapeError>(
          [&] {
            group.all_to_all(whole, part, {2, 2}, {1, 1});
          },
          "all_to_all: expected 'output' of 4 rows, the sum of 'output_rows', but");
      expect_throws<ShapeError>(
          [&] {
            group.all_to_all(whole, part, {2, 3}, {2, 1});
          },
          "all_to_all: expected 'input' of 3 rows, the sum of 'input_rows', but");
      expect_throws<ShapeError>(
          [&] {
            group.all_gather(zeros({5, 1}, options), part, {2, 3});
          },
          "rows of one shape");
      expect_throws<DTypeError>(
          [&] {
            group.reduce_scatter(zeros({2}, {.dtype = i32, .device = group.device()}), whole,
                                 {2, 3});
          },
          "i32");
      expect_throws<InvalidArgument>([&] { group.gather(whole, part, {2, 3}, 2); }, "a root from");
      expect_throws<InvalidArgument>([&] { group.gather(Tensor(), part, {2, 3}, 0); }, "'output'");
      expect_throws<ShapeError>(
          [&] {
            group.scatter(part, zeros({}, options), {2, 3}, 0);
          },
          "rows of one shape");
    }
    EXPECT_EQ(part.amax().item<int>(), 5);
    EXPECT_EQ(whole.amin().item<int>(), 6);
    suite.uneven(i32, 3, 0);
  });
}

}  // namespace
}  // namespace gantry
