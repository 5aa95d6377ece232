// What arg_reduce prefers, shared by the host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/accumulator.hpp"

namespace gantry::kernels {

// True if `a` goes before `b` wherever they stand; NaN goes before everything else.
template <class T>
GANTRY_HD bool beats(bool largest, T a, T b) {
  if (a != a) return b == b;
  return largest ? a > b : a < b;
}

// An element on its way to the end; index -1 is none.
template <class T>
struct Champion {
  T value;
  std::int64_t index;
};

// The one of two that goes first; of equal ones, that with the lower index.
template <class T>
GANTRY_HD Champion<T> winner(bool largest, const Champion<T>& a, const Champion<T>& b) {
  if (b.index < 0) return a;
  if (a.index < 0 || beats(largest, b.value, a.value)) return b;
  if (beats(largest, a.value, b.value)) return a;
  return a.index < b.index ? a : b;
}

// The winner as it is stored: every bit of it, but a valid bool.
template <class T>
GANTRY_HD T stored_winner(T element) {
  if constexpr (std::is_same_v<T, StoredBool>) {
    return T(static_cast<std::int64_t>(element));
  } else {
    return element;
  }
}

}  // namespace gantry::kernels
