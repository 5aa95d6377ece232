// The order of elements as gantry documents it, written without keys; and elements that are hard
// to order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {

/// True if `a` is in front of `b` in ascending order: NaN is the largest.
template <class T>
bool is_before(T a, T b) {
  if constexpr (is_floating_point(dtype_of<T>)) {
    const auto x = static_cast<double>(a);
    const auto y = static_cast<double>(b);
    if (y != y) return x == x;
    return x < y;
  } else {
    return a < b;
  }
}

/// The positions of the elements in ascending or descending order. Equal elements keep theirs.
template <class T>
std::vector<std::int64_t> sorted_positions(const std::vector<T>& elements, bool descending) {
  std::vector<std::int64_t> order(elements.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const T x = elements[static_cast<std::size_t>(a)];
    const T y = elements[static_cast<std::size_t>(b)];
    return descending ? is_before(y, x) : is_before(x, y);
  });
  return order;
}

/// Fills with elements of all magnitudes, or with few different ones; NaNs and zeros of both signs
/// are among them.
inline void fill_unordered(Array& array, std::uint32_t seed, bool has_ties) {
  fill_random(array, seed);
  std::mt19937 random(seed);
  dispatch(array.dtype(), [&]<class T>(TypeTag<T>) {
    auto* elements = reinterpret_cast<T*>(array.bytes().data());
    for (std::int64_t i = 0; i < array.layout().elements; ++i) {
      const unsigned kind = random() % 16;
      if constexpr (is_floating_point(dtype_of<T>)) {
        if (has_ties) elements[i] = static_cast<T>(static_cast<float>(random() % 7) - 3.0f);
        if (kind == 0) elements[i] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
        if (kind == 1) elements[i] = static_cast<T>(-0.0f);
        if (kind == 2) elements[i] = static_cast<T>(0.0f);
        if (kind == 3) elements[i] = static_cast<T>(-std::numeric_limits<float>::infinity());
      } else if constexpr (!std::is_same_v<T, bool>) {
        if (has_ties) elements[i] = static_cast<T>(random() % 7);
      }
    }
  });
}

}  // namespace gantry::testing
