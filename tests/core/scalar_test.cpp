#include <gantry/core/scalar.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

std::string written(const Scalar& scalar) {
  std::ostringstream out;
  out << scalar;
  return out.str();
}

TEST(ScalarTest, RemembersTheCategoryOfItsType) {
  EXPECT_EQ(Scalar(true).category(), DTypeCategory::boolean);
  EXPECT_EQ(Scalar(1).category(), DTypeCategory::integral);
  EXPECT_EQ(Scalar(1u).category(), DTypeCategory::integral);
  EXPECT_EQ(Scalar('a').category(), DTypeCategory::integral);
  EXPECT_EQ(Scalar(1.0F).category(), DTypeCategory::floating);
  EXPECT_EQ(Scalar(1.0).category(), DTypeCategory::floating);
  EXPECT_EQ(Scalar(float16(1.0F)).category(), DTypeCategory::floating);
  EXPECT_EQ(Scalar(bfloat16(1.0F)).category(), DTypeCategory::floating);
  EXPECT_EQ(Scalar().category(), DTypeCategory::integral);
}

TEST(ScalarTest, DefaultTypeFollowsTheCategory) {
  EXPECT_EQ(Scalar(false).default_dtype(), DType::bool_);
  EXPECT_EQ(Scalar(3).default_dtype(), DType::i64);
  EXPECT_EQ(Scalar(3.5).default_dtype(), DType::f32);
}

TEST(ScalarTest, KeepsIntegersThatDoubleCannotHold) {
  for (const std::int64_t value :
       {std::int64_t{0}, (std::int64_t{1} << 53) + 1, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}}) {
    EXPECT_EQ(Scalar(value).to<std::int64_t>(), value);
  }
}

TEST(ScalarTest, ConvertsAsCppDoes) {
  EXPECT_EQ(Scalar(3.9).to<int>(), 3);
  EXPECT_EQ(Scalar(-3.9).to<int>(), -3);
  EXPECT_EQ(Scalar(7).to<double>(), 7.0);
  EXPECT_TRUE(Scalar(2).to<bool>());
  EXPECT_FALSE(Scalar(0.0).to<bool>());
  EXPECT_EQ(Scalar(true).to<float>(), 1.0F);
  EXPECT_EQ(Scalar(0.1).to<float>(), 0.1F);
}

std::string conversion_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(ScalarTest, RefusesWhatTheTypeCannotHold) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(conversion_error([] { (void)Scalar(300).to<std::uint8_t>(); }),
            "value cannot be converted to type u8 without overflow, got 300");
  EXPECT_EQ(conversion_error([] { (void)Scalar(1e300).to<float>(); }),
            "value cannot be converted to type f32 without overflow, got 1e+300");
  EXPECT_FALSE(Scalar(70000).fits<float16>());
  EXPECT_TRUE(Scalar(65504).fits<float16>());
  EXPECT_FALSE(Scalar(1e39).fits<bfloat16>());
  EXPECT_FALSE(Scalar(128).fits<std::int8_t>());
  EXPECT_TRUE(Scalar(-128).fits<std::int8_t>());
  EXPECT_FALSE(Scalar(1LL << 31).fits<int>());
  EXPECT_FALSE(Scalar(2147483648.0).fits<int>());
  EXPECT_TRUE(Scalar(2147483647.0).fits<int>());
  EXPECT_FALSE(Scalar(255.5).fits<std::uint8_t>());
  EXPECT_FALSE(Scalar(-0.5).fits<std::uint8_t>());
  EXPECT_FALSE(Scalar(9223372036854775808.0).fits<std::int64_t>());
  EXPECT_TRUE(Scalar(-9223372036854775808.0).fits<std::int64_t>());
  for (const double value : {kInfinity, -kInfinity, std::nan("")}) {
    EXPECT_FALSE(Scalar(value).fits<int>()) << value;
    EXPECT_FALSE(Scalar(value).fits<std::int64_t>()) << value;
    EXPECT_TRUE(Scalar(value).fits<float>()) << value;
    EXPECT_TRUE(Scalar(value).fits<float16>()) << value;
  }
}

TEST(ScalarTest, WrapsNegativeNumbersInUnsignedTypesAsPyTorch) {
  EXPECT_EQ(Scalar(-1).to<std::uint8_t>(), 255);
  EXPECT_EQ(Scalar(-255).to<std::uint8_t>(), 1);
  EXPECT_FALSE(Scalar(-256).fits<std::uint8_t>());
}

TEST(ScalarTest, RefusesUnsignedIntegersThatI64CannotHold) {
  EXPECT_EQ(Scalar(std::uint64_t{INT64_MAX}).to<std::int64_t>(), INT64_MAX);
  EXPECT_EQ(conversion_error([] { (void)Scalar(std::numeric_limits<std::uint64_t>::max()); }),
            "Scalar: expected an integer of at most 9223372036854775807, but got "
            "18446744073709551615");
}

TEST(ScalarTest, ConvertsTo16BitFloats) {
  EXPECT_EQ(Scalar(1.5).to<float16>().bits, float16(1.5F).bits);
  EXPECT_EQ(Scalar(std::numeric_limits<double>::infinity()).to<float16>().bits, 0x7c00);
  EXPECT_EQ(Scalar(-2).to<bfloat16>().bits, bfloat16(-2.0F).bits);
  EXPECT_EQ(Scalar(true).to<float16>().bits, float16(1.0F).bits);
}

TEST(ScalarTest, RoundsTo16BitFloatsOnce) {
  // Past the middle of two neighbours by less than a float can tell.
  const double half = 1 + 0x1p-11;
  EXPECT_EQ(Scalar(half + 0x1p-40).to<float16>().bits, 0x3c01);
  EXPECT_EQ(Scalar(half).to<float16>().bits, 0x3c00);
  EXPECT_EQ(Scalar(-half - 0x1p-40).to<float16>().bits, 0xbc01);
  EXPECT_EQ(Scalar(half + 0x1p-10 - 0x1p-40).to<float16>().bits, 0x3c01);
  EXPECT_EQ(Scalar(half + 0x1p-10).to<float16>().bits, 0x3c02);
  EXPECT_EQ(Scalar(0x1p-25 + 0x1p-70).to<float16>().bits, 1);
  const double brain = 1 + 0x1p-8;
  EXPECT_EQ(Scalar(brain + 0x1p-40).to<bfloat16>().bits, 0x3f81);
  EXPECT_EQ(Scalar(brain).to<bfloat16>().bits, 0x3f80);
  EXPECT_EQ(Scalar(-brain - 0x1p-40).to<bfloat16>().bits, 0xbf81);
  // Integers that neither a float nor a double holds.
  constexpr std::int64_t kTie = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);
  EXPECT_EQ(Scalar(kTie).to<bfloat16>().bits, 0x5e80);
  EXPECT_EQ(Scalar(kTie + 1).to<bfloat16>().bits, 0x5e81);
  EXPECT_EQ(Scalar(-kTie - 1).to<bfloat16>().bits, 0xde81);
  EXPECT_EQ(Scalar((1 << 30) + (1 << 22) + 1).to<bfloat16>().bits, 0x4e81);
}

TEST(ScalarTest, WritesTheNumber) {
  EXPECT_EQ(written(Scalar(true)), "true");
  EXPECT_EQ(written(Scalar(false)), "false");
  EXPECT_EQ(written(Scalar(-12)), "-12");
  EXPECT_EQ(written(Scalar(2.5)), "2.5");
}

}  // namespace
}  // namespace gantry
