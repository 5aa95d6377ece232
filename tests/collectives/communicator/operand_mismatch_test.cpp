// Ranks that give other tensors than the others: in another order, of other shapes, or another
// number of them. GANTRY_TEST_ROUNDS and GANTRY_TEST_SEED make the random calls more or others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/collectives/collective_mismatch.hpp>
#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>

#include "collectives/selection/descriptor.hpp"
#include "collectives/transport.hpp"
#include "tests/collectives/communicator/local_group.hpp"
#include "tests/collectives/communicator/random_calls.hpp"
#include "tests/collectives/control/control_group.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using testing::CollectiveSuite;
using testing::ControlGroup;
using testing::expect_throws;
using testing::RandomCall;
using testing::RandomCalls;
using testing::RandomOperand;
using testing::RandomRank;

// A round of eight ranks takes most of a second on two busy cores.
constexpr int kDefaultRounds = 10;

int rounds() {
  return static_cast<int>(
      env::get_int("GANTRY_TEST_ROUNDS", 1, 10'000'000).value_or(kDefaultRounds));
}
std::uint64_t first_seed() {
  return static_cast<std::uint64_t>(env::get_int("GANTRY_TEST_SEED", 0, 1 << 30).value_or(1));
}

// The calls of all ranks in one round: equal ones, or those of up to two ranks vary.
std::vector<RandomCall> calls_of_round(RandomCalls& random, int ranks) {
  std::vector<RandomCall> calls(static_cast<std::size_t>(ranks), random.call());
  const int odd = random.below(3);
  for (int i = 0; i < odd; ++i) {
    RandomCall& one = calls[static_cast<std::size_t>(random.below(ranks))];
    one = random.variant(one);
  }
  return calls;
}

bool all_equal(const std::vector<RandomCall>& calls) {
  return std::ranges::all_of(calls, [&](const RandomCall& one) { return one == calls.front(); });
}

// Every algorithm by which p2p serves small calls, and the other transports.
class OperandMismatchTest : public testing::LocalGroupTest,
                            public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    LocalGroupTest::SetUp();
    if (std::string(GetParam()) == "nccl" && (platform() != Platform::cuda || !has_nccl())) {
      GTEST_SKIP() << "needs GPUs and NCCL";
    }
    setenv("GANTRY_COLL_ALGO", GetParam(), 1);
  }
};

