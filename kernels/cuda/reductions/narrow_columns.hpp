#pragma once

#include "kernels/reductions/reduce_plan.hpp"

namespace gantry::kernels::cuda {

// Most columns of a block of reduce_narrow_columns.
inline constexpr int kNarrowColumns = 8;
// Columns of a block of reduce_columns without packs, and if there would be few such blocks.
inline constexpr int kSingleTile = 32;
inline constexpr int kSmallSingleTile = 8;

// True if the blocks of reduce_columns, each with 32 KB under way, are too few for a GPU's memory:
// it takes 3 MB under way to read 4.8 TB/s at 0.7 us. Runs of columns that fill a block have whole
// packs, or blocks of kSmallSingleTile; but where there is little to read, a thread's rows count,
// which follow each other.
[[nodiscard]] inline bool has_narrow_columns(const ReducePlan& plan) {
  constexpr std::int64_t kFewTiles = 64;
  constexpr std::int64_t kFewElements = 1 << 20;
  return (plan.outputs + kSingleTile - 1) / kSingleTile * plan.chunks < kFewTiles &&
         (plan.kept.sizes[plan.kept.ndim - 1] <= kSingleTile ||
          plan.outputs * plan.length <= kFewElements);
}

// Columns of a block of reduce_narrow_columns: equal parts of those that lie side by side, and few
// enough for a block on each multiprocessor.
[[nodiscard]] inline int narrow_tile(const ReducePlan& plan) {
  constexpr std::int64_t kMultiprocessors = 132;
  constexpr std::int64_t kFewestColumns = 2;
  const std::int64_t inner = plan.kept.sizes[plan.kept.ndim - 1];
  const std::int64_t outer = plan.outputs / inner * plan.chunks;
  std::int64_t most = kNarrowColumns;
  while (most > kFewestColumns && (inner + most - 1) / most * outer < kMultiprocessors) most /= 2;
  const std::int64_t tiles = (inner + most - 1) / most;
  return static_cast<int>((inner + tiles - 1) / tiles);
}

}  // namespace gantry::kernels::cuda
