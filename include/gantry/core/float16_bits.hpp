#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <type_traits>

#include <gantry/core/macros.hpp>

/// The 16-bit floats without what the standard library asks of number types, which float16.hpp
/// adds: include that. Programs of jit::elementwise share this file.
/// @since 0.1
namespace gantry {

namespace detail {

GANTRY_HD inline std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

GANTRY_HD inline float float_from_bits(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Note [16-bit floats]
// A float is rounded to the nearest 16-bit float, ties to even. The GPU does so by its conversion
// instructions, the host in integer arithmetic. Both give the same bits. Every NaN becomes the
// canonical quiet NaN 0x7fff. In the other direction a NaN stays a NaN, but its bits depend on the
// platform.
GANTRY_HD inline std::uint16_t float_to_half_bits(float value) {
  if constexpr (GANTRY_GPU_ARCH > 0) {
    std::uint16_t half = 0;
    GANTRY_PTX("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
  } else {
    const std::uint32_t bits = float_bits(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fffu;
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
      if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);
      const std::uint32_t shift = 126u - (magnitude >> 23);
      const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint32_t half = mantissa >> shift;
      const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
      const std::uint32_t tie = 1u << (shift - 1u);
      const std::uint32_t up = (rest > tie || (rest == tie && (half & 1u))) ? 1u : 0u;
      return static_cast<std::uint16_t>(sign | (half + up));
    }
    const std::uint32_t rebased = magnitude - 0x38000000u;
    const std::uint32_t rounded = rebased + 0xfffu + ((rebased >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (rounded >> 13));
  }
}

GANTRY_HD inline float half_bits_to_float(std::uint16_t half) {
  if constexpr (GANTRY_GPU_ARCH > 0) {
    float value = 0;
    GANTRY_PTX("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
  } else {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u)
      return float_from_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x400u) return float_from_bits(sign | ((magnitude << 13) + 0x38000000u));
    const float subnormal = static_cast<float>(magnitude) * 5.9604644775390625e-8f;
    return float_from_bits(sign | float_bits(subnormal));
  }
}

GANTRY_HD inline std::uint16_t float_to_bfloat_bits(float value) {
  if constexpr (GANTRY_GPU_ARCH >= 800) {
    std::uint16_t brain = 0;
    GANTRY_PTX("cvt.rn.bf16.f32 %0, %1;" : "=h"(brain) : "f"(value));
    return brain;
  } else {
    const std::uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}

// `value` if a float holds it exactly; else the neighbouring float whose last bit is set ("rounding
// to odd"). A float has at least two bits more than f16 and bf16. Values below, on and above a tie
// therefore stay distinct, and rounding the result to nearest even equals rounding `value`.
template <class From>
GANTRY_HD inline float rounded_to_odd(From value) {
  if constexpr (std::is_floating_point_v<From> && sizeof(From) > sizeof(float)) {
    const float nearest = static_cast<float>(value);
    const From back = nearest;
    const bool exact = back == value || value != value;
    const bool beyond = (back < 0 ? -back : back) > (value < 0 ? -value : value);
    const std::uint32_t toward_zero = float_bits(nearest) - (beyond ? 1u : 0u);
    return exact ? nearest : float_from_bits(toward_zero | 1u);
  } else if constexpr (std::is_integral_v<From> && sizeof(From) == 8) {
    // An f64 holds 53 bits, so the last 11 bits of a larger number are merged into one sticky bit.
    const From high = value >> 53;
    const From odd = (value & ~From(0x7ff)) | ((value & From(0x7ff)) != 0 ? From(0x800) : From(0));
    const bool is_large = high != 0 && high != From(-1);
    return rounded_to_odd(static_cast<double>(is_large ? odd : value));
  } else if constexpr (std::is_integral_v<From> && sizeof(From) == 4) {
    return rounded_to_odd(static_cast<double>(value));
  } else {
    return static_cast<float>(value);
  }
}

// Arithmetic types other than float.
template <class T>
concept NumberButFloat = std::is_arithmetic_v<T> && !std::is_same_v<T, float>;

// The other operand of a compound assignment: a number, or one of the classes below.
template <class T>
concept Operand16 = std::is_arithmetic_v<T> || requires(T value) {
  value.operator float();
};
template <Operand16 T>
GANTRY_HD inline auto widened(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return static_cast<float>(value);
  }
}

}  // namespace detail

/// IEEE binary16, for storage only: arithmetic converts to float.
///
/// A conversion from any other number rounds once, to nearest even.
///
/// Layout equals CUDA's `__half`.
/// @since 0.1
struct float16 {
  /// Sign, exponent and fraction.
  std::uint16_t bits = 0;