INSTANTIATE_TEST_SUITE_P(Algorithms, OperandMismatchTest,
                         ::testing::Values("auto", "ll", "ll128", "one_shot", "two_shot", "host",
                                           "nccl"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(OperandMismatchTest, EveryDifferenceIsAnErrorOnEveryRankAndNoEqualCallIsRefused) {
  GANTRY_REQUIRE_DEVICES(2);
  for (const int ranks : {2, 3, 5, 8}) {
    if (ranks > device_count()) break;
    on_ranks(ranks, [&](CollectiveSuite& suite, Communicator& group) {
      RandomCalls random(first_seed() * 1000 + static_cast<std::uint64_t>(ranks));
      for (int round = 0; round < rounds(); ++round) {
        const std::vector<RandomCall> calls = calls_of_round(random, ranks);
        const RandomCall& mine = calls[static_cast<std::size_t>(group.rank())];
        RandomRank self(group, mine, (round + group.rank()) % 2);
        std::string text;
        try {
          self.run().synchronize();
        } catch (const CollectiveMismatch& error) {
          text = error.what();
        }
        const bool expected = !all_equal(calls);
        const bool is_right =
            expected ? !text.empty() && self.is_unchanged() : text.empty() && self.is_right();
        if (is_right) continue;
        std::string all;
        for (const RandomCall& one : calls) all += "\n" + one.str();
        throw std::runtime_error("round " + std::to_string(round) + ": expected " +
                                 (expected ? "a mismatch" : "no mismatch") + ", but got '" + text +
                                 "'" + all);
      }
      suite.all(i32, 100);
    });
  }
}

TEST_P(OperandMismatchTest, TextsNameShapesAndLists) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const TensorOptions options{.dtype = f32, .device = group.device()};
    const bool is_first = group.rank() == 0;
    const Tensor w = full({3}, 1, options);
    const Tensor b = full({5}, 100, options);
    const auto expect = [&](auto call, const std::string& first, const std::string& other) {
      expect_throws<CollectiveMismatch>([&] { call().synchronize(); },
                                        "rank 0 called " + first + " and rank 1 called " + other);
    };
    using List = std::vector<Tensor>;
    expect(
        [&] {
          return group.all_reduce_coalesced(is_first ? List{w, b} : List{b, w});
        },
        "all_reduce_coalesced sum f32[3]+f32[5]", "all_reduce_coalesced sum f32[5]+f32[3]");
    const Tensor flat = full({8}, 1, options);
    expect(
        [&] {
          return is_first ? group.all_reduce_coalesced(List{w, b}) : group.all_reduce(flat);
        },
        "all_reduce_coalesced sum f32[3]+f32[5]", "all_reduce sum f32[8]");
    const Tensor matrix = ones(is_first ? Shape{2, 3} : Shape{3, 2}, options);
    expect([&] { return group.all_reduce(matrix); }, "all_reduce sum f32[2,3]",
           "all_reduce sum f32[3,2]");
    const Tensor scalar = ones(is_first ? Shape{} : Shape{1}, options);
    expect([&] { return group.broadcast(scalar); }, "broadcast f32[] root=0",
           "broadcast f32[1] root=0");
    // The part of a long list that differs does not fit into the text.
    List many;
    for (int i = 0; i < 100; ++i) many.push_back(ones({3}, options));
    if (!is_first) many[90] = ones({1, 3}, options);
    try {
      group.all_reduce_coalesced(many).synchronize();
      throw std::runtime_error("no mismatch");
    } catch (const CollectiveMismatch& error) {
      for (const std::string& call : error.calls()) {
        EXPECT_THAT(call, ::testing::MatchesRegex(
                              "all_reduce_coalesced sum (f32\\[3\\]\\+)+… \\(100 tensors, digest "
                              "[0-9a-f]{8}\\)"));
      }
      EXPECT_NE(error.calls().at(0), error.calls().at(1));
    }
    suite.all(i32, 100);
  });
}

// Lists of other dtypes take another number of transfers.
TEST_P(OperandMismatchTest, RanksStayInStepAfterListsOfOtherDTypes) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const auto of = [&](DType dtype) {
      return full({7}, group.rank() + 1, {.dtype = dtype, .device = group.device()});
    };
    using List = std::vector<Tensor>;
    for (const auto& [first, other] : {std::pair(List{of(f32), of(f16), of(i32)}, List{of(f32)}),
                                       std::pair(List{of(f32)}, List{of(f32), of(f16)}),
                                       std::pair(List{of(f32), of(f16)}, List{of(f16), of(f32)})}) {
      const List mine = group.rank() == 0 ? first : other;
      Work work;
      std::string text;
      try {
        work = group.all_reduce_coalesced(mine);
        // Ranks that have not seen the mismatch go on.
        const Tensor next = of(i64);
        group.all_reduce(next).synchronize();
        if (next[0].item<int>() != 3) throw std::runtime_error("the ranks are out of step");
        work.synchronize();
      } catch (const CollectiveMismatch& error) {
        text = error.what();
      }
      if (text.find("all_reduce_coalesced sum f32[7]") == std::string::npos) {
        throw std::runtime_error("expected a mismatch, but got '" + text + "'");
      }
      for (const Tensor& tensor : mine) {
        if (tensor[0].item<int>() != group.rank() + 1) throw std::runtime_error("it changed");
      }
      suite.all(i32, 100);
    }
  });
}

TEST_P(OperandMismatchTest, AScaleOfNaNEqualsItselfAndZerosHaveSigns) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Tensor tensor = ones({2}, {.dtype = f32, .device = group.device()});
    group.all_reduce(tensor, {.scale = group.rank() == 0 ? nan : -nan}).synchronize();
    if (!std::isnan(tensor[0].item<float>())) throw std::runtime_error("expected NaN");
    expect_throws<CollectiveMismatch>(
        [&] { group.all_reduce(tensor, {.scale = group.rank() == 0 ? 0.0 : -0.0}).synchronize(); },
        "scale=0 and rank 1 called all_reduce sum f32[2] scale=-0");
    suite.all(i32, 100);
  });
}

