// Expected results of kernels, computed element by element.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {

// Long enough for vector accesses and a remainder.
inline const Shape kLine = {1027};

template <class T>
inline constexpr bool kIsFloating = is_floating_point(dtype_of<T>);

// An exact result rounded to T: f16 and bf16 go through f32.
template <class T>
T rounded(double exact) {
  if constexpr (std::is_same_v<T, double>)
    return exact;
  else
    return T(static_cast<float>(exact));
}

template <class T>
T wrapped(__int128 exact) {
  if constexpr (std::is_same_v<T, bool>)
    return exact != 0;
  else
    return static_cast<T>(exact);
}

template <class T>
std::uint64_t bits_of(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// The expected bits. A computed NaN is the positive quiet NaN.
template <class T>
std::uint64_t expected_bits(T value) {
  if constexpr (kIsFloating<T>) {
    if (std::isnan(static_cast<double>(value))) {
      return std::is_same_v<T, double>  ? 0x7ff8000000000000u
             : std::is_same_v<T, float> ? 0x7fc00000u
                                        : 0x7fffu;
    }
  }
  return bits_of(value);
}

// An output and random inputs, contiguous.
inline std::vector<Array> random_arrays(DType out, std::initializer_list<DType> inputs,
                                        std::uint32_t seed) {
  std::vector<Array> arrays{Array(out, contiguous(kLine))};
  for (const DType dtype : inputs) {
    arrays.emplace_back(dtype, contiguous(kLine));
    fill_random(arrays.back(), seed++);
  }
  return arrays;
}

}  // namespace gantry::testing
