#pragma once

#include <cstdint>
#include <type_traits>

#include <gantry/core/dtype.hpp>
#include <gantry/core/macros.hpp>

#include "kernels/convert.hpp"

namespace gantry {

namespace kernels {

// An element of bool memory. A byte other than 0 and 1, which is not a valid bool, counts as 1.
struct StoredBool {
  StoredBool() = default;
  GANTRY_HD explicit StoredBool(std::int64_t value) : byte(value != 0) {}
  GANTRY_HD operator std::int32_t() const { return byte != 0; }

  std::uint8_t byte;
};

}  // namespace kernels

template <>
inline constexpr DType dtype_of<kernels::StoredBool> = DType::bool_;

}  // namespace gantry

namespace gantry::kernels {

// The accumulator type for elements of type T: float for 16-bit floats and float, double for
// double, int64_t for integers and bool.
template <class T>
using AccumulatorType =
    std::conditional_t<std::is_same_v<T, double>, double,
                       std::conditional_t<is_floating_point(dtype_of<T>), float, std::int64_t>>;

// An accumulator converted to T, with one rounding. Integers wrap.
template <class T, class Acc>
GANTRY_HD T from_accumulator(Acc value) {
  if constexpr (std::is_same_v<T, bool>)
    return value != Acc(0);
  else
    return convert<T>(canonical(value));
}

// True unless `value`, an accumulator or an element, is infinite or NaN.
template <class T>
GANTRY_HD bool is_finite(T value) {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
    std::uint16_t bits;
    memcpy(&bits, &value, sizeof bits);
    constexpr unsigned kExponent = std::is_same_v<T, float16> ? 0x7c00u : 0x7f80u;
    return (bits & kExponent) != kExponent;
  } else if constexpr (std::is_floating_point_v<T>) {
    return value - value == 0;
  } else {
    return true;
  }
}

// a + b and a * b; integers wrap.
template <class Acc>
GANTRY_HD Acc wrapping_add(Acc a, Acc b) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    return static_cast<Acc>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}
template <class Acc>
GANTRY_HD Acc wrapping_multiply(Acc a, Acc b) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    return static_cast<Acc>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

// dispatch() with StoredBool in place of bool.
template <class F>
decltype(auto) dispatch_stored(DType dtype, F&& f) {
  return dispatch(dtype, [&f](auto tag) -> decltype(auto) {
    using T = typename decltype(tag)::type;
    return f(TypeTag<std::conditional_t<std::is_same_v<T, bool>, StoredBool, T>>{});
  });
}

}  // namespace gantry::kernels
