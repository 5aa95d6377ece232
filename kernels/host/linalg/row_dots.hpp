// Dot products of the rows of a matrix with one vector.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <gantry/core/dtype.hpp>

namespace gantry::kernels::host {

// Note [Order of a row's sum]
// Lane l of a vector of 64 bytes adds the products at l, l + kLanes, l + 2 kLanes …; neighbours
// among the lanes are then added pairwise, the least distance first. So the bits depend on neither
// the processor nor the number of rows.
template <class Acc>
struct WideVector {
  static constexpr int kLanes = 64 / sizeof(Acc);
  typedef Acc Type __attribute__((vector_size(64)));
  using Bits = std::conditional_t<sizeof(Acc) == 4, std::uint32_t, std::uint64_t>;
  typedef Bits Mask __attribute__((vector_size(64)));
};

// Rows of `depth` contiguous elements, `stride` elements apart.
template <class T>
struct DenseRows {
  const T* data = nullptr;
  std::int64_t count = 0;
  std::int64_t stride = 0;
  std::int64_t depth = 0;

  // True if a whole vector at the end of `row` ends within these rows' memory.
  template <class Acc>
  bool has_memory_behind(std::int64_t row) const {
    constexpr std::int64_t kLanes = WideVector<Acc>::kLanes;
    return stride == depth && (row + 1) * depth + kLanes <= count * depth;
  }
};

namespace detail {

template <class Acc, class T>
void load_wide(typename WideVector<Acc>::Type& out, const T* from) {
  if constexpr (std::is_same_v<T, Acc>) {
    std::memcpy(&out, from, sizeof out);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    typedef std::uint16_t Halves __attribute__((vector_size(32)));
    Halves halves;
    std::memcpy(&halves, from, sizeof halves);
    typename WideVector<float>::Mask bits;
    bits = __builtin_convertvector(halves, typename WideVector<float>::Mask) << 16;
    std::memcpy(&out, &bits, sizeof out);
  } else {
    Acc lanes[WideVector<Acc>::kLanes];
    for (int l = 0; l < WideVector<Acc>::kLanes; ++l) lanes[l] = static_cast<Acc>(from[l]);
    std::memcpy(&out, lanes, sizeof out);
  }
}

// The last `left` elements of a row, and zeros.
template <class Acc, class T>
void load_rest(typename WideVector<Acc>::Type& out, const T* from, std::int64_t left,
               bool may_read_on, const typename WideVector<Acc>::Mask& mask) {
  if (may_read_on) {
    load_wide<Acc>(out, from);
    typename WideVector<Acc>::Mask bits;
    std::memcpy(&bits, &out, sizeof bits);
    bits &= mask;
    std::memcpy(&out, &bits, sizeof out);
  } else {
    Acc lanes[WideVector<Acc>::kLanes] = {};
    for (std::int64_t l = 0; l < left; ++l) lanes[l] = static_cast<Acc>(from[l]);
    std::memcpy(&out, lanes, sizeof out);
  }
}

// The sums of kRows rows in lanes, from `first` on.
template <int kRows, class Acc, class T>
void sum_in_lanes(typename WideVector<Acc>::Type* sums, const DenseRows<T>& rows,
                  std::int64_t first, const Acc* vector,
                  const typename WideVector<Acc>::Mask& mask) {
  using Vector = typename WideVector<Acc>::Type;
  constexpr std::int64_t kLanes = WideVector<Acc>::kLanes;
  Vector sum[kRows] = {};
  const T* from[kRows];
  for (int r = 0; r < kRows; ++r) from[r] = rows.data + (first + r) * rows.stride;
  std::int64_t k = 0;
  for (; k + kLanes <= rows.depth; k += kLanes) {
    Vector factor;
    std::memcpy(&factor, vector + k, sizeof factor);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      Vector row;
      load_wide<Acc>(row, from[r] + k);
      sum[r] += row * factor;
    }
  }
  if (k < rows.depth) {
    const bool may_read_on = rows.template has_memory_behind<Acc>(first + kRows - 1);
    Vector factor;
    std::memcpy(&factor, vector + k, sizeof factor);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      Vector row;
      load_rest<Acc>(row, from[r] + k, rows.depth - k, may_read_on, mask);
      sum[r] += row * factor;
    }
  }
  for (int r = 0; r < kRows; ++r) sums[r] = sum[r];
}

