#pragma once

#include <cstdint>

#include <gantry/core/macros.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Compaction]
// The elements of a mask that are not zero have ranks 0, 1, … in row-major order. A first pass
// reads the mask and writes its selection: a bit for each element. It counts the bits in tiles of
// kCompactionTile elements and sums the counts up to the end of each tile: the last sum is the
// number of selected elements. A second pass reads the bits, and gives each selected element its
// rank: the sum up to the preceding tile, plus the selected elements before it in its tile. There
// are no atomics, so the order is fixed. The second pass skips ranks from `limit` on.
//
// Masks have any dtype; a NaN is not zero. A selection is i64 and dense. Element i of the mask has
// bit i % 64 of word i / 64; the sums follow the words.

inline constexpr std::int64_t kCompactionTile = 4096;

// The sums and the words of a mask of `numel` elements.
[[nodiscard]] constexpr std::int64_t compaction_tiles(std::int64_t numel) {
  return (numel + kCompactionTile - 1) / kCompactionTile;
}
[[nodiscard]] GANTRY_HD constexpr std::int64_t selection_words(std::int64_t numel) {
  return (numel + 63) / 64;
}
// The size of its selection.
[[nodiscard]] constexpr std::int64_t selection_size(std::int64_t numel) {
  return selection_words(numel) + compaction_tiles(numel);
}

// Writes the selection.
void read_mask(const Target& target, const TensorRef& selection, const TensorRef& mask);

// The functions below use the shape of `mask`, and not its elements.

// out[rank][d] = coordinate d of the element. `out` is i64 [limit, dims].
void write_coordinates(const Target& target, const TensorRef& out, const TensorRef& mask,
                       const TensorRef& selection, std::int64_t limit);

// out[rank] = the sum of coordinate[d] * strides[d]. `out` is i64 [limit].
void write_offsets(const Target& target, const TensorRef& out, const TensorRef& mask,
                   const std::int64_t* strides, const TensorRef& selection, std::int64_t limit);

// out[rank] = the element of `in` at the same place. `in` has the mask's shape, `out` is [limit].
void pack_masked(const char* op, const Target& target, const TensorRef& out, const TensorRef& in,
                 const TensorRef& mask, const TensorRef& selection, std::int64_t limit);

// The element of `out` at the same place = in[rank].
void unpack_masked(const char* op, const Target& target, const TensorRef& out, const TensorRef& in,
                   const TensorRef& mask, const TensorRef& selection, std::int64_t limit);

}  // namespace gantry::kernels
