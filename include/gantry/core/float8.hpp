#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <type_traits>

#include <gantry/core/float16.hpp>
#include <gantry/core/macros.hpp>

/// The 8-bit floats of the Open Compute Project's specification OFP8, for storage only: tensors of
/// them are moved, cast and reduced by collectives.
/// @since 0.3
namespace gantry {

namespace detail {

// Note [8-bit floats]
// A float is rounded to the nearest 8-bit float, ties to even, as PyTorch does. A number that
// rounds beyond the largest one becomes infinity in e5m2, and NaN in e4m3, which has no infinity:
// it keeps its sign. A conversion does not saturate. Every NaN becomes 0x7f. The GPU and the host
// use the same integer arithmetic.
//
// Both ways have no branches, since reductions convert 16 of these floats at once.
//
// `kMantissa` of the seven bits below the sign are fraction. `kBeyond` is the pattern of numbers
// beyond the largest one.
template <int kMantissa, std::uint32_t kBeyond>
GANTRY_HD inline std::uint8_t float_to_float8_bits(float value) {
  constexpr std::uint32_t kBias = (1u << (6 - kMantissa)) - 1;
  constexpr std::uint32_t kDropped = 23 - kMantissa;
  constexpr std::uint32_t kLeastNormal = (127 - kBias + 1) << 23;
  // The last bit of this number is the smallest 8-bit float: the sum rounds to a multiple of it.
  constexpr std::uint32_t kCoarse = (127 + 23 + 1 - kBias - kMantissa) << 23;
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t small =
      float_bits(float_from_bits(magnitude) + float_from_bits(kCoarse)) - kCoarse;
  const std::uint32_t half = (1u << (kDropped - 1)) - 1 + (magnitude >> kDropped & 1u);
  const std::uint32_t normal = (magnitude - ((127 - kBias) << 23) + half) >> kDropped;
  const std::uint32_t rounded = magnitude < kLeastNormal ? small : normal;
  const std::uint32_t kept = rounded < kBeyond ? rounded : kBeyond;
  const std::uint32_t result = (bits >> 24 & 0x80u) | kept;
  return static_cast<std::uint8_t>(magnitude > 0x7f800000u ? 0x7fu : result);
}

// `kBeyond` and greater patterns are no numbers; the first is infinity if kHasInfinity.
template <int kMantissa, std::uint32_t kBeyond, bool kHasInfinity>
GANTRY_HD inline float float8_bits_to_float(std::uint8_t bits) {
  constexpr std::uint32_t kBias = (1u << (6 - kMantissa)) - 1;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80u) << 24;
  const std::uint32_t magnitude = bits & 0x7fu;
  // The pattern is a number of a float with a smaller exponent, or one below the normal floats.
  const float scale = float_from_bits((127 + 127 - kBias) << 23);
  const std::uint32_t number = float_bits(float_from_bits(magnitude << (23 - kMantissa)) * scale);
  const std::uint32_t other = kHasInfinity && magnitude == kBeyond ? 0x7f800000u : 0x7fc00000u;
  return float_from_bits(sign | (magnitude >= kBeyond ? other : number));
}

}  // namespace detail

/// OFP8 E4M3: a sign, four bits of exponent and three of fraction, for storage only. The largest
/// number is 448. There is no infinity, and NaN is 0x7f or 0xff.
///
/// A conversion from any other number rounds once, to nearest even. As in PyTorch a number that
/// rounds beyond 448 becomes NaN.
///
/// Layout equals CUDA's `__nv_fp8_e4m3` and PyTorch's `float8_e4m3fn`.
/// @since 0.3
struct float8_e4m3 {
  /// Sign, exponent and fraction.
  std::uint8_t bits = 0;

  float8_e4m3() = default;
  /// The nearest float8_e4m3; ties go to even.
  GANTRY_HD explicit float8_e4m3(float value)
      : bits(detail::float_to_float8_bits<3, 0x7f>(value)) {}
  template <detail::NumberButFloat T>
  GANTRY_HD explicit float8_e4m3(T value) : float8_e4m3(detail::rounded_to_odd(value)) {}
  /// The value as a float, which is exact.
  GANTRY_HD operator float() const { return detail::float8_bits_to_float<3, 0x7f, false>(bits); }

  /// Reinterprets 8 raw bits.
  GANTRY_HD static constexpr float8_e4m3 from_bits(std::uint8_t raw) {
    float8_e4m3 result;
    result.bits = raw;
    return result;
  }
};

/// OFP8 E5M2: a sign, five bits of exponent and two of fraction, for storage only. The largest
/// number is 57344. Infinity and NaN are those of IEEE 754.
///
/// A conversion from any other number rounds once, to nearest even. As in PyTorch a number that
/// rounds beyond 57344 becomes infinity.
///
/// Layout equals CUDA's `__nv_fp8_e5m2` and PyTorch's `float8_e5m2`.
/// @since 0.3
struct float8_e5m2 {
  /// Sign, exponent and fraction.
  std::uint8_t bits = 0;

  float8_e5m2() = default;
  /// The nearest float8_e5m2; ties go to even.
  GANTRY_HD explicit float8_e5m2(float value)
      : bits(detail::float_to_float8_bits<2, 0x7c>(value)) {}
  template <detail::NumberButFloat T>
  GANTRY_HD explicit float8_e5m2(T value) : float8_e5m2(detail::rounded_to_odd(value)) {}
  /// The value as a float, which is exact.
  GANTRY_HD operator float() const { return detail::float8_bits_to_float<2, 0x7c, true>(bits); }

