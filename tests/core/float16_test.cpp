// 16-bit floats, exhaustively: all 65,536 values and every rounding boundary between them.
#include <gantry/core/float16.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>

namespace gantry {
namespace {

// What the bits mean, by the definition of the format, in double.
double decode(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

template <class T>
struct Format;
template <>
struct Format<float16> {
  static constexpr int kExponentBits = 5;
};
template <>
struct Format<bfloat16> {
  static constexpr int kExponentBits = 8;
};

template <class T>
class Float16Test : public ::testing::Test {
 protected:
  static constexpr int kExponentBits = Format<T>::kExponentBits;
  static constexpr int kInfinity = ((1 << kExponentBits) - 1) << (15 - kExponentBits);

  static double value(int bits) { return decode(static_cast<std::uint16_t>(bits), kExponentBits); }
  /// The value that follows the largest finite one if the exponent had no end.
  static double value_or_overflow(int bits) {
    return bits == kInfinity ? 2 * value(kInfinity - 1) - value(kInfinity - 2) : value(bits);
  }
};

using Formats = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(Float16Test, Formats);

TYPED_TEST(Float16Test, AllBitPatternsWidenExactly) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto number = TypeParam::from_bits(static_cast<std::uint16_t>(bits));
    const double expected = this->value(bits);
    const float widened = number;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(widened), expected) << bits;
      ASSERT_EQ(std::signbit(widened), std::signbit(expected)) << bits;
    }
  }
}

TYPED_TEST(Float16Test, AllBitPatternsSurviveTheRoundTrip) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto raw = static_cast<std::uint16_t>(bits);
    const TypeParam back(static_cast<float>(TypeParam::from_bits(raw)));
    const bool is_nan = std::isnan(this->value(bits));
    ASSERT_EQ(back.bits, is_nan ? 0x7fff : raw) << bits;
  }
}

// Between two neighbours: the midpoint goes to the even one, anything off it to the nearer one.
TYPED_TEST(Float16Test, EveryBoundaryRoundsToNearestEven) {
  for (int bits = 0; bits < this->kInfinity; ++bits) {
    const double middle = (this->value(bits) + this->value_or_overflow(bits + 1)) / 2;
    const auto at = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(at), middle) << "the midpoint must be exact in float";
    const float below = std::nextafter(at, 0.0F);
    const float above = std::nextafter(at, std::numeric_limits<float>::infinity());
    const int even = (bits & 1) == 0 ? bits : bits + 1;
    ASSERT_EQ(TypeParam(at).bits, even) << bits;
    ASSERT_EQ(TypeParam(below).bits, bits) << bits;
    ASSERT_EQ(TypeParam(above).bits, bits + 1) << bits;
    ASSERT_EQ(TypeParam(-at).bits, even | 0x8000) << bits;
    ASSERT_EQ(TypeParam(-below).bits, bits | 0x8000) << bits;
    ASSERT_EQ(TypeParam(-above).bits, (bits + 1) | 0x8000) << bits;
  }
}

// As above, off the midpoint by so little that a float is on it.
TYPED_TEST(Float16Test, EveryBoundaryRoundsADoubleOnce) {
  for (int bits = 0; bits < this->kInfinity; ++bits) {
    const double middle = (this->value(bits) + this->value_or_overflow(bits + 1)) / 2;
    const int even = (bits & 1) == 0 ? bits : bits + 1;
    ASSERT_EQ(TypeParam(middle).bits, even) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0)).bits, bits) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(middle, HUGE_VAL)).bits, bits + 1) << bits;
    ASSERT_EQ(TypeParam(std::nextafter(-middle, -HUGE_VAL)).bits, (bits + 1) | 0x8000) << bits;
  }
}

