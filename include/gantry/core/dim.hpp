#pragma once

#include <algorithm>
#include <concepts>
#include <limits>
#include <type_traits>

#include <gantry/core/macros.hpp>

namespace gantry {

/// The number of one dimension; negative numbers count from the end.
///
/// Made implicitly from an integer (`t.sort(-1)`) or an unscoped enumerator, but not from a bool:
/// torch's `t.sort(true, -1)`, with `stable` first, does not compile. The operation that uses the
/// number checks it. A value beyond the range of int becomes the nearest int, which is no dimension
/// of any tensor.
/// Example: `const Tensor sorted = ones({2, 3}).sort(-1).values;  // along the last dim`
/// @since 0.3
class Dim {
 public:
  /// The number `value`, or the nearest int.
  template <std::integral T>
  requires(!std::same_as<T, bool>) constexpr Dim(T value) noexcept : value_(nearest(value)) {}
  template <class T>
  requires(std::is_enum_v<T>&& std::is_convertible_v<T, int>) constexpr Dim(T value) noexcept
      : Dim(+value) {}

  /// The number.
  constexpr operator int() const noexcept { return value_; }

 private:
  using Limits = std::numeric_limits<int>;

  template <class T>
  static constexpr int nearest(T value) noexcept {
    using Wide = std::common_type_t<T, std::conditional_t<std::is_signed_v<T>, int, unsigned>>;
    constexpr Wide lowest = std::is_signed_v<T> ? static_cast<Wide>(Limits::min()) : 0;
    constexpr Wide highest = Limits::max();
    return static_cast<int>(std::clamp<Wide>(value, lowest, highest));
  }

  int value_;
};

}  // namespace gantry
