#pragma once

#include "kernels/reductions/reduce_plan.hpp"

namespace gantry::kernels::cuda {

// Most columns of a block of reduce_narrow_columns.
inline constexpr int kNarrowColumns = 8;
// Columns of a block of reduce_columns without packs, and if there would be few such blocks.
inline constexpr int kSingleTile = 32;
inline constexpr int kSmallSingleTile = 8;

// True if columns lie side by side in runs that fill no block of reduce_columns, and its blocks,
// each with 32 KB under way, are too few for a GPU's memory: it takes 3 MB under way to read
// 4.8 TB/s at 0.7 us. Longer runs have whole packs, or fill blocks of kSmallSingleTile.
[[nodiscard]] inline bool has_narrow_columns(const ReducePlan& plan) {
  constexpr std::int64_t kFewTiles = 64;
  return plan.kept.sizes[plan.kept.ndim - 1] <= kSingleTile &&
         (plan.outputs + kSingleTile - 1) / kSingleTile * plan.chunks < kFewTiles;
}

// Columns of a block of reduce_narrow_columns: equal parts of those that lie side by side.
[[nodiscard]] inline int narrow_tile(const ReducePlan& plan) {
  const std::int64_t inner = plan.kept.sizes[plan.kept.ndim - 1];
  const std::int64_t tiles = (inner + kNarrowColumns - 1) / kNarrowColumns;
  return static_cast<int>((inner + tiles - 1) / tiles);
}

}  // namespace gantry::kernels::cuda
