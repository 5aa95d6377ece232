#include <gantry/tensor/promote.hpp>

#include <gtest/gtest.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

namespace gantry {
namespace {

constexpr DType kTypes[] = {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64};

TEST(PromoteTest, MatchesTheTable) {
  // PyTorch's table, rows and columns in the order of kTypes.
  const DType expected[10][10] = {
      {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64},
      {u8, u8, i16, i16, i32, i64, f16, bf16, f32, f64},
      {i8, i16, i8, i16, i32, i64, f16, bf16, f32, f64},
      {i16, i16, i16, i16, i32, i64, f16, bf16, f32, f64},
      {i32, i32, i32, i32, i32, i64, f16, bf16, f32, f64},
      {i64, i64, i64, i64, i64, i64, f16, bf16, f32, f64},
      {f16, f16, f16, f16, f16, f16, f16, f32, f32, f64},
      {bf16, bf16, bf16, bf16, bf16, bf16, f32, bf16, f32, f64},
      {f32, f32, f32, f32, f32, f32, f32, f32, f32, f64},
      {f64, f64, f64, f64, f64, f64, f64, f64, f64, f64},
  };
  for (int a = 0; a < 10; ++a) {
    for (int b = 0; b < 10; ++b) {
      EXPECT_EQ(promote_types(kTypes[a], kTypes[b]), expected[a][b])
          << kTypes[a] << ", " << kTypes[b];
    }
  }
}

TEST(PromoteTest, CastsInPlaceOnlyToTheSameOrAHigherCategory) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      EXPECT_EQ(can_cast(from, to), category(from) <= category(to)) << from << " to " << to;
    }
  }
  EXPECT_TRUE(can_cast(f64, f16));
  EXPECT_FALSE(can_cast(f16, i64));
}

TEST(ResultTypeTest, LowerPrioritiesCountByCategoryOnly) {
  const auto dims = [](DType dtype) { return zeros({2}, {.dtype = dtype}); };
  const auto zero = [](DType dtype) { return zeros({}, {.dtype = dtype}); };
  EXPECT_EQ(result_type(dims(i32), 2), i32);
  EXPECT_EQ(result_type(dims(i32), 2.5), f32);
  EXPECT_EQ(result_type(dims(u8), true), u8);
  EXPECT_EQ(result_type(dims(bool_), 1), i64);
  EXPECT_EQ(result_type(dims(bool_), 1.0), f32);
  EXPECT_EQ(result_type(dims(f16), 1.0), f16);
  EXPECT_EQ(result_type(dims(i8), zero(i64)), i8);
  EXPECT_EQ(result_type(zero(f64), dims(f16)), f16);
  EXPECT_EQ(result_type(dims(i32), zero(f16)), f16);
  EXPECT_EQ(result_type(dims(i8), dims(u8)), i16);
  EXPECT_EQ(result_type(zero(i8), zero(u8)), i16);
  EXPECT_EQ(result_type(zero(f64), 1.5), f64);
  EXPECT_EQ(result_type(zero(i16), 1.5), f32);
  EXPECT_EQ(result_type(1, 2.5), f32);
  EXPECT_EQ(result_type(true, 2), i64);
}

TEST(ResultTypeTest, AcceptsAnyNumberOfOperands) {
  const Tensor a = zeros({2}, {.dtype = i8});
  const Tensor b = zeros({}, {.dtype = i64});
  const std::vector<Operand> operands{a, b, 2.5};
  EXPECT_EQ(result_type(operands), f32);
  EXPECT_THROW(static_cast<void>(result_type(std::span<const Operand>{})), InvalidArgument);
}

}  // namespace
}  // namespace gantry
