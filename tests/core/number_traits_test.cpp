// float16 and bfloat16 as number types of the standard library.
#include <gantry/core/float16.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <sstream>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>

namespace gantry {
namespace {

// Facts of a format by its definition.
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
class NumberTraitsTest : public ::testing::Test {
 protected:
  using Limits = std::numeric_limits<T>;
  static constexpr int kExponentBits = Format<T>::kExponentBits;
  static constexpr int kFractionBits = 15 - kExponentBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;

  static double value(T number) { return static_cast<float>(number); }
};

using Formats = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(NumberTraitsTest, Formats);

TYPED_TEST(NumberTraitsTest, Categories) {
  using T = TypeParam;
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  static_assert(std::is_trivially_destructible_v<T> && std::is_nothrow_move_constructible_v<T>);
  static_assert(std::is_nothrow_default_constructible_v<T> && std::regular<T>);
  static_assert(std::has_unique_object_representations_v<T> && sizeof(T) == 2 && alignof(T) == 2);
  static_assert(std::totally_ordered<T> && std::convertible_to<T, float>);
  static_assert(std::constructible_from<T, double> && std::constructible_from<T, int>);
  static_assert(!std::is_convertible_v<float, T>, "a conversion that rounds is explicit");
  static_assert(!std::is_floating_point_v<T> && !std::is_arithmetic_v<T>);
  static_assert(std::is_class_v<T>);
}

TYPED_TEST(NumberTraitsTest, LimitsAreThoseOfTheFormat) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  static_assert(Limits::is_specialized && Limits::is_signed && !Limits::is_integer);
  static_assert(!Limits::is_exact && Limits::is_bounded && !Limits::is_modulo);
  static_assert(Limits::has_infinity && Limits::has_quiet_NaN && Limits::has_signaling_NaN);
  static_assert(Limits::has_denorm == std::denorm_present && !Limits::has_denorm_loss);
  static_assert(Limits::round_style == std::round_to_nearest);
  static_assert(!Limits::traps && !Limits::tinyness_before && Limits::radix == 2);
  static_assert(Limits::is_iec559 == std::is_same_v<T, float16>);

