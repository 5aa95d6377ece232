// Rows of a plan that share a window of positions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/host/indexing/position_window.hpp"

namespace gantry::kernels::host {

// The second dim's strides of a plan.
struct RowStrides {
  std::int64_t direct;
  std::int64_t indexed;
  std::int64_t indices;
};
inline RowStrides next_row(const StridedPlan<3>& positions) {
  const auto [direct, indexed, indices] = positions.strides[1];
  return {direct, indexed, indices};
}

// True if each row has one index, and the next row another one.
inline bool has_index_a_row(const StridedPlan<3>& positions) {
  return positions.ndim > 1 && positions.strides[0][2] == 0 && positions.strides[1][2] != 0;
}

// Calls row(offsets of the row's operands, its position) for every row of a plan that
// has_index_a_row().
template <class F>
void for_each_indexed_row(const StridedPlan<3>& positions, PositionWindow& window, const F& row) {
  const RowStrides next = next_row(positions);
  const std::int64_t rows = positions.sizes[1];
  for_each_row(
      positions,
      [&](const std::int64_t(&offsets)[3]) {
        for (std::int64_t done = 0; done < rows; done += kPositions) {
          const auto n = static_cast<int>(std::min<std::int64_t>(kPositions, rows - done));
          const std::int64_t* const named =
              window.at(offsets[2] + done * next.indices, next.indices, n);
          std::int64_t direct = offsets[0] + done * next.direct;
          std::int64_t indexed = offsets[1] + done * next.indexed;
          for (int i = 0; i < n; ++i, direct += next.direct, indexed += next.indexed) {
            row(direct, indexed, named[i]);
          }
        }
      },
      2);
}

// True if rows are short, and their indices follow each other or are the same in each row.
inline bool has_short_rows(const StridedPlan<3>& positions) {
  constexpr std::int64_t kShort = 64;
  if (positions.ndim < 2 || positions.sizes[0] > kShort) return false;
  if (positions.strides[1][2] == 0) return positions.strides[0][2] != 0;
  return positions.strides[0][2] == 1 && positions.strides[1][2] == positions.sizes[0];
}

// Calls row(offsets of the row's operands, its positions) for every row of a plan that
// has_short_rows().
template <class F>
void for_each_short_row(const StridedPlan<3>& positions, PositionWindow& window, const F& row) {
  const RowStrides next = next_row(positions);
  const std::int64_t rows = positions.sizes[1];
  const std::int64_t length = positions.sizes[0];
  const std::int64_t stride = positions.strides[0][2];
  const bool is_common = next.indices == 0;
  const std::int64_t together = is_common ? rows : kPositions / length;
  for_each_row(
      positions,
      [&](const std::int64_t(&offsets)[3]) {
        for (std::int64_t done = 0; done < rows; done += together) {
          const std::int64_t count = std::min(together, rows - done);
          const std::int64_t* named =
              window.at(offsets[2] + done * next.indices, stride,
                        static_cast<int>(is_common ? length : count * length));
          std::int64_t direct = offsets[0] + done * next.direct;
          std::int64_t indexed = offsets[1] + done * next.indexed;
          for (std::int64_t i = 0; i < count; ++i) {
            row(direct, indexed, named);
            if (!is_common) named += length;
            direct += next.direct;
            indexed += next.indexed;
          }
        }
      },
      2);
}

}  // namespace gantry::kernels::host