  float16() = default;
  /// The nearest float16; ties go to even.
  GANTRY_HD explicit float16(float value) : bits(detail::float_to_half_bits(value)) {}
  template <detail::NumberButFloat T>
  GANTRY_HD explicit float16(T value) : float16(detail::rounded_to_odd(value)) {}
  /// The value as a float, which is exact.
  GANTRY_HD operator float() const { return detail::half_bits_to_float(bits); }

  /// The result of the operation in float (or a wider type of `other`), rounded once.
  /// @{
  template <detail::Operand16 T>
  GANTRY_HD float16& operator+=(T other) {
    return *this = float16(static_cast<float>(*this) + detail::widened(other));
  }
  template <detail::Operand16 T>
  GANTRY_HD float16& operator-=(T other) {
    return *this = float16(static_cast<float>(*this) - detail::widened(other));
  }
  template <detail::Operand16 T>
  GANTRY_HD float16& operator*=(T other) {
    return *this = float16(static_cast<float>(*this) * detail::widened(other));
  }
  template <detail::Operand16 T>
  GANTRY_HD float16& operator/=(T other) {
    return *this = float16(static_cast<float>(*this) / detail::widened(other));
  }
  /// @}

  /// Reinterprets 16 raw bits.
  GANTRY_HD static constexpr float16 from_bits(std::uint16_t raw) {
    float16 result;
    result.bits = raw;
    return result;
  }
};

/// bfloat16: the upper half of an IEEE binary32, for storage only. Arithmetic and conversions are
/// those of float16.
///
/// Layout equals CUDA's `__nv_bfloat16`.
/// @since 0.1
struct bfloat16 {
  /// Sign, exponent and fraction.
  std::uint16_t bits = 0;

  bfloat16() = default;
  /// The nearest bfloat16; ties go to even.
  GANTRY_HD explicit bfloat16(float value) : bits(detail::float_to_bfloat_bits(value)) {}
  template <detail::NumberButFloat T>
  GANTRY_HD explicit bfloat16(T value) : bfloat16(detail::rounded_to_odd(value)) {}
  /// The value as a float, which is exact.
  GANTRY_HD operator float() const {
    return detail::float_from_bits(static_cast<std::uint32_t>(bits) << 16);
  }

  /// The result of the operation in float (or a wider type of `other`), rounded once.
  /// @{
  template <detail::Operand16 T>
  GANTRY_HD bfloat16& operator+=(T other) {
    return *this = bfloat16(static_cast<float>(*this) + detail::widened(other));
  }
  template <detail::Operand16 T>
  GANTRY_HD bfloat16& operator-=(T other) {
    return *this = bfloat16(static_cast<float>(*this) - detail::widened(other));
  }
  template <detail::Operand16 T>
  GANTRY_HD bfloat16& operator*=(T other) {
    return *this = bfloat16(static_cast<float>(*this) * detail::widened(other));
  }
  template <detail::Operand16 T>
  GANTRY_HD bfloat16& operator/=(T other) {
    return *this = bfloat16(static_cast<float>(*this) / detail::widened(other));
  }
  /// @}

  /// Reinterprets 16 raw bits.
  GANTRY_HD static constexpr bfloat16 from_bits(std::uint16_t raw) {
    bfloat16 result;
    result.bits = raw;
    return result;
  }
};

/// Writes the number as a float. Without these overloads the call would be ambiguous.
inline std::ostream& operator<<(std::ostream& out, float16 value) {
  return out << static_cast<float>(value);
}
inline std::ostream& operator<<(std::ostream& out, bfloat16 value) {
  return out << static_cast<float>(value);
}

}  // namespace gantry
