#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <type_traits>
#include <version>
#if defined(__cpp_lib_format)
#include <format>
#endif

#include <gantry/core/float16_bits.hpp>

/// float16 and bfloat16 as number types of the standard library: numeric_limits, hash, common_type
/// and, where the library has it, formatter. Arithmetic on them is that of float, and
/// std::is_floating_point is false for both: its specializations are undefined.
/// @since 0.1
namespace gantry {

/// The number as fmt (version 10 or newer) formats it.
/// @since 0.3
[[nodiscard]] inline float format_as(float16 value) { return value; }
[[nodiscard]] inline float format_as(bfloat16 value) { return value; }

namespace detail {

// The members that numeric_limits of both formats share.
class Float16Limits {
 public:
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = true;
  static constexpr std::float_denorm_style has_denorm = std::denorm_present;
  static constexpr bool has_denorm_loss = false;
  static constexpr std::float_round_style round_style = std::round_to_nearest;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr int radix = 2;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;
};

template <class T>
concept Float16 = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

}  // namespace detail
}  // namespace gantry

/// The limits of float16, IEEE binary16.
template <>
class std::numeric_limits<gantry::float16> : public gantry::detail::Float16Limits {
 public:
  static constexpr bool is_iec559 = true;
  static constexpr int digits = 11;
  static constexpr int digits10 = 3;
  static constexpr int max_digits10 = 5;
  static constexpr int min_exponent = -13;
  static constexpr int min_exponent10 = -4;
  static constexpr int max_exponent = 16;
  static constexpr int max_exponent10 = 4;

  GANTRY_HD static constexpr gantry::float16 min() noexcept {
    return gantry::float16::from_bits(0x0400);
  }
  GANTRY_HD static constexpr gantry::float16 max() noexcept {
    return gantry::float16::from_bits(0x7bff);
  }
  GANTRY_HD static constexpr gantry::float16 lowest() noexcept {
    return gantry::float16::from_bits(0xfbff);
  }
  GANTRY_HD static constexpr gantry::float16 epsilon() noexcept {
    return gantry::float16::from_bits(0x1400);
  }
  GANTRY_HD static constexpr gantry::float16 round_error() noexcept {
    return gantry::float16::from_bits(0x3800);
  }
  GANTRY_HD static constexpr gantry::float16 infinity() noexcept {
    return gantry::float16::from_bits(0x7c00);
  }
  GANTRY_HD static constexpr gantry::float16 quiet_NaN() noexcept {
    return gantry::float16::from_bits(0x7e00);
  }
  GANTRY_HD static constexpr gantry::float16 signaling_NaN() noexcept {
    return gantry::float16::from_bits(0x7d00);
  }
  GANTRY_HD static constexpr gantry::float16 denorm_min() noexcept {
    return gantry::float16::from_bits(0x0001);
  }
};

/// The limits of bfloat16, which is no format of IEC 60559.
template <>
class std::numeric_limits<gantry::bfloat16> : public gantry::detail::Float16Limits {
 public:
  static constexpr bool is_iec559 = false;
  static constexpr int digits = 8;
  static constexpr int digits10 = 2;
  static constexpr int max_digits10 = 4;
  static constexpr int min_exponent = -125;
  static constexpr int min_exponent10 = -37;
  static constexpr int max_exponent = 128;
  static constexpr int max_exponent10 = 38;

  GANTRY_HD static constexpr gantry::bfloat16 min() noexcept {
    return gantry::bfloat16::from_bits(0x0080);
  }
  GANTRY_HD static constexpr gantry::bfloat16 max() noexcept {
    return gantry::bfloat16::from_bits(0x7f7f);
  }
  GANTRY_HD static constexpr gantry::bfloat16 lowest() noexcept {
    return gantry::bfloat16::from_bits(0xff7f);
  }
  GANTRY_HD static constexpr gantry::bfloat16 epsilon() noexcept {
    return gantry::bfloat16::from_bits(0x3c00);
  }
  GANTRY_HD static constexpr gantry::bfloat16 round_error() noexcept {
    return gantry::bfloat16::from_bits(0x3f00);
  }
  GANTRY_HD static constexpr gantry::bfloat16 infinity() noexcept {
    return gantry::bfloat16::from_bits(0x7f80);
  }
  GANTRY_HD static constexpr gantry::bfloat16 quiet_NaN() noexcept {
    return gantry::bfloat16::from_bits(0x7fc0);
  }
  GANTRY_HD static constexpr gantry::bfloat16 signaling_NaN() noexcept {
    return gantry::bfloat16::from_bits(0x7fa0);
  }
  GANTRY_HD static constexpr gantry::bfloat16 denorm_min() noexcept {
    return gantry::bfloat16::from_bits(0x0001);
  }
};

/// A hash that is equal for equal numbers, also for 0 and -0.
template <gantry::detail::Float16 T>
struct std::hash<T> {
  std::size_t operator()(T value) const noexcept {
    return std::hash<float>{}(static_cast<float>(value));
  }
};

/// The type of a sum: float, or the wider of float and the other type.
/// @{
template <gantry::detail::Float16 T, class Number>
requires std::is_arithmetic_v<Number>
struct std::common_type<T, Number> {
  using type = decltype(0.0F + Number());
};
template <class Number, gantry::detail::Float16 T>
requires std::is_arithmetic_v<Number>
struct std::common_type<Number, T> : std::common_type<T, Number> {
};
template <>
struct std::common_type<gantry::float16, gantry::bfloat16> {
  using type = float;
};
template <>
struct std::common_type<gantry::bfloat16, gantry::float16> {
  using type = float;
};
/// @}

#if defined(__cpp_lib_format)
/// Formats the number as a float.
template <gantry::detail::Float16 T, class Char>
struct std::formatter<T, Char> : std::formatter<float, Char> {
  template <class Context>
  auto format(T value, Context& context) const {
    return std::formatter<float, Char>::format(static_cast<float>(value), context);
  }
};
#endif
