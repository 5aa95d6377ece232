// Short vectors of the host, in the form of g++ and clang++.
#pragma once

#include <cstdint>
#include <utility>

namespace gantry::kernels::host {

// Vectors of 16 bytes, which every processor has.
inline constexpr int kShortBytes = 16;
template <class T>
struct ShortVector {
  typedef T Type __attribute__((vector_size(kShortBytes)));
  static constexpr int kLanes = kShortBytes / sizeof(T);
};
template <class T>
inline constexpr int kShortLanes = ShortVector<T>::kLanes;

namespace detail {

// The lanes of `a` and `b` in turns, from lane kFirst of each.
template <int kFirst, class Vector, int... k>
void interleave(Vector& out, const Vector& a, const Vector& b, std::integer_sequence<int, k...>) {
  constexpr int kLanes = sizeof...(k);
  out = __builtin_shufflevector(a, b, (kFirst + k / 2 + k % 2 * kLanes)...);
}

}  // namespace detail

// Makes rows of columns. Each round interleaves rows that are half of the matrix apart.
template <class T>
void transpose_lanes(typename ShortVector<T>::Type (&rows)[kShortLanes<T>]) {
  constexpr int kLanes = kShortLanes<T>;
  constexpr auto kSequence = std::make_integer_sequence<int, kLanes>{};
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    typename ShortVector<T>::Type mixed[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      detail::interleave<0>(mixed[2 * i], rows[i], rows[i + kLanes / 2], kSequence);
      detail::interleave<kLanes / 2>(mixed[2 * i + 1], rows[i], rows[i + kLanes / 2], kSequence);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = mixed[i];
  }
}

}  // namespace gantry::kernels::host