using CapturedMismatchTest = testing::LocalGroupTest;

TEST_F(CapturedMismatchTest, EveryReplayOfOtherListsIsAMismatchAndLaterOnesAreRight) {
  GANTRY_REQUIRE_DEVICES(2);
  on_ranks(2, [](CollectiveSuite& suite, Communicator& group) {
    const auto of = [&](DType dtype) {
      return full({7}, group.rank() + 1, {.dtype = dtype, .device = group.device()});
    };
    std::vector<Tensor> equal{of(f32), of(f16)};
    std::vector<Tensor> other{of(f32), of(f16), of(f64)};
    if (group.rank() == 1) other.pop_back();
    synchronize(group.device());
    group.host_barrier();  // no rank synchronizes while another one captures
    const Stream stream = Stream::from_pool(group.device());
    const StreamGuard guard(stream);
    Graph right;
    Graph wrong;
    {
      GraphCapture capture(right);
      group.all_reduce_coalesced(equal);
    }
    {
      GraphCapture capture(wrong);
      group.all_reduce_coalesced(other);
    }
    int expected = group.rank() + 1;
    for (int i = 0; i < 3; ++i) {
      expect_throws<CollectiveMismatch>(
          [&] {
            wrong.replay();
            stream.synchronize();
          },
          "all_reduce_coalesced sum f32[7]+f16[7]");
      right.replay();
      stream.synchronize();
      expected = i == 0 ? 3 : 2 * expected;
      for (const Tensor& tensor : equal) {
        if (tensor[0].item<int>() != expected) throw std::runtime_error("a wrong sum");
      }
    }
    suite.all(i32, 100);
  });
}

CollectiveKind kind_of(RandomCall::Kind kind) {
  using Kind = RandomCall::Kind;
  switch (kind) {
    case Kind::all_reduce:
    case Kind::coalesced:
      return CollectiveKind::all_reduce;
    case Kind::reduce:
      return CollectiveKind::reduce;
    case Kind::broadcast:
      return CollectiveKind::broadcast;
    case Kind::all_gather:
      return CollectiveKind::all_gather;
    case Kind::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case Kind::gather:
      return CollectiveKind::gather;
    case Kind::scatter:
      return CollectiveKind::scatter;
    case Kind::all_to_all:
    case Kind::uneven:
      return CollectiveKind::all_to_all;
  }
  __builtin_unreachable();
}

// What NCCL's transport does before each call, and "nccl" above on GPUs.
TEST(ComparedOperandsTest, HostsFindEveryDifferenceAndRefuseNoEqualCall) {
  constexpr int kRanks = 4;
  ControlGroup group(kRanks);
  testing::rank_threads(kRanks, [&](int rank) {
    RandomCalls random(first_seed());
    for (std::uint64_t number = 1; number <= static_cast<std::uint64_t>(40 * rounds()); ++number) {
      const std::vector<RandomCall> calls = calls_of_round(random, kRanks);
      const RandomCall& mine = calls[static_cast<std::size_t>(rank)];
      std::vector<Tensor> tensors;
      for (const RandomOperand& one : mine.list) {
        tensors.push_back(empty(Shape(one.shape), {.dtype = one.dtype}));
      }
      const bool is_list = mine.kind == RandomCall::Kind::coalesced;
      const bool is_uneven = mine.kind == RandomCall::Kind::uneven;
      const Descriptor what{.call = static_cast<std::int64_t>(number),
                            .count = is_uneven ? -1 : tensors.front().numel(),
                            .kind = kind_of(mine.kind),
                            .dtype = mine.list.front().dtype,
                            .operands = is_list     ? list_operands(tensors)
                                        : is_uneven ? row_operands(tensors.front())
                                                    : operands_of(tensors.front())};
      group[rank].record({.what = what}, Algorithm::nccl, 0, 0);
      group[rank].rendezvous(HostCall::none, number);
      const std::string text =
          testing::text_of<CollectiveMismatch>([&] { group[rank].verify(number); });
      if (text.empty() != all_equal(calls)) {
        throw std::runtime_error("call " + std::to_string(number) + ": '" + text + "'");
      }
    }
  });
}

}  // namespace
}  // namespace gantry