// The sums in lanes of as many rows as there are lanes, from `first` on: kWhole vectors each and a
// rest, which is read with the memory behind it. All of them are in registers.
template <int kWhole, class Acc, class T>
void sum_short_rows(typename WideVector<Acc>::Type* sums, const DenseRows<T>& rows,
                    std::int64_t first, const Acc* vector,
                    const typename WideVector<Acc>::Mask& mask) {
  using Vector = typename WideVector<Acc>::Type;
  constexpr int kLanes = WideVector<Acc>::kLanes;
  Vector factors[kWhole + 1];
  std::memcpy(factors, vector, sizeof factors);
  const T* from = rows.data + first * rows.stride;
#pragma GCC unroll 16
  for (int r = 0; r < kLanes; ++r, from += rows.stride) {
    Vector sum{};
#pragma GCC unroll 2
    for (int k = 0; k < kWhole; ++k) {
      Vector part;
      load_wide<Acc>(part, from + k * kLanes);
      sum += part * factors[k];
    }
    Vector rest;
    load_wide<Acc>(rest, from + kWhole * kLanes);
    typename WideVector<Acc>::Mask bits;
    std::memcpy(&bits, &rest, sizeof bits);
    bits &= mask;
    std::memcpy(&rest, &bits, sizeof rest);
    sums[r] = sum + rest * factors[kWhole];
  }
}

// Lane i of the result is a[i] + a[i ^ kStep] where i has no bit kStep, else the same of b.
template <int kStep, class Vector, int... i>
void add_neighbours(Vector& out, const Vector& a, const Vector& b,
                    std::integer_sequence<int, i...>) {
  constexpr int kLanes = sizeof...(i);
  const Vector even =
      __builtin_shufflevector(a, b, ((i & kStep) == 0 ? i : kLanes + (i ^ kStep))...);
  const Vector odd =
      __builtin_shufflevector(a, b, ((i & kStep) == 0 ? (i ^ kStep) : kLanes + i)...);
  out = even + odd;
}

// sums[0] has in lane r the sum of the lanes of sums[r].
template <class Acc, int kStep = 1>
void add_lanes(typename WideVector<Acc>::Type* sums) {
  constexpr int kLanes = WideVector<Acc>::kLanes;
  if constexpr (kStep < kLanes) {
#pragma GCC unroll 8
    for (int pair = 0; pair < kLanes / kStep / 2; ++pair) {
      typename WideVector<Acc>::Type sum;
      add_neighbours<kStep>(sum, sums[2 * pair], sums[2 * pair + 1],
                            std::make_integer_sequence<int, kLanes>{});
      sums[pair] = sum;
    }
    add_lanes<Acc, kStep * 2>(sums);
  }
}

}  // namespace detail

// out[i] = the sum of rows[i][k] vector[k] over k. Zeros follow `vector` up to a whole number of
// lanes.
template <class Acc, class T>
void multiply_rows(Acc* out, const DenseRows<T>& rows, const Acc* vector) {
  using Wide = WideVector<Acc>;
  constexpr std::int64_t kLanes = Wide::kLanes;
  constexpr int kAtOnce = 4;
  typename Wide::Mask mask{};
  for (std::int64_t l = 0; l < rows.depth % kLanes; ++l) mask[l] = ~typename Wide::Bits(0);
  const bool is_short = rows.depth < 2 * kLanes && rows.depth % kLanes != 0;
  for (std::int64_t first = 0; first < rows.count; first += kLanes) {
    const std::int64_t count = std::min(kLanes, rows.count - first);
    typename Wide::Type sums[kLanes];
    std::int64_t r = 0;
    if (is_short && rows.template has_memory_behind<Acc>(first + kLanes - 1)) {
      rows.depth < kLanes ? detail::sum_short_rows<0>(sums, rows, first, vector, mask)
                          : detail::sum_short_rows<1>(sums, rows, first, vector, mask);
      r = kLanes;
    }
    for (; r + kAtOnce <= count; r += kAtOnce) {
      detail::sum_in_lanes<kAtOnce>(sums + r, rows, first + r, vector, mask);
    }
    for (; r < count; ++r) detail::sum_in_lanes<1>(sums + r, rows, first + r, vector, mask);
    for (std::int64_t empty = count; empty < kLanes; ++empty) sums[empty] = typename Wide::Type{};
    detail::add_lanes<Acc>(sums);
    std::memcpy(out + first, sums, static_cast<std::size_t>(count) * sizeof(Acc));
  }
}

}  // namespace gantry::kernels::host
