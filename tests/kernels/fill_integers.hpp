// Arrays of small integers, so that sums and products are exact in every dtype.
#pragma once

#include <cstdint>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {

/// Fills with pseudo-random integers on [low, high).
inline void fill_integers(Array& array, std::uint32_t seed, int low, int high) {
  std::uint32_t state = seed;
  for (std::int64_t i = 0; i < array.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    const auto value = low + static_cast<int>((state >> 16) % static_cast<unsigned>(high - low));
    dispatch(array.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (is_floating_point(dtype_of<T>)) {
        array.set(i, T(static_cast<float>(value)));
      } else {
        array.set(i, static_cast<T>(value));
      }
    });
  }
}

}  // namespace gantry::testing
