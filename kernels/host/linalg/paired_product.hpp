// Products of bf16 matrices by instructions that multiply two pairs at once.
#pragma once

#include <cstdint>

namespace gantry::kernels::host {

// Note [Products in pairs]
// vdpbf16ps adds a[2q] b[2q] + a[2q + 1] b[2q + 1] to each of 16 sums in f32. So `b` is copied once
// with the elements of each two rows side by side, in panels of kPanelColumns columns; an odd last
// row has zeros beside it. The instruction takes and gives no denormal numbers.
inline constexpr std::int64_t kPanelColumns = 64;

// A copy of the [depth, columns] matrix `b` in pairs: elements are the bits of bf16.
struct PairedMatrix {
  const std::uint32_t* data = nullptr;
  std::int64_t depth = 0;
  std::int64_t columns = 0;

  // Pairs that a copy has.
  static constexpr std::int64_t size(std::int64_t depth, std::int64_t columns) {
    return (depth + 1) / 2 * ((columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns);
  }
};

struct Bf16Matrix {
  const std::uint16_t* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

// True if capability() has that instruction. The functions below are for such processors only.
[[nodiscard]] bool multiplies_pairs();

// Writes PairedMatrix::size() pairs.
void pair_rows(std::uint32_t* out, const Bf16Matrix& b, std::int64_t depth, std::int64_t columns);

// out = a b, or out += a b unless it is the first part, in f32, on the calling thread. Rows of `a`
// are contiguous; rows of `out` are `out_stride` elements apart.
void multiply_pairs(float* out, std::int64_t out_stride, const std::uint16_t* a,
                    std::int64_t a_stride, std::int64_t rows, const PairedMatrix& b, bool is_first);

}  // namespace gantry::kernels::host
