// Expected results of reductions and scans: arithmetic, and the elements of each output.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/kernels/kernel_arrays.hpp"

namespace gantry::testing {

// The accumulator type.
template <class T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, double>, double,
                       std::conditional_t<is_floating_point(dtype_of<T>), float, std::int64_t>>;

template <class Acc>
Acc add(Acc a, Acc b) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    return static_cast<Acc>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <class Acc>
Acc multiply(Acc a, Acc b) {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    return static_cast<Acc>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

// The sizes of the output: 1 along the dims whose bit is set in `mask`.
inline Shape reduced_sizes(const Shape& sizes, unsigned mask) {
  Shape result = sizes;
  for (int d = 0; d < sizes.size(); ++d) {
    if (mask >> d & 1) result[d] = 1;
  }
  return result;
}

// For every output, the row-major indices of its elements, in order.
inline std::vector<std::vector<std::int64_t>> members(const Shape& sizes, unsigned mask) {
  const Shape out = reduced_sizes(sizes, mask);
  std::vector<std::vector<std::int64_t>> result(static_cast<std::size_t>(out.product()));
  for (std::int64_t i = 0; i < sizes.product(); ++i) {
    std::int64_t rest = i;
    std::int64_t output = 0;
    std::int64_t stride = 1;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      if (!(mask >> d & 1)) {
        output += rest % sizes[d] * stride;
        stride *= sizes[d];
      }
      rest /= sizes[d];
    }
    result[static_cast<std::size_t>(output)].push_back(i);
  }
  return result;
}

// So many short rows that a GPU reduces them in tiles: lengths around the packs, the groups of
// threads and the longest row of a tile.
inline std::vector<Shape> many_short_rows() {
  return {{34000, 9},   {34000, 20}, {20000, 32}, {34000, 63}, {17000, 64},
          {17000, 127}, {9000, 130}, {4500, 257}, {4400, 512}, {2200, 513}};
}

// Rows that lie 16 elements further apart than they are long.
inline Layout padded_rows(const Shape& sizes) {
  Layout layout = contiguous(sizes);
  layout.name = "padded";
  layout.strides[0] += 16;
  layout.elements += sizes[0] * 16;
  return layout;
}

// Bool memory with arbitrary bytes, and the same memory with 1 in place of non-zero bytes.
inline std::pair<Array, Array> loose_and_strict_bools(const Layout& layout) {
  std::pair<Array, Array> arrays{Array(bool_, layout), Array(bool_, layout)};
  for (std::int64_t i = 0; i < layout.numel(); ++i) {
    const auto byte = static_cast<std::uint8_t>(i % 3 == 0 ? 0 : i * 37);
    arrays.first.set(i, byte);
    arrays.second.set(i, static_cast<std::uint8_t>(byte != 0));
  }
  return arrays;
}

}  // namespace gantry::testing