  const int digits = this->kFractionBits + 1;
  EXPECT_EQ(Limits::digits, digits);
  EXPECT_EQ(Limits::digits10, static_cast<int>(std::floor((digits - 1) * std::log10(2.0))));
  EXPECT_EQ(Limits::max_digits10, static_cast<int>(std::ceil(digits * std::log10(2.0) + 1)));
  EXPECT_EQ(Limits::max_exponent, this->kBias + 1);
  EXPECT_EQ(Limits::min_exponent, 2 - this->kBias);
  const double largest = std::ldexp(2 - std::ldexp(1.0, 1 - digits), this->kBias);
  const double smallest = std::ldexp(1.0, 1 - this->kBias);
  EXPECT_EQ(Limits::max_exponent10, static_cast<int>(std::floor(std::log10(largest))));
  EXPECT_EQ(Limits::min_exponent10, static_cast<int>(std::ceil(std::log10(smallest))));
  EXPECT_EQ(this->value(Limits::max()), largest);
  EXPECT_EQ(this->value(Limits::lowest()), -largest);
  EXPECT_EQ(this->value(Limits::min()), smallest);
  EXPECT_EQ(this->value(Limits::denorm_min()), std::ldexp(smallest, 1 - digits));
  EXPECT_EQ(this->value(Limits::epsilon()), std::ldexp(1.0, 1 - digits));
  EXPECT_EQ(this->value(Limits::round_error()), 0.5);
  EXPECT_EQ(this->value(Limits::infinity()), HUGE_VAL);
  EXPECT_TRUE(std::isnan(this->value(Limits::quiet_NaN())));
  EXPECT_TRUE(std::isnan(this->value(Limits::signaling_NaN())));
  // The first bit of the fraction tells a quiet NaN.
  const int quiet = 1 << (this->kFractionBits - 1);
  EXPECT_NE(Limits::quiet_NaN().bits & quiet, 0);
  EXPECT_EQ(Limits::signaling_NaN().bits & quiet, 0);
}

TEST(NumberTraitsOfFormatsTest, BitsOfTheLimits) {
  using Half = std::numeric_limits<float16>;
  static_assert(Half::min().bits == 0x0400 && Half::max().bits == 0x7bff);
  static_assert(Half::lowest().bits == 0xfbff && Half::epsilon().bits == 0x1400);
  static_assert(Half::round_error().bits == 0x3800 && Half::denorm_min().bits == 0x0001);
  static_assert(Half::infinity().bits == 0x7c00 && Half::quiet_NaN().bits == 0x7e00);
  static_assert(Half::digits10 == 3 && Half::max_digits10 == 5);
  static_assert(Half::min_exponent10 == -4 && Half::max_exponent10 == 4);
  using Brain = std::numeric_limits<bfloat16>;
  static_assert(Brain::min().bits == 0x0080 && Brain::max().bits == 0x7f7f);
  static_assert(Brain::lowest().bits == 0xff7f && Brain::epsilon().bits == 0x3c00);
  static_assert(Brain::round_error().bits == 0x3f00 && Brain::denorm_min().bits == 0x0001);
  static_assert(Brain::infinity().bits == 0x7f80 && Brain::quiet_NaN().bits == 0x7fc0);
  static_assert(Brain::digits10 == 2 && Brain::max_digits10 == 4);
  static_assert(Brain::min_exponent10 == -37 && Brain::max_exponent10 == 38);
}

// The limits hold among all 65,536 numbers.
TYPED_TEST(NumberTraitsTest, LimitsHoldForAllNumbers) {
  using Limits = std::numeric_limits<TypeParam>;
  const double one_more = std::nextafter(1.0, 2.0);
  double after_one = 2;
  for (int bits = 0; bits < 65536; ++bits) {
    const double number = this->value(TypeParam::from_bits(static_cast<std::uint16_t>(bits)));
    if (!std::isfinite(number)) continue;
    ASSERT_LE(number, this->value(Limits::max()));
    ASSERT_GE(number, this->value(Limits::lowest()));
    if (number > 0) {
      ASSERT_GE(number, this->value(Limits::denorm_min()));
    }
    if (number >= one_more) after_one = std::min(after_one, number);
  }
  EXPECT_EQ(after_one - 1, this->value(Limits::epsilon()));
}

TYPED_TEST(NumberTraitsTest, LimitsOfConstAndVolatile) {
  using T = TypeParam;
  static_assert(std::numeric_limits<const T>::max().bits == std::numeric_limits<T>::max().bits);
  static_assert(std::numeric_limits<volatile T>::digits == std::numeric_limits<T>::digits);
  static_assert(std::numeric_limits<const volatile T>::is_specialized);
}

TYPED_TEST(NumberTraitsTest, EqualNumbersHaveEqualHashes) {
  using T = TypeParam;
  const std::hash<T> hash;
  EXPECT_EQ(hash(T(0.0F)), hash(T(-0.0F)));
  std::unordered_set<std::size_t> hashes;
  std::unordered_map<T, int> counts;
  for (int bits = 0; bits < 65536; ++bits) {
    const T number = T::from_bits(static_cast<std::uint16_t>(bits));
    if (std::isnan(this->value(number))) continue;
    ASSERT_EQ(hash(number), hash(T(static_cast<float>(number))));
    hashes.insert(hash(number));
    ++counts[number];
  }
  const std::size_t infinities_and_numbers = (1U << 15) - (1U << this->kFractionBits);
  EXPECT_EQ(counts.size(), 2 * infinities_and_numbers + 1) << "0 and -0 are one key";
  EXPECT_EQ(counts[T(0)], 2);
  EXPECT_GT(hashes.size(), counts.size() * 9 / 10);
}

TYPED_TEST(NumberTraitsTest, CommonTypes) {
  using T = TypeParam;
  const auto check = [](auto other, auto expected) {
    using Other = decltype(other);
    using Expected = decltype(expected);
    static_assert(std::is_same_v<std::common_type_t<T, Other>, Expected>);
    static_assert(std::is_same_v<std::common_type_t<Other, T>, Expected>);
    static_assert(std::is_same_v<std::common_type_t<const T&, const Other>, Expected>);
    static_assert(std::is_same_v<decltype(T() + other), Expected>);
  };
  check(1.0F, 1.0F);
  check(1.0, 1.0);
  check(1.0L, 1.0L);
  check(1, 1.0F);
  check(1LL, 1.0F);
  check(1ULL, 1.0F);
  check('a', 1.0F);
  check(true, 1.0F);
  static_assert(std::is_same_v<std::common_type_t<T>, T>);
  static_assert(std::is_same_v<std::common_type_t<T, T>, T>);
  static_assert(std::is_same_v<std::common_type_t<const T&, T&&>, T>);
  static_assert(std::is_same_v<std::common_type_t<float16, bfloat16>, float>);
  static_assert(std::is_same_v<std::common_type_t<bfloat16, const float16&>, float>);
  static_assert(std::is_same_v<std::common_type_t<int, T, double>, double>);
}

TYPED_TEST(NumberTraitsTest, FormatsAsItsFloat) {
  static_assert(std::is_same_v<decltype(format_as(TypeParam())), float>);
  EXPECT_EQ(format_as(TypeParam(1.5F)), 1.5F);
  std::ostringstream out;
  out << TypeParam(1.5F) << ' ' << std::numeric_limits<TypeParam>::infinity();
  EXPECT_EQ(out.str(), "1.5 inf");
}

}  // namespace
}  // namespace gantry
