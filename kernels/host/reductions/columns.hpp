// Reductions of neighbouring columns side by side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/host/reductions/chunks.hpp"

namespace gantry::kernels::host {

// The most columns that are reduced side by side.
inline constexpr int kTile = 512;
// The levels of the tree over accumulators.
inline constexpr int kLevels = 7;
static_assert(1 << kLevels == kAccumulators);

// The elements of `columns` neighbouring columns: element k of column c is in[k * stride + c].
template <class In>
struct Columns {
  const In* in;
  std::int64_t stride;
  int columns;

  const In* row(std::int64_t k) const { return in + k * stride; }
};

// Columns of several slices, one after the other, whose rows are shorter than a tile: slice s
// begins at in + s * slice_stride. Rows are gathered as they are needed.
template <class In>
struct SlicedColumns {
  const In* in;
  std::int64_t stride;
  std::int64_t slice_stride;
  int width;  // of a slice
  int columns;
  In (*rows)[kTile];  // memory for kGathered rows

  static constexpr int kGathered = 8;

  // The row, which the kGathered-th next call overwrites.
  const In* row(std::int64_t k) const {
    In* const to = rows[next];
    next = (next + 1) % kGathered;
    const In* from = in + k * stride;
    for (int c = 0; c < columns; c += width, from += slice_stride) {
      for (int i = 0; i < width; ++i) to[c + i] = from[i];
    }
    return to;
  }

