// Compiled for AVX-512 with bf16: Note [One library for several processors].
#include <immintrin.h>

#include <cstring>

#include "kernels/host/linalg/paired_product.hpp"

namespace gantry::kernels::host {

namespace {

constexpr std::int64_t kLanes = 16;
// Rows of a tile: 24 of the 32 registers hold its sums.
constexpr int kTileRows = 6;
// Pairs of a tile's depth: a panel of `b` stays in the second cache.
constexpr std::int64_t kDepthPairs = 512;

// out += a b, or out = a b, for kRows rows and kVectors * 16 columns, of which `columns` count.
template <int kRows, int kVectors>
void multiply_tile(float* out, std::int64_t out_stride, const std::uint16_t* a,
                   std::int64_t a_stride, const std::uint32_t* b, std::int64_t depth,
                   std::int64_t columns, bool is_first) {
  __m512 sums[kRows][kVectors];
  __mmask16 masks[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t left = columns - v * kLanes;
    masks[v] = static_cast<__mmask16>(left >= kLanes ? 0xffff : (1 << (left > 0 ? left : 0)) - 1);
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = is_first ? _mm512_setzero_ps()
                            : _mm512_maskz_loadu_ps(masks[v], out + r * out_stride + v * kLanes);
    }
  }
  const auto add_pairs = [&](const std::uint32_t(&pairs)[kRows], const std::uint32_t* from) {
    __m512bh right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      right[v] = (__m512bh)_mm512_loadu_si512(from + v * kLanes);
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const auto left = (__m512bh)_mm512_set1_epi32(static_cast<int>(pairs[r]));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm512_dpbf16_ps(sums[r][v], left, right[v]);
      }
    }
  };
  std::uint32_t pairs[kRows];
  for (std::int64_t q = 0; q < depth / 2; ++q) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(&pairs[r], a + r * a_stride + 2 * q, sizeof pairs[r]);
    }
    add_pairs(pairs, b + q * kPanelColumns);
  }
  if (depth % 2 != 0) {
    for (int r = 0; r < kRows; ++r) pairs[r] = a[r * a_stride + depth - 1];
    add_pairs(pairs, b + depth / 2 * kPanelColumns);
  }
#pragma GCC unroll 6
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      _mm512_mask_storeu_ps(out + r * out_stride + v * kLanes, masks[v], sums[r][v]);
    }
  }
}

template <int kRows>
void multiply_panel(float* out, std::int64_t out_stride, const std::uint16_t* a,
                    std::int64_t a_stride, const std::uint32_t* b, std::int64_t depth,
                    std::int64_t columns, bool is_first) {
  switch ((columns + kLanes - 1) / kLanes) {
    case 1:
      return multiply_tile<kRows, 1>(out, out_stride, a, a_stride, b, depth, columns, is_first);
    case 2:
      return multiply_tile<kRows, 2>(out, out_stride, a, a_stride, b, depth, columns, is_first);
    case 3:
      return multiply_tile<kRows, 3>(out, out_stride, a, a_stride, b, depth, columns, is_first);
    default:
      return multiply_tile<kRows, 4>(out, out_stride, a, a_stride, b, depth, columns, is_first);
  }
}

// Pairs of 16 columns of b, whose rows are contiguous in memory, at 16 pairs.
void transpose_pairs(std::uint32_t* out, const std::uint16_t* columns, std::int64_t stride) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  __m512i lines[kLanes];
#pragma GCC unroll 16
  for (int j = 0; j < kLanes; ++j) lines[j] = _mm512_loadu_si512(columns + j * stride);
    // Each round interleaves lines that are half of the square apart.
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
    __m512i mixed[kLanes];
#pragma GCC unroll 8
    for (int j = 0; j < kLanes / 2; ++j) {
      mixed[2 * j] = _mm512_permutex2var_epi32(lines[j], low, lines[j + kLanes / 2]);
      mixed[2 * j + 1] = _mm512_permutex2var_epi32(lines[j], high, lines[j + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int j = 0; j < kLanes; ++j) lines[j] = mixed[j];
  }
#pragma GCC unroll 16
  for (int q = 0; q < kLanes; ++q) _mm512_storeu_si512(out + q * kPanelColumns, lines[q]);
}

// A whole panel of rows that are not transposed, or of columns that are contiguous in memory.
std::int64_t pair_panel(std::uint32_t* out, const std::uint16_t* b, const Bf16Matrix& layout,
                        std::int64_t depth) {
  std::int64_t k = 0;
  if (layout.column_stride == 1) {
    for (; k + 1 < depth; k += 2, out += kPanelColumns) {
      const std::uint16_t* const low = b + k * layout.row_stride;
      const std::uint16_t* const high = low + layout.row_stride;
      for (std::int64_t j = 0; j < kPanelColumns; ++j) {
        out[j] = low[j] | static_cast<std::uint32_t>(high[j]) << 16;
      }
    }
  } else if (layout.row_stride == 1) {
    for (; k + 2 * kLanes <= depth; k += 2 * kLanes, out += kLanes * kPanelColumns) {
      for (std::int64_t j = 0; j < kPanelColumns; j += kLanes) {
        transpose_pairs(out + j, b + k + j * layout.column_stride, layout.column_stride);
      }
    }
  }
  return k;
}

std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

}  // namespace

void pair_rows(std::uint32_t* out, const Bf16Matrix& b, std::int64_t depth, std::int64_t columns) {
  for (std::int64_t first = 0; first < columns; first += kPanelColumns) {
    const std::int64_t width = smaller(kPanelColumns, columns - first);
    std::int64_t k = 0;
    if (width == kPanelColumns) {
      k = pair_panel(out, b.data + first * b.column_stride, b, depth);
      out += k / 2 * kPanelColumns;
    }
    for (; k < depth; k += 2, out += kPanelColumns) {
      const std::uint16_t* const low = b.data + k * b.row_stride + first * b.column_stride;
      const std::uint16_t* const high = k + 1 < depth ? low + b.row_stride : nullptr;
      for (std::int64_t j = 0; j < width; ++j) {
        const std::uint32_t second = high == nullptr ? 0 : high[j * b.column_stride];
        out[j] = low[j * b.column_stride] | second << 16;
      }
      for (std::int64_t j = width; j < kPanelColumns; ++j) out[j] = 0;
    }
  }
}

void multiply_pairs(float* out, std::int64_t out_stride, const std::uint16_t* a,
                    std::int64_t a_stride, std::int64_t rows, const PairedMatrix& b,
                    bool is_first) {
  const std::int64_t pairs = (b.depth + 1) / 2;
  for (std::int64_t begin = 0; begin < pairs; begin += kDepthPairs) {
    const std::int64_t depth = smaller(2 * kDepthPairs, b.depth - 2 * begin);
    for (std::int64_t first = 0; first < b.columns; first += kPanelColumns) {
      const std::uint32_t* const panel = b.data + first * pairs + begin * kPanelColumns;
      const std::int64_t columns = smaller(kPanelColumns, b.columns - first);
      std::int64_t row = 0;
      for (; row + kTileRows <= rows; row += kTileRows) {
        multiply_panel<kTileRows>(out + row * out_stride + first, out_stride,
                                  a + row * a_stride + 2 * begin, a_stride, panel, depth, columns,
                                  is_first && begin == 0);
      }
      for (; row < rows; ++row) {
        multiply_panel<1>(out + row * out_stride + first, out_stride,
                          a + row * a_stride + 2 * begin, a_stride, panel, depth, columns,
                          is_first && begin == 0);
      }
    }
  }
}

}  // namespace gantry::kernels::host
