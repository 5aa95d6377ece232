#pragma once

#include <cstdint>
#include <type_traits>

#include <gantry/core/dtype.hpp>
#include <gantry/core/macros.hpp>
#include <gantry/core/scalar.hpp>

namespace gantry::kernels {

// A float that is stored in less than 32 bits, and computed with as float.
template <class T>
inline constexpr bool kIsNarrowFloat =
    std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float8_e4m3> ||
    std::is_same_v<T, float8_e5m2>;

// The signed integers as wide as u16, u32 and u64; else `dtype` itself.
GANTRY_HD constexpr DType signed_twin(DType dtype) {
  return dtype == DType::u16   ? DType::i16
         : dtype == DType::u32 ? DType::i32
         : dtype == DType::u64 ? DType::i64
                               : dtype;
}

namespace detail {

template <class T>
struct ComputeTypeOf {
  using type = T;
};
template <>
struct ComputeTypeOf<bool> {
  using type = std::int32_t;
};
template <>
struct ComputeTypeOf<std::uint8_t> {
  using type = std::int32_t;
};
template <>
struct ComputeTypeOf<std::int8_t> {
  using type = std::int32_t;
};
template <>
struct ComputeTypeOf<std::int16_t> {
  using type = std::int32_t;
};
template <>
struct ComputeTypeOf<float16> {
  using type = float;
};
template <>
struct ComputeTypeOf<bfloat16> {
  using type = float;
};
template <>
struct ComputeTypeOf<float8_e4m3> {
  using type = float;
};
template <>
struct ComputeTypeOf<float8_e5m2> {
  using type = float;
};

// 2^bits as a floating-point number.
template <class F>
GANTRY_HD constexpr F power_of_two(int bits) {
  F result = 1;
  for (int i = 0; i < bits; ++i) result *= 2;
  return result;
}

}  // namespace detail

// The arithmetic type for elements of type T: int32_t for narrow integers and bool, float for
// narrow floats, else T. Stores truncate narrow integers, which is wrapping arithmetic.
template <class T>
using ComputeType = typename detail::ComputeTypeOf<T>::type;

// Note [Canonical NaN]
// x86 returns the NaN of the first operand, and a GPU returns its canonical NaN. gantry replaces
// computed NaNs by the positive quiet NaN, so results have the same bits on every platform.
template <class T>
GANTRY_HD inline T canonical(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return value == value ? value : ::gantry::detail::float_from_bits(0x7fc00000u);
  } else if constexpr (std::is_same_v<T, double>) {
    if (value == value) return value;
    const std::uint64_t bits = 0x7ff8000000000000u;
    double nan;
    memcpy(&nan, &bits, sizeof nan);
    return nan;
  } else {
    return value;
  }
}

// Converts `value` to To. Float to integer truncates toward zero and saturates; NaN gives 0.
// Integers wrap. Conversion to bool tests for non-zero. A narrower float rounds to nearest even,
// once.
template <class To, class From>
GANTRY_HD inline To convert(From value) {
  if constexpr (kIsNarrowFloat<From>) {
    if constexpr (std::is_same_v<To, From>) {
      return value;
    } else {
      return convert<To>(static_cast<float>(value));
    }
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (kIsNarrowFloat<To>) {
    return To(value);
  } else if constexpr (std::is_floating_point_v<To>) {
    return canonical(static_cast<To>(value));
  } else if constexpr (std::is_floating_point_v<From>) {
    constexpr int kBits = static_cast<int>(sizeof(To)) * 8 - (std::is_signed_v<To> ? 1 : 0);
    constexpr From kLimit = detail::power_of_two<From>(kBits);
    constexpr To kLowest =
        std::is_signed_v<To> ? static_cast<To>(To(1) << (sizeof(To) * 8 - 1)) : To(0);
    constexpr To kHighest = static_cast<To>(~kLowest);
    const bool high = value >= kLimit;
    const bool low = std::is_signed_v<To> ? value <= -kLimit : value <= From(0);
    const bool inside = !high && !low && value == value;
    const To truncated = static_cast<To>(inside ? value : From(0));
    return high ? kHighest : low ? kLowest : truncated;
  } else {
    return static_cast<To>(value);
  }
}

// `number` in the compute type of T. Integers wrap at T's width.
template <class T>
ComputeType<T> number_as(const Scalar& number) {
  const auto stored = [&](auto value) {
    if constexpr (kIsNarrowFloat<T>) {
      return convert<float>(value);
    } else {
      return static_cast<ComputeType<T>>(convert<T>(value));
    }
  };
  return number.category() == DTypeCategory::floating ? stored(number.to<double>())
                                                      : stored(number.to<std::int64_t>());
}

}  // namespace gantry::kernels
