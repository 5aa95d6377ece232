#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/host/lanes.hpp"
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

// A matrix of words and its transpose: out[i + j * out_stride] = in[i * in_stride + j].
template <class W>
struct Transposition {
  W* out;
  std::int64_t out_stride;
  const W* in;
  std::int64_t in_stride;
  std::int64_t rows;
  std::int64_t columns;

  static constexpr int kTile = sizeof(W) == 8 ? 32 : 64;

  W* out_at(std::int64_t row, std::int64_t column) const { return out + row + column * out_stride; }
  const W* in_at(std::int64_t row, std::int64_t column) const {
    return in + row * in_stride + column;
  }
};

// Copies one tile by way of `tile`, in which columns are spread over the sets of the cache. Fetches
// the next tile of that size, if there is one.
template <class W>
void transpose_tile(const Transposition<W>& words, std::int64_t row, std::int64_t column,
                    std::int64_t next_row, std::int64_t next_column) {
  constexpr int kTile = Transposition<W>::kTile;
  constexpr int kLanes = kShortLanes<W>;
  constexpr int kLineWords = 64 / sizeof(W);
  alignas(64) W tile[kTile][kTile + kLineWords];
  const std::int64_t height = std::min<std::int64_t>(kTile, words.rows - row);
  const std::int64_t width = std::min<std::int64_t>(kTile, words.columns - column);
  const bool has_next = next_row + kTile <= words.rows && next_column + kTile <= words.columns;
  const std::int64_t whole_height = height - height % kLanes;
  const std::int64_t whole_width = width - width % kLanes;
  for (std::int64_t i = 0; i < whole_height; i += kLanes) {
    for (std::int64_t j = 0; j < whole_width; j += kLanes) {
      typename ShortVector<W>::Type block[kLanes];
#pragma GCC unroll 16
      for (int k = 0; k < kLanes; ++k) {
        std::memcpy(&block[k], words.in_at(row + i + k, column + j), sizeof block[k]);
      }
      transpose_lanes<W>(block);
#pragma GCC unroll 16
      for (int k = 0; k < kLanes; ++k) std::memcpy(&tile[j + k][i], &block[k], sizeof block[k]);
    }
    if (has_next) {
      for (int k = 0; k < kLanes; ++k) {
        for (int j = 0; j < kTile; j += kLineWords) {
          __builtin_prefetch(words.in_at(next_row + i + k, next_column + j));
        }
      }
    }
    for (std::int64_t j = whole_width; j < width; ++j) {
      for (int k = 0; k < kLanes; ++k) tile[j][i + k] = *words.in_at(row + i + k, column + j);
    }
  }
  for (std::int64_t i = whole_height; i < height; ++i) {
    for (std::int64_t j = 0; j < width; ++j) tile[j][i] = *words.in_at(row + i, column + j);
  }
  for (std::int64_t j = 0; j < width; ++j) {
    W* to = words.out_at(row, column + j);
    if (height == kTile) {
      std::memcpy(to, tile[j], kTile * sizeof(W));
    } else {
      std::memcpy(to, tile[j], static_cast<std::size_t>(height) * sizeof(W));
    }
    if (has_next) {
      for (int i = 0; i < kTile; i += kLineWords) {
        __builtin_prefetch(words.out_at(next_row + i, next_column + j), 1);
      }
    }
  }
}

// Copies the matrix tile by tile.
//
// A tile of both sides stays in the first cache, so each line of it is read and written once. Each
// row of a large matrix is on another page: the tiles of one block share their pages.
template <class W>
void transpose_words(const Transposition<W>& words) {
  constexpr int kTile = Transposition<W>::kTile;
  constexpr std::int64_t kBlock = 4 * kTile;
  for (std::int64_t block = 0; block < words.rows; block += kBlock) {
    const std::int64_t block_end = std::min(block + kBlock, words.rows);
    for (std::int64_t column = 0; column < words.columns; column += kTile) {
      for (std::int64_t row = block; row < block_end; row += kTile) {
        const bool is_last = row + kTile >= block_end;
        transpose_tile(words, row, column, is_last ? block : row + kTile,
                       is_last ? column + kTile : column);
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
    transpose_words(Transposition<W>{out, plan.strides[dim][0], in, plan.strides[0][1],
                                     plan.sizes[0], plan.sizes[dim]});
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