  /// Reinterprets 8 raw bits.
  GANTRY_HD static constexpr float8_e5m2 from_bits(std::uint8_t raw) {
    float8_e5m2 result;
    result.bits = raw;
    return result;
  }
};

/// Writes the number as a float. Without these overloads the call would be ambiguous.
inline std::ostream& operator<<(std::ostream& out, float8_e4m3 value) {
  return out << static_cast<float>(value);
}
inline std::ostream& operator<<(std::ostream& out, float8_e5m2 value) {
  return out << static_cast<float>(value);
}

/// The number as fmt (version 10 or newer) formats it.
[[nodiscard]] inline float format_as(float8_e4m3 value) { return value; }
[[nodiscard]] inline float format_as(float8_e5m2 value) { return value; }

namespace detail {

template <class T>
concept Float8 = std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;

// The members that numeric_limits of both formats share.
class Float8Limits : public Float16Limits {
 public:
  static constexpr bool is_iec559 = false;
  static constexpr int digits10 = 0;
};

}  // namespace detail
}  // namespace gantry

/// The limits of float8_e4m3.
template <>
class std::numeric_limits<gantry::float8_e4m3> : public gantry::detail::Float8Limits {
 public:
  static constexpr bool has_infinity = false;
  static constexpr bool has_signaling_NaN = false;
  static constexpr int digits = 4;
  static constexpr int max_digits10 = 3;
  static constexpr int min_exponent = -5;
  static constexpr int min_exponent10 = -1;
  static constexpr int max_exponent = 9;
  static constexpr int max_exponent10 = 2;

  GANTRY_HD static constexpr gantry::float8_e4m3 min() noexcept {
    return gantry::float8_e4m3::from_bits(0x08);
  }
  GANTRY_HD static constexpr gantry::float8_e4m3 max() noexcept {
    return gantry::float8_e4m3::from_bits(0x7e);
  }
  GANTRY_HD static constexpr gantry::float8_e4m3 lowest() noexcept {
    return gantry::float8_e4m3::from_bits(0xfe);
  }
  GANTRY_HD static constexpr gantry::float8_e4m3 epsilon() noexcept {
    return gantry::float8_e4m3::from_bits(0x20);
  }
  GANTRY_HD static constexpr gantry::float8_e4m3 round_error() noexcept {
    return gantry::float8_e4m3::from_bits(0x30);
  }
  GANTRY_HD static constexpr gantry::float8_e4m3 infinity() noexcept { return {}; }
  GANTRY_HD static constexpr gantry::float8_e4m3 quiet_NaN() noexcept {
    return gantry::float8_e4m3::from_bits(0x7f);
  }
  GANTRY_HD static constexpr gantry::float8_e4m3 signaling_NaN() noexcept { return {}; }
  GANTRY_HD static constexpr gantry::float8_e4m3 denorm_min() noexcept {
    return gantry::float8_e4m3::from_bits(0x01);
  }
};

/// The limits of float8_e5m2.
template <>
class std::numeric_limits<gantry::float8_e5m2> : public gantry::detail::Float8Limits {
 public:
  static constexpr int digits = 3;
  static constexpr int max_digits10 = 2;
  static constexpr int min_exponent = -13;
  static constexpr int min_exponent10 = -4;
  static constexpr int max_exponent = 16;
  static constexpr int max_exponent10 = 4;

  GANTRY_HD static constexpr gantry::float8_e5m2 min() noexcept {
    return gantry::float8_e5m2::from_bits(0x04);
  }
  GANTRY_HD static constexpr gantry::float8_e5m2 max() noexcept {
    return gantry::float8_e5m2::from_bits(0x7b);
  }
  GANTRY_HD static constexpr gantry::float8_e5m2 lowest() noexcept {
    return gantry::float8_e5m2::from_bits(0xfb);
  }
  GANTRY_HD static constexpr gantry::float8_e5m2 epsilon() noexcept {
    return gantry::float8_e5m2::from_bits(0x34);
  }
  GANTRY_HD static constexpr gantry::float8_e5m2 round_error() noexcept {
    return gantry::float8_e5m2::from_bits(0x38);
  }
  GANTRY_HD static constexpr gantry::float8_e5m2 infinity() noexcept {
    return gantry::float8_e5m2::from_bits(0x7c);
  }
  GANTRY_HD static constexpr gantry::float8_e5m2 quiet_NaN() noexcept {
    return gantry::float8_e5m2::from_bits(0x7e);
  }
  GANTRY_HD static constexpr gantry::float8_e5m2 signaling_NaN() noexcept {
    return gantry::float8_e5m2::from_bits(0x7d);
  }
  GANTRY_HD static constexpr gantry::float8_e5m2 denorm_min() noexcept {
    return gantry::float8_e5m2::from_bits(0x01);
  }
};

/// A hash that is equal for equal numbers, also for 0 and -0.
template <gantry::detail::Float8 T>
struct std::hash<T> {
  std::size_t operator()(T value) const noexcept {
    return std::hash<float>{}(static_cast<float>(value));
  }
};
