#include <gantry/core/scalar.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

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
  EXPECT_EQ(Scalar(300).to<std::uint8_t>(), 44);
  EXPECT_EQ(Scalar(7).to<double>(), 7.0);
  EXPECT_TRUE(Scalar(2).to<bool>());
  EXPECT_FALSE(Scalar(0.0).to<bool>());
  EXPECT_EQ(Scalar(true).to<float>(), 1.0F);
  EXPECT_EQ(Scalar(0.1).to<float>(), 0.1F);
}

TEST(ScalarTest, ConvertsTo16BitFloats) {
  EXPECT_EQ(Scalar(1.5).to<float16>().bits, float16(1.5F).bits);
  EXPECT_EQ(Scalar(70000).to<float16>().bits, 0x7c00);
  EXPECT_EQ(Scalar(-2).to<bfloat16>().bits, bfloat16(-2.0F).bits);
  EXPECT_EQ(Scalar(true).to<float16>().bits, float16(1.0F).bits);
}

TEST(ScalarTest, WritesTheNumber) {
  EXPECT_EQ(written(Scalar(true)), "true");
  EXPECT_EQ(written(Scalar(false)), "false");
  EXPECT_EQ(written(Scalar(-12)), "-12");
  EXPECT_EQ(written(Scalar(2.5)), "2.5");
}

}  // namespace
}  // namespace gantry
