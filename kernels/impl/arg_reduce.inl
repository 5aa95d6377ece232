// The order and the state of argmax and argmin, shared by the host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/reductions/accumulator.hpp"

namespace gantry::kernels {

// True if the value `a` is preferred to `b`, whatever their indices. NaN precedes everything else.
template <class T>
GANTRY_HD bool precedes(bool largest, T a, T b) {
  if (a != a) return b == b;
  return largest ? a > b : a < b;
}

// The argmax state: the best element so far. Index -1: none.
template <class T>
struct ArgReduceState {
  T value;
  std::int64_t index;
};

// The element to store: unchanged, except that a bool byte becomes 0 or 1.
template <class T>
GANTRY_HD T stored_value(T element) {
  if constexpr (std::is_same_v<T, StoredBool>) {
    return T(static_cast<std::int64_t>(element));
  } else {
    return element;
  }
}

}  // namespace gantry::kernels
