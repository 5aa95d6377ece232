#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string_view>

#include <gantry/core/dtype.hpp>
#include <gantry/core/export.hpp>

namespace gantry {

class Scalar;

namespace detail {
// "u8", "i32", "f16", …: a type as errors name it.
template <class T>
inline constexpr std::string_view number_name = [] {
  if constexpr (std::same_as<T, bool> || std::same_as<T, float16> || std::same_as<T, bfloat16>) {
    return std::same_as<T, bool> ? "bool" : std::same_as<T, float16> ? "f16" : "bf16";
  } else if constexpr (Float8<T>) {
    return std::same_as<T, float8_e4m3> ? "f8e4m3" : "f8e5m2";
  } else {
    constexpr int kBits = static_cast<int>(sizeof(T)) * 8;
    if (std::floating_point<T>) return kBits == 32 ? "f32" : kBits == 64 ? "f64" : "long double";
    if (std::signed_integral<T>) {
      return kBits == 8 ? "i8" : kBits == 16 ? "i16" : kBits == 32 ? "i32" : "i64";
    }
    return kBits == 8 ? "u8" : kBits == 16 ? "u16" : kBits == 32 ? "u32" : "u64";
  }
}();

// Throw InvalidArgument.
[[noreturn]] GANTRY_API void throw_not_convertible(const Scalar& value, std::string_view type);
[[noreturn]] GANTRY_API void throw_too_large(std::uint64_t value);

template <std::integral T>
std::int64_t checked_integer(T value) {
  if constexpr (std::unsigned_integral<T> && sizeof(T) >= sizeof(std::int64_t)) {
    constexpr auto kHighest = static_cast<T>(std::numeric_limits<std::int64_t>::max());
    if (value > kHighest) throw_too_large(static_cast<std::uint64_t>(value));
  }
  return static_cast<std::int64_t>(value);
}
}  // namespace detail

/// A C++ number as argument of a tensor operation. It keeps the value and the category, not the C++
/// type.
///
/// Made implicitly from any arithmetic type. In type promotion, a tensor of the same or a higher
/// category determines the dtype. Throws: InvalidArgument for unsigned integers from 2^63 on.
/// @code
/// const Scalar two = 2;
/// const Tensor x = full({3}, two, f32);
/// const auto value = two.to<double>();
/// @endcode
/// @since 0.1
class GANTRY_API Scalar {
 public:
  Scalar() : Scalar(0) {}
  /// A boolean, an integer or a floating-point number, by the type of `value`.
  Scalar(bool value) : category_(DTypeCategory::boolean), integer_(value), real_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Scalar(T value)
      : category_(DTypeCategory::integral),
        integer_(detail::checked_integer(value)),
        real_(static_cast<double>(value)) {}
  template <std::floating_point T>
  Scalar(T value)
      : category_(DTypeCategory::floating), integer_(0), real_(static_cast<double>(value)) {}
  Scalar(float16 value) : Scalar(static_cast<float>(value)) {}
  Scalar(bfloat16 value) : Scalar(static_cast<float>(value)) {}
  Scalar(float8_e4m3 value) : Scalar(static_cast<float>(value)) {}
  Scalar(float8_e5m2 value) : Scalar(static_cast<float>(value)) {}

  /// boolean, integral or floating.
  [[nodiscard]] DTypeCategory category() const noexcept { return category_; }
  /// The type that a 0-dim tensor made of this number gets: bool, i64 or f32.
  [[nodiscard]] DType default_dtype() const noexcept;
  /// True if to<T>() does not throw. The rules are PyTorch's:
  ///  - a number beyond T's range does not fit, and NaN and infinity do not fit integers;
  ///  - infinity does not fit float8_e4m3, which has none;
  ///  - a number with a fraction fits an integer, which drops the fraction;
  ///  - a negative integer fits an unsigned T if its magnitude does, and wraps;
  ///  - everything fits bool.
  template <class T>
  [[nodiscard]] bool fits() const noexcept;
  /// The value converted to T with C++'s rules. Throws: InvalidArgument unless it fits.
  template <class T>
  [[nodiscard]] T to() const {
    if (!fits<T>()) detail::throw_not_convertible(*this, detail::number_name<T>);
    if (category_ == DTypeCategory::floating) {
      return static_cast<T>(real_);
    } else {
      return static_cast<T>(integer_);
    }
  }

 private:
  DTypeCategory category_;
  std::int64_t integer_;
  double real_;
};

template <class T>
bool Scalar::fits() const noexcept {
  if constexpr (std::same_as<T, bool>) {
    return true;
  } else if constexpr (std::integral<T>) {
    using Limits = std::numeric_limits<T>;
    if (category_ == DTypeCategory::floating) {
      // 2^63 is the double next to the largest i64, which no double holds.
      constexpr double kBeyond = static_cast<double>(Limits::max() / 2 + 1) * 2;
      return real_ >= static_cast<double>(Limits::lowest()) && real_ < kBeyond &&
             (sizeof(T) == 8 || real_ <= static_cast<double>(Limits::max()));
    }
    if constexpr (std::signed_integral<T>) {
      return integer_ >= Limits::lowest() && integer_ <= Limits::max();
    } else {
      const std::uint64_t size = integer_ < 0
                                     ? std::uint64_t{0} - static_cast<std::uint64_t>(integer_)
                                     : static_cast<std::uint64_t>(integer_);
      return size <= Limits::max();
    }
  } else {
    double highest = 65504;  // f16
    if constexpr (std::same_as<T, bfloat16>) highest = 0x1.FEp127;
    if constexpr (std::same_as<T, float8_e4m3>) highest = 448;
    if constexpr (std::same_as<T, float8_e5m2>) highest = 57344;
    if constexpr (std::floating_point<T>) {
      highest = static_cast<double>(
          std::min<long double>(std::numeric_limits<T>::max(), std::numeric_limits<double>::max()));
    }
    const double size = real_ < 0 ? -real_ : real_;
    return !(size > highest) ||
           (size > std::numeric_limits<double>::max() && !std::same_as<T, float8_e4m3>);
  }
}

/// Writes the number; booleans as "true" and "false".
GANTRY_API std::ostream& operator<<(std::ostream& out, const Scalar& scalar);

}  // namespace gantry
