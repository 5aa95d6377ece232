#include "kernels/strided.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::kernels {
namespace {

using gantry::testing::Layout;

TEST(StridedPlanTest, MergesContiguousDimsIntoOne) {
  const std::int64_t sizes[] = {2, 1, 3, 4};
  const std::int64_t strides[] = {12, 99, 4, 1};
  const StridedPlan<2> plan = make_plan<2>(4, sizes, {strides, strides});
  EXPECT_EQ(plan.ndim, 1);
  EXPECT_EQ(plan.sizes[0], 24);
  EXPECT_TRUE(plan.is_dense(0));
  EXPECT_TRUE(plan.is_dense(1));
}

TEST(StridedPlanTest, MergesTransposedDimsThatAllOperandsShare) {
  const std::int64_t sizes[] = {3, 5};
  const std::int64_t strides[] = {1, 3};
  const StridedPlan<2> plan = make_plan<2>(2, sizes, {strides, strides});
  EXPECT_EQ(plan.ndim, 1);
  EXPECT_TRUE(plan.is_dense(1));
}

TEST(StridedPlanTest, KeepsDimsThatOneOperandBroadcasts) {
  const std::int64_t sizes[] = {3, 5};
  const std::int64_t out[] = {5, 1};
  const std::int64_t row[] = {0, 1};
  const StridedPlan<2> plan = make_plan<2>(2, sizes, {out, row});
  EXPECT_EQ(plan.ndim, 2);
  EXPECT_EQ(plan.strides[1][1], 0);
}

TEST(StridedPlanTest, IsOneElementForNoDims) {
  const std::int64_t* const none = nullptr;
  const StridedPlan<1> plan = make_plan<1>(0, none, {none});
  EXPECT_EQ(plan.ndim, 1);
  EXPECT_EQ(plan.numel, 1);
  EXPECT_TRUE(plan.is_dense(0));
}

// All pairs (offset of operand 0, offset of operand 1) of a plan.
std::multimap<std::int64_t, std::int64_t> visited(const StridedPlan<2>& plan) {
  std::multimap<std::int64_t, std::int64_t> result;
  for (std::int64_t i = 0; i < plan.numel; ++i) {
    std::int64_t rest = i;
    std::int64_t offsets[2] = {0, 0};
    for (int dim = 0; dim < plan.ndim; ++dim) {
      const std::int64_t at = rest % plan.sizes[dim];
      rest /= plan.sizes[dim];
      for (int k = 0; k < 2; ++k) offsets[k] += at * plan.strides[dim][k];
    }
    result.emplace(offsets[0], offsets[1]);
  }
  return result;
}

TEST(StridedPlanTest, VisitsEveryElementOnceInEveryLayout) {
  const Shape sizes = {2, 3, 1, 4};
  for (const Layout& out : testing::output_layouts(sizes)) {
    for (const Layout& in : testing::input_layouts(sizes)) {
      const StridedPlan<2> plan =
          make_plan<2>(sizes.size(), sizes.data(), {out.strides.data(), in.strides.data()});
      std::multimap<std::int64_t, std::int64_t> expected;
      for (std::int64_t i = 0; i < sizes.product(); ++i) {
        expected.emplace(out.position(i) - out.offset, in.position(i) - in.offset);
      }
      EXPECT_EQ(visited(plan), expected) << out.name << " from " << in.name;
    }
  }
}

TEST(FastDivisorTest, DividesLikeTheProcessor) {
  const std::uint32_t limit = 0x7fffffffu;
  for (const std::uint32_t divisor : {1u, 2u, 3u, 5u, 7u, 10u, 16u, 255u, 256u, 641u, 65535u,
                                      65537u, 1000003u, 0x40000000u, 0x40000001u, limit}) {
    const FastDivisor fast(divisor);
    for (const std::uint32_t n : {0u, 1u, 2u, 6u, 255u, 65536u, 0x3fffffffu, limit - 1, limit}) {
      EXPECT_EQ(fast.divide(n), n / divisor) << n << " / " << divisor;
    }
    for (std::uint64_t multiple = divisor; multiple <= limit;
         multiple += (limit / 7 / divisor + 1) * std::uint64_t{divisor}) {
      const auto n = static_cast<std::uint32_t>(multiple);
      EXPECT_EQ(fast.divide(n), n / divisor) << n << " / " << divisor;
      EXPECT_EQ(fast.divide(n - 1), (n - 1) / divisor) << n - 1 << " / " << divisor;
    }
  }
}

TEST(ForEachPieceTest, SplitsBelowTheIndexLimitAndCoversAll) {
  const std::int64_t sizes[] = {3, std::int64_t{1} << 31};
  const std::int64_t strides[] = {std::int64_t{1} << 32, 2};
  const StridedPlan<1> plan = make_plan<1>(2, sizes, {strides});
  std::int64_t covered = 0;
  std::vector<std::int64_t> begins;
  for_each_piece(plan,
                 [&](const StridedPlan<1>& piece, const std::int64_t(&begin)[1]) {
                   EXPECT_LT(piece.numel, std::int64_t{1} << 31);
                   covered += piece.numel;
                   begins.push_back(begin[0]);
                 },
                 {0});
  EXPECT_EQ(covered, plan.numel);
  EXPECT_EQ(begins.front(), 0);
  EXPECT_EQ(std::set<std::int64_t>(begins.begin(), begins.end()).size(), begins.size());
}

}  // namespace
}  // namespace gantry::kernels
