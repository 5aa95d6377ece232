#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/strided.hpp"

namespace gantry::kernels::host {

// The dim of `plan` along which the input is dense while the output is not; 0 if there is none.
// Operand 0 is the output, operand 1 the input.
inline int transposed_dim(const StridedPlan<2>& plan) {
  if (plan.strides[0][0] != 1 || plan.strides[0][1] == 1) return 0;
  for (int dim = 1; dim < plan.ndim; ++dim) {
    if (plan.strides[dim][1] == 1) return dim;
  }
  return 0;
}

// Copies up to kTile x kTile words: out[i + j * out_stride] = in[i * in_stride + j].
template <int kTile, class W>
void transpose_tile(W* out, std::int64_t out_stride, const W* in, std::int64_t in_stride,
                    std::int64_t height, std::int64_t width) {
  W tile[kTile][kTile + 64 / sizeof(W)];  // a column is spread over the sets of the cache
  for (std::int64_t i = 0; i < height; ++i) {
    std::memcpy(tile[i], in + i * in_stride, static_cast<std::size_t>(width) * sizeof(W));
  }
  for (std::int64_t j = 0; j < width; ++j) {
    W* to = out + j * out_stride;
    if (height == kTile) {
      for (int i = 0; i < kTile; ++i) to[i] = tile[i][j];
    } else {
      for (std::int64_t i = 0; i < height; ++i) to[i] = tile[i][j];
    }
  }
}

// Copies `rows` x `columns` words: out[i + j * out_stride] = in[i * in_stride + j].
//
// A tile of both sides stays in the first cache, so each line of it is read and written once. Each
// row of a large matrix is on another page: the tiles of one block share their pages.
template <class W>
void transpose_words(W* out, std::int64_t out_stride, const W* in, std::int64_t in_stride,
                     std::int64_t rows, std::int64_t columns) {
  constexpr int kTile = sizeof(W) == 8 ? 32 : 64;
  constexpr std::int64_t kBlock = 4 * kTile;
  for (std::int64_t block = 0; block < rows; block += kBlock) {
    const std::int64_t block_end = std::min(block + kBlock, rows);
    for (std::int64_t column = 0; column < columns; column += kTile) {
      for (std::int64_t row = block; row < block_end; row += kTile) {
        transpose_tile<kTile>(out + row + column * out_stride, out_stride,
                              in + row * in_stride + column, in_stride,
                              std::min<std::int64_t>(kTile, block_end - row),
                              std::min<std::int64_t>(kTile, columns - column));
      }
    }
  }
}

// Copies as `plan` says, tile by tile. Precondition: dim == transposed_dim(plan) > 0.
template <class W>
void copy_transposed(const StridedPlan<2>& plan, int dim, W* out, const W* in) {
  std::int64_t index[kMaxDims] = {};
  const std::int64_t step = plan.sizes[0] * plan.sizes[dim];
  for (std::int64_t done = 0; done < plan.numel; done += step) {
    transpose_words(out, plan.strides[dim][0], in, plan.strides[0][1], plan.sizes[0],
                    plan.sizes[dim]);
    for (int other = 1; other < plan.ndim; ++other) {
      if (other == dim) continue;
      out += plan.strides[other][0];
      in += plan.strides[other][1];
      if (++index[other] < plan.sizes[other]) break;
      out -= plan.strides[other][0] * plan.sizes[other];
      in -= plan.strides[other][1] * plan.sizes[other];
      index[other] = 0;
    }
  }
}

}  // namespace gantry::kernels::host
