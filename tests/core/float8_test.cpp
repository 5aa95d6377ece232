#include <gantry/core/float8.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <unordered_set>

#include <gantry/core/scalar.hpp>

namespace gantry {
namespace {

// A format as the OFP8 specification describes it.
struct Format {
  int exponent_bits;
  int fraction_bits;
  int bias;
  int numbers;  // of one sign: patterns from 0 on
};
constexpr Format kE4m3{4, 3, 7, 0x7f};
constexpr Format kE5m2{5, 2, 15, 0x7c};

// The magnitude of a pattern without sign, also of the first one that is no number.
double magnitude_of(const Format& format, int pattern) {
  const int exponent = pattern >> format.fraction_bits;
  const double fraction = std::ldexp(pattern & ((1 << format.fraction_bits) - 1),  //
                                     -format.fraction_bits);
  return exponent == 0 ? std::ldexp(fraction, 1 - format.bias)
                       : std::ldexp(1 + fraction, exponent - format.bias);
}

// The pattern of the number nearest to `value`, ties to even, by search. Beyond the largest number
// it is the first pattern that is no number.
int nearest(const Format& format, long double value) {
  if (std::isnan(value)) return 0x7f;
  const int sign = std::signbit(value) ? 0x80 : 0;
  const long double size = std::fabs(value);
  int below = 0;
  while (below < format.numbers - 1 && magnitude_of(format, below + 1) <= size) ++below;
  const long double low = magnitude_of(format, below);
  const long double high = magnitude_of(format, below + 1);
  const long double middle = (low + high) / 2;
  const bool up = size > middle || (size == middle && below % 2 == 1);
  return sign | (below + (up ? 1 : 0));
}

template <class T>
constexpr Format format_of() {
  return std::is_same_v<T, float8_e4m3> ? kE4m3 : kE5m2;
}

template <class T>
class Float8Test : public ::testing::Test {};
using Formats = ::testing::Types<float8_e4m3, float8_e5m2>;
TYPED_TEST_SUITE(Float8Test, Formats);

TYPED_TEST(Float8Test, EveryPatternHasTheValueOfTheSpecification) {
  using T = TypeParam;
  const Format format = format_of<T>();
  for (int pattern = 0; pattern < 256; ++pattern) {
    const float value = T::from_bits(static_cast<std::uint8_t>(pattern));
    const int size = pattern & 0x7f;
    EXPECT_EQ(std::signbit(value), pattern >= 0x80);
    if (size < format.numbers) {
      EXPECT_EQ(std::fabs(value), magnitude_of(format, size)) << pattern;
      EXPECT_EQ(T(value).bits, pattern);
    } else if (std::is_same_v<T, float8_e5m2> && size == 0x7c) {
      EXPECT_TRUE(std::isinf(value)) << pattern;
      EXPECT_EQ(T(value).bits, pattern);
    } else {
      EXPECT_TRUE(std::isnan(value)) << pattern;
      EXPECT_EQ(T(value).bits, 0x7f);
    }
  }
}

// Every number and every tie, and their neighbours in f32; both signs.
TYPED_TEST(Float8Test, FloatsAreRoundedToNearestEven) {
  using T = TypeParam;
  const Format format = format_of<T>();
  for (int pattern = 0; pattern < format.numbers; ++pattern) {
    const double low = magnitude_of(format, pattern);
    const double high = magnitude_of(format, pattern + 1);
    for (const double at : {low, (low + high) / 2, high}) {
      auto value = static_cast<float>(at);
      for (int i = 0; i < 40; ++i) value = std::nextafter(value, 0.0f);
      for (int i = 0; i < 80; ++i, value = std::nextafter(value, INFINITY)) {
        ASSERT_EQ(T(value).bits, nearest(format, value)) << value;
        ASSERT_EQ(T(-value).bits, nearest(format, -value)) << -value;
      }
    }
  }
}

TYPED_TEST(Float8Test, FloatsOfAllSizesAreRoundedToNearestEven) {
  using T = TypeParam;
  const Format format = format_of<T>();
  std::uint32_t bits = 0;
  do {
    const float value = detail::float_from_bits(bits);
    ASSERT_EQ(T(value).bits, nearest(format, value)) << value;
    bits += 20'011;
  } while (bits >= 20'011);
}

// PyTorch's rule: what rounds beyond the largest number is NaN in e4m3, with its sign, and infinity
// in e5m2.
TEST(Float8OverflowTest, DoesNotSaturate) {
  EXPECT_EQ(float8_e4m3(448.0f).bits, 0x7e);
  EXPECT_EQ(float8_e4m3(464.0f).bits, 0x7e);
  EXPECT_EQ(float8_e4m3(std::nextafter(464.0f, 500.0f)).bits, 0x7f);
  EXPECT_EQ(float8_e4m3(-1e30f).bits, 0xff);
  EXPECT_EQ(float8_e4m3(INFINITY).bits, 0x7f);
  EXPECT_EQ(float8_e4m3(-INFINITY).bits, 0xff);
  EXPECT_EQ(float8_e5m2(57344.0f).bits, 0x7b);
  EXPECT_EQ(float8_e5m2(std::nextafter(61440.0f, 0.0f)).bits, 0x7b);
  EXPECT_EQ(float8_e5m2(61440.0f).bits, 0x7c);
  EXPECT_EQ(float8_e5m2(-1e30f).bits, 0xfc);
  for (const float nan : {std::nanf(""), -std::nanf("7")}) {
    EXPECT_EQ(float8_e4m3(nan).bits, 0x7f);
    EXPECT_EQ(float8_e5m2(nan).bits, 0x7f);
  }
}

// A number next to a tie, which f32 does not hold, is rounded once.
TYPED_TEST(Float8Test, OtherNumbersAreRoundedOnce) {
  using T = TypeParam;
  const Format format = format_of<T>();
  for (int pattern = 0; pattern < format.numbers; ++pattern) {
    const double tie = (magnitude_of(format, pattern) + magnitude_of(format, pattern + 1)) / 2;
    for (const double value : {std::nextafter(tie, 0.0), tie, std::nextafter(tie, 1e9)}) {
      ASSERT_EQ(T(value).bits, nearest(format, value)) << value;
      ASSERT_EQ(T(-value).bits, nearest(format, -value)) << value;
    }
  }
  for (const std::uint64_t base : {1ull << 4, 1ull << 8, 1ull << 15, 1ull << 63, ~0ull - 64}) {
    for (std::uint64_t i = 0; i < 64; ++i) {
      ASSERT_EQ(T(base + i).bits, nearest(format, static_cast<long double>(base + i)));
      const auto number = static_cast<std::int64_t>(base + i);
      ASSERT_EQ(T(number).bits, nearest(format, static_cast<long double>(number)));
    }
  }
  EXPECT_EQ(T(true), T(1));
}

TYPED_TEST(Float8Test, IsANumberTypeOfTheStandardLibrary) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  const Format format = format_of<T>();
  static_assert(Limits::is_specialized && sizeof(T) == 1);
  EXPECT_EQ(static_cast<float>(Limits::max()), magnitude_of(format, format.numbers - 1));
  EXPECT_EQ(static_cast<float>(Limits::lowest()), -magnitude_of(format, format.numbers - 1));
  EXPECT_EQ(static_cast<float>(Limits::min()), std::ldexp(1.0f, 1 - format.bias));
  EXPECT_EQ(static_cast<float>(Limits::denorm_min()), magnitude_of(format, 1));
  EXPECT_EQ(static_cast<float>(Limits::epsilon()), std::ldexp(1.0f, 1 - Limits::digits));
  EXPECT_EQ(Limits::digits, format.fraction_bits + 1);
  EXPECT_EQ(std::ldexp(0.5f, Limits::min_exponent), static_cast<float>(Limits::min()));
  EXPECT_LT(static_cast<float>(Limits::max()), std::ldexp(1.0f, Limits::max_exponent));
  EXPECT_GE(static_cast<float>(Limits::max()), std::ldexp(0.5f, Limits::max_exponent));
  EXPECT_TRUE(std::isnan(static_cast<float>(Limits::quiet_NaN())));
  EXPECT_EQ(Limits::has_infinity, (std::is_same_v<T, float8_e5m2>));
  EXPECT_EQ(std::isinf(static_cast<float>(Limits::infinity())), Limits::has_infinity);
  EXPECT_EQ(std::hash<T>{}(T(0.0f)), std::hash<T>{}(T(-0.0f)));
  EXPECT_EQ(std::unordered_set<T>({T(1.0f), T(2.0f), T(1.0f)}).size(), 2U);
  std::ostringstream out;
  out << T(1.5f);
  EXPECT_EQ(out.str(), "1.5");
}

TEST(Float8ScalarTest, TakesWhatFits) {
  EXPECT_EQ(Scalar(float8_e4m3(1.5f)).to<double>(), 1.5);
  EXPECT_EQ(Scalar(float8_e5m2(1.5f)).to<double>(), 1.5);
  EXPECT_TRUE(Scalar(448.0).fits<float8_e4m3>());
  EXPECT_FALSE(Scalar(448.5).fits<float8_e4m3>());
  EXPECT_FALSE(Scalar(INFINITY).fits<float8_e4m3>());
  EXPECT_TRUE(Scalar(NAN).fits<float8_e4m3>());
  EXPECT_TRUE(Scalar(-57344).fits<float8_e5m2>());
  EXPECT_FALSE(Scalar(57345).fits<float8_e5m2>());
  EXPECT_TRUE(Scalar(INFINITY).fits<float8_e5m2>());
  EXPECT_TRUE(Scalar(NAN).fits<float8_e5m2>());
}

}  // namespace
}  // namespace gantry
