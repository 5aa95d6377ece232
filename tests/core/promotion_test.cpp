#include <gantry/core/promotion.hpp>

#include <gtest/gtest.h>

#include <string>

#include <gantry/core/error.hpp>

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

// As in PyTorch.
TEST(PromotionTest, DataDTypesPromoteWithFloatsOrNothing) {
  const auto message = [](DType a, DType b) -> std::string {
    try {
      return std::string(name(promote_types(a, b)));
    } catch (const DTypeError& error) {
      return error.what();
    }
  };
  for (const DType a : {u16, u32, u64}) {
    EXPECT_EQ(promote_types(a, a), a);
    for (const DType other : {f16, bf16, f32, f64}) {
      EXPECT_EQ(promote_types(a, other), other);
      EXPECT_EQ(promote_types(other, a), other);
    }
    for (const DType other : {bool_, u8, i8, i16, i32, i64, u16, u32, u64}) {
      if (other == a) continue;
      const std::string text =
          "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote ";
      EXPECT_EQ(message(a, other),
                text + std::string(torch_name(a)) + " and " + std::string(torch_name(other)));
      EXPECT_EQ(message(other, a),
                text + std::string(torch_name(other)) + " and " + std::string(torch_name(a)));
    }
  }
  for (const DType a : {f8e4m3, f8e5m2}) {
    EXPECT_EQ(promote_types(a, a), a);
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto other = static_cast<DType>(i);
      if (other == a) continue;
      EXPECT_EQ(message(a, other),
                "Promotion for Float8 Types is not supported, attempted to promote " +
                    std::string(torch_name(a)) + " and " + std::string(torch_name(other)));
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
