#pragma once

#include <cstdint>

#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/target.hpp"

namespace gantry::kernels {

// Note [Compaction]
// The elements of a mask that are not zero have ranks 0, 1, … in row-major order. A first pass
// counts them in tiles of kCompactionTile elements and sums the counts up to the end of each tile:
// the last sum is the number of selected elements. A second pass gives each selected element its
// rank: the sum up to the preceding tile, plus the selected elements before it in its tile. There
// are no atomics, so the order is fixed. The second pass skips ranks from `limit` on. So if the
// mask has changed since the first pass, nothing is written outside the output.
//
// Masks have any dtype; a NaN is not zero. `sums` is i64 and dense.

inline constexpr std::int64_t kCompactionTile = 4096;

// The size of `sums` for a mask of `numel` elements.
[[nodiscard]] constexpr std::int64_t compaction_tiles(std::int64_t numel) {
  return (numel + kCompactionTile - 1) / kCompactionTile;
}

// Writes the sums.
void sum_tiles(const Target& target, const TensorRef& sums, const TensorRef& mask);

// out[rank][d] = coordinate d of the element. `out` is i64 [limit, dims].
void write_coordinates(const Target& target, const TensorRef& out, const TensorRef& mask,
                       const TensorRef& sums, std::int64_t limit);

// out[rank] = the sum of coordinate[d] * strides[d]. `out` is i64 [limit].
void write_offsets(const Target& target, const TensorRef& out, const TensorRef& mask,
                   const std::int64_t* strides, const TensorRef& sums, std::int64_t limit);

// out[rank] = the element of `in` at the same place. `in` has the mask's shape, `out` is [limit].
void pack_masked(const char* op, const Target& target, const TensorRef& out, const TensorRef& in,
                 const TensorRef& mask, const TensorRef& sums, std::int64_t limit);

// The element of `out` at the same place = in[rank].
void unpack_masked(const char* op, const Target& target, const TensorRef& out, const TensorRef& in,
                   const TensorRef& mask, const TensorRef& sums, std::int64_t limit);

}  // namespace gantry::kernels