TEST(Float16OfIntegersTest, RoundsOnce) {
  EXPECT_EQ(float16(4098).bits, 0x6c00);  // between 4096 and 4100
  EXPECT_EQ(float16(std::int16_t{4099}).bits, 0x6c01);
  EXPECT_EQ(float16(true).bits, 0x3c00);
  EXPECT_EQ(float16(INT64_MIN).bits, 0xfc00);
  EXPECT_EQ(bfloat16((1 << 30) + (1 << 22)).bits, 0x4e80);
  EXPECT_EQ(bfloat16((1 << 30) + (1 << 22) + 1).bits, 0x4e81);
  // Neither a float nor a double holds what is past the middle.
  constexpr std::int64_t kMiddle = (std::int64_t{1} << 62) + (std::int64_t{1} << 54);
  EXPECT_EQ(bfloat16(kMiddle).bits, 0x5e80);
  EXPECT_EQ(bfloat16(kMiddle + 1).bits, 0x5e81);
  EXPECT_EQ(bfloat16(-kMiddle - 1).bits, 0xde81);
  EXPECT_EQ(bfloat16(UINT64_MAX).bits, 0x5f80);
}

TYPED_TEST(Float16Test, SpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(TypeParam(infinity).bits, this->kInfinity);
  EXPECT_EQ(TypeParam(-infinity).bits, this->kInfinity | 0x8000);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::max()).bits, this->kInfinity);
  EXPECT_EQ(TypeParam(0.0F).bits, 0);
  EXPECT_EQ(TypeParam(-0.0F).bits, 0x8000);
  EXPECT_EQ(TypeParam(std::numeric_limits<float>::quiet_NaN()).bits, 0x7fff);
  EXPECT_EQ(TypeParam(-std::numeric_limits<float>::quiet_NaN()).bits, 0x7fff);
  EXPECT_EQ(TypeParam().bits, 0);
  EXPECT_EQ(static_cast<float>(TypeParam(1.0F)), 1.0F);
}

TYPED_TEST(Float16Test, StreamsAsItsFloat) {
  std::ostringstream out;
  out << TypeParam(-1.5F) << ' ' << TypeParam(3) << ' '
      << TypeParam(std::numeric_limits<float>::infinity());
  EXPECT_EQ(out.str(), "-1.5 3 inf");
}

// Whatever the float, no other 16-bit value is nearer, and rounding keeps the order.
TYPED_TEST(Float16Test, RandomFloatsRoundToTheNearest) {
  std::mt19937 generator(7);
  std::uniform_int_distribution<std::uint32_t> any_bits;
  for (int i = 0; i < 200000; ++i) {
    const std::uint32_t raw = any_bits(generator);
    float number;
    std::memcpy(&number, &raw, sizeof number);
    if (!std::isfinite(number)) continue;
    const TypeParam rounded(number);
    const int magnitude = rounded.bits & 0x7fff;
    const double exact = std::fabs(static_cast<double>(number));
    const double error = std::fabs(exact - this->value_or_overflow(magnitude));
    if (magnitude < this->kInfinity) {
      ASSERT_LE(error, std::fabs(exact - this->value_or_overflow(magnitude + 1))) << number;
    }
    if (magnitude > 0 &&
        (magnitude < this->kInfinity || exact < this->value_or_overflow(magnitude))) {
      ASSERT_LE(error, std::fabs(exact - this->value(magnitude - 1))) << number;
    }
    ASSERT_EQ((rounded.bits & 0x8000) != 0, std::signbit(number)) << number;
  }
}

TYPED_TEST(Float16Test, CompoundAssignmentsRoundOnce) {
  std::mt19937 random(7);
  const auto some = [&] { return TypeParam(std::uniform_real_distribution<float>(-8, 8)(random)); };
  const auto check = [](TypeParam value, auto other) {
    const float a = value;
    TypeParam result = value;
    EXPECT_EQ((result += other).bits, TypeParam(a + other).bits);
    EXPECT_EQ(((result = value) -= other).bits, TypeParam(a - other).bits);
    EXPECT_EQ(((result = value) *= other).bits, TypeParam(a * other).bits);
    EXPECT_EQ(((result = value) /= other).bits, TypeParam(a / other).bits);
  };
  for (int i = 0; i < 1000; ++i) {
    const float other = some();
    check(some(), other);
    check(some(), static_cast<double>(other) * 1.0009765625);
    check(some(), 1 + i);
    check(some(), static_cast<std::uint8_t>(i | 1));
  }
  TypeParam own(3.0F);
  own *= own;
  EXPECT_EQ(static_cast<float>(own), 9.0F);
  own -= TypeParam(1.0F);
  own /= bfloat16(2.0F);
  own += float16(0.5F);
  EXPECT_EQ(static_cast<float>(own), 4.5F);
}

}  // namespace
}  // namespace gantry