  mutable int next = 0;
};

// The bits of `i` < `width`, a power of two, in reverse.
inline int reversed(int i, int width) {
  int result = 0;
  for (int bit = 1; bit < width; bit *= 2) result = 2 * result + ((i & bit) != 0);
  return result;
}

// Combines the elements of every column whose number is j modulo kAccumulators, up to `count`.
template <class R, class Acc, class Rows>
void combine_columns(Acc* __restrict__ into, const Rows& rows, std::int64_t j, std::int64_t count) {
  const int columns = rows.columns;
  const auto* first = rows.row(j);
  for (int c = 0; c < columns; ++c) into[c] = R::load(first[c]);
  for (std::int64_t k = j + kAccumulators; k < count; k += kAccumulators) {
    const auto* row = rows.row(k);
    for (int c = 0; c < columns; ++c) into[c] = R::combine(into[c], R::load(row[c]));
  }
}

// out = a combined with b, for every column. `out` may be one of them.
template <class R, class Acc>
void merge_columns(Acc* out, const Acc* a, const Acc* b, int columns) {
#pragma GCC ivdep
  for (int c = 0; c < columns; ++c) out[c] = R::combine(a[c], b[c]);
}

// Four pairs of accumulators that the tree combines with each other, each of one element: rows
// left[i] and left[i] + pairs of every column. Their seven combinations are in registers.
template <class R, class Acc, class Rows>
void combine_eight(Acc* __restrict__ out, const Rows& rows, const int (&left)[4], int pairs) {
  const int columns = rows.columns;
  const auto* const a = rows.row(left[0]);
  const auto* const b = rows.row(left[0] + pairs);
  const auto* const c = rows.row(left[1]);
  const auto* const d = rows.row(left[1] + pairs);
  const auto* const e = rows.row(left[2]);
  const auto* const f = rows.row(left[2] + pairs);
  const auto* const g = rows.row(left[3]);
  const auto* const h = rows.row(left[3] + pairs);
  for (int i = 0; i < columns; ++i) {
    const Acc first = R::combine(R::combine(R::load(a[i]), R::load(b[i])),
                                 R::combine(R::load(c[i]), R::load(d[i])));
    const Acc second = R::combine(R::combine(R::load(e[i]), R::load(f[i])),
                                  R::combine(R::load(g[i]), R::load(h[i])));
    out[i] = R::combine(first, second);
  }
}

// Combines kRows rows from `k` on with `out`, which has no value before the first ones.
template <class R, int kRows, class Acc, class Rows>
void combine_next_rows(Acc* __restrict__ out, const Rows& rows, std::int64_t k, bool is_first) {
  const int columns = rows.columns;
  decltype(rows.row(0)) row[kRows];
  for (int r = 0; r < kRows; ++r) row[r] = rows.row(k + r);
  const auto combined = [&](int i) {
    Acc value = R::load(row[0][i]);
#pragma GCC unroll 4
    for (int r = 1; r < kRows; ++r) value = R::combine(value, R::load(row[r][i]));
    return value;
  };
  if (is_first) {
    for (int i = 0; i < columns; ++i) out[i] = combined(i);
  } else {
    for (int i = 0; i < columns; ++i) out[i] = R::combine(out[i], combined(i));
  }
}

// Integers of each column, up to four rows at a time, in the order of memory.
template <class R, class Acc, class Rows>
void combine_integers(Acc* out, const Rows& rows, std::int64_t count) {
  std::int64_t k = count % 4;
  if (k == 1) combine_next_rows<R, 1>(out, rows, 0, true);
  if (k == 2) combine_next_rows<R, 2>(out, rows, 0, true);
  if (k == 3) combine_next_rows<R, 3>(out, rows, 0, true);
  for (; k < count; k += 4) combine_next_rows<R, 4>(out, rows, k, k == 0);
}

// The same for pairs of which the second accumulators have no element.
template <class R, class Acc, class Rows>
void combine_four(Acc* __restrict__ out, const Rows& rows, const int (&left)[4]) {
  const int columns = rows.columns;
  const auto* const a = rows.row(left[0]);
  const auto* const b = rows.row(left[1]);
  const auto* const c = rows.row(left[2]);
  const auto* const d = rows.row(left[3]);
  for (int i = 0; i < columns; ++i) {
    out[i] = R::combine(R::combine(R::load(a[i]), R::load(b[i])),
                        R::combine(R::load(c[i]), R::load(d[i])));
  }
}

// Reduces one chunk of `count` elements of each column to `out`. `levels` has kLevels + 1 rows of
// scratch.
//
// Pairs of accumulators come in the order in which the tree combines them, so that one result of
// each of its levels is enough, which stay in the cache.
template <class R, class Acc, class Rows>
void reduce_tile(const Rows& rows, std::int64_t count, Acc* out, Acc (*levels)[kTile]) {
  const int width = accumulator_count(count);
  with_fma([=, &rows] {
    const int columns = rows.columns;
    if constexpr (kHasAnyOrder<Acc>) return combine_integers<R>(out, rows, count);
    if (width == 1) return combine_columns<R>(out, rows, 0, count);
    const int pairs = width / 2;
    for (int i = 0; i < pairs; ++i) {
      int begun = 0;  // levels that are combined at once
      if (needs_no_registers(R{}) && i % 4 == 0 && i + 4 <= pairs) {
        const int group[4] = {reversed(i, pairs), reversed(i + 1, pairs), reversed(i + 2, pairs),
                              reversed(i + 3, pairs)};
        const auto [least, most] = std::minmax({group[0], group[1], group[2], group[3]});
        const bool has_all = most + pairs < count && least + kAccumulators >= count;
        if (has_all || least + pairs >= count) begun = 2;
      }
      i += begun == 0 ? 0 : 3;
      int merged = 0;  // levels that end with this pair
      while ((i >> merged & 1) != 0) ++merged;
      Acc* const result = i + 1 < pairs ? levels[merged + 1] : out;
      Acc* const scratch = levels[0];
      Acc* pair = merged == begun ? result : scratch;
      const int left = reversed(i, pairs);
      const int right = left + pairs;
      if (begun == 2) {
        const int group[4] = {reversed(i - 3, pairs), reversed(i - 2, pairs),
                              reversed(i - 1, pairs), left};
        right < count ? combine_eight<R>(pair, rows, group, pairs)
                      : combine_four<R>(pair, rows, group);
      } else if (right >= count) {
        combine_columns<R>(pair, rows, left, count);
      } else if (left + kAccumulators >= count) {
        const auto* a = rows.row(left);
        const auto* b = rows.row(right);
        for (int c = 0; c < columns; ++c) pair[c] = R::combine(R::load(a[c]), R::load(b[c]));
      } else {
        combine_columns<R>(scratch, rows, left, count);
        combine_columns<R>(levels[kLevels], rows, right, count);
        merge_columns<R>(pair, scratch, levels[kLevels], columns);
      }
      for (int level = begun + 1; level <= merged; ++level) {
        Acc* const to = level == merged ? result : scratch;
        merge_columns<R>(to, levels[level], pair, columns);
        pair = to;
      }
    }
  });
}

// Reduces the chunk results of every column, level by level, to partials[0].
template <class Merge, class Acc>
void merge_tiles(Acc (*partials)[kTile], std::int64_t count, int columns, Acc (*levels)[kTile]) {
  Acc result[kTile];
  while (count > 1) {
    std::int64_t merged = 0;
    for (std::int64_t first = 0; first < count; first += kReduceChunk) {
      reduce_tile<Merge>(Columns<Acc>{partials[first], kTile, columns},
                         std::min(kReduceChunk, count - first), result, levels);
      std::copy_n(result, columns, partials[merged++]);
    }
    count = merged;
  }
}

// The most bytes of a row of accumulators of reduce_narrow(): all of them stay in the first cache.
inline constexpr int kNarrowBytes = 256;

// reduce_tile() of `count` >= kAccumulators contiguous rows, whose accumulators have at most
// kNarrowBytes, in the order of memory.
template <class R, class Merge, class Acc, class In>
void reduce_narrow(const In* in, std::int64_t count, int columns, Acc* out, Acc (*levels)[kTile],
                   Acc* accumulators) {
  const int size = kAccumulators * columns;
  with_fma([=] {
    for (int i = 0; i < size; ++i) accumulators[i] = R::load(in[i]);
    const std::int64_t total = count * columns;
    for (std::int64_t first = size; first < total; first += size) {
      const In* const from = in + first;
      const auto n = static_cast<int>(std::min<std::int64_t>(size, total - first));
      for (int i = 0; i < n; ++i) accumulators[i] = R::combine(accumulators[i], R::load(from[i]));
    }
  });
  reduce_tile<Merge>(Columns<Acc>{accumulators, columns, columns}, kAccumulators, out, levels);
}

}  // namespace gantry::kernels::host
