#include <gantry/core/promotion.hpp>

#include <gtest/gtest.h>

namespace gantry {
namespace {

constexpr DType kTypes[] = {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64};

TEST(PromotionTest, MatchesTheTable) {
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

TEST(PromotionTest, CastsInPlaceOnlyToTheSameOrAHigherCategory) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      EXPECT_EQ(can_cast(from, to), category(from) <= category(to)) << from << " to " << to;
    }
  }
  EXPECT_TRUE(can_cast(f64, f16));
  EXPECT_FALSE(can_cast(f16, i64));
}

}  // namespace
}  // namespace gantry
