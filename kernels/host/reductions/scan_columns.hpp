// Scans of neighbouring fibres side by side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/host/host_fma.hpp"
#include "kernels/host/layout/transpose.hpp"
#include "kernels/host/reductions/short_rows.hpp"
#include "kernels/impl/scan.inl"

namespace gantry::kernels::host {

// The most fibres that are scanned side by side.
inline constexpr int kScanColumns = 128;
// The longest contiguous fibres that are scanned as columns of their transpose.
inline constexpr std::int64_t kShortScan = 256;

// Neighbouring fibres: element k of fibre c is in[k * in_stride + c], and out likewise.
template <class In>
struct ScanColumns {
  const In* in;
  std::int64_t in_stride;
  ScanOut<In>* out;
  std::int64_t out_stride;
  int columns;
};

// Scans the columns in the order of Note [Scan order]. Returns false if one fails as Note
// [Restarted scans] says: then the results are those of no column.
template <ScanOp kOp, class In>
bool scan_columns(const ScanColumns<In>& tile, std::int64_t length) {
  using Acc = ScanAccumulator<In>;
  using Step = ScanStep<Acc, kOp>;
  std::vector<ScanCarry<Step>> carries(length > kScanGroup * kScanGroup ? tile.columns : 0);
  unsigned fails = 0;
  with_fma([=, &tile, &carries, &fails] {
    const int columns = tile.columns;
    Acc running[kScanColumns];  // of this group
    Acc groups[kScanColumns];   // of this group of groups, before this group
    Acc before[kScanColumns];   // of all elements before this group
    std::fill_n(groups, columns, Step::neutral());
    std::fill_n(before, columns, Step::neutral());
    unsigned any = 0;
    for (std::int64_t first = 0; first < length; first += kScanGroup) {
      const std::int64_t end = std::min<std::int64_t>(length, first + kScanGroup);
      std::fill_n(running, columns, Step::neutral());
      for (std::int64_t k = first; k < end; ++k) {
        const In* const in = tile.in + k * tile.in_stride;
        ScanOut<In>* const out = tile.out + k * tile.out_stride;
#pragma GCC ivdep  // `out` may be `in`
        for (int c = 0; c < columns; ++c) {
          running[c] = Step::combine(running[c], static_cast<Acc>(in[c]));
          const auto result = from_accumulator<ScanOut<In>>(Step::combine(before[c], running[c]));
          out[c] = result;
          if constexpr (kBeginsAgain<In, kOp>) any |= is_finite(result) ? 0u : 1u;
        }
      }
      if constexpr (kRestarts<In, kOp> && !kBeginsAgain<In, kOp>) {
        for (int c = 0; c < columns; ++c) {
          any |= is_finite(Step::combine(before[c], running[c])) ? 0u : 1u;
        }
      }
      for (int c = 0; c < columns; ++c) groups[c] = Step::combine(groups[c], running[c]);
      const bool is_last = end / kScanGroup % kScanGroup == 0;  // of its group of groups
      for (int c = 0; c < columns && is_last && !carries.empty(); ++c) {
        carries[static_cast<std::size_t>(c)].push(groups[c]);
        groups[c] = Step::neutral();
      }
      if (carries.empty()) {
        std::copy_n(groups, columns, before);
      } else {
        for (int c = 0; c < columns; ++c) {
          before[c] = Step::combine(carries[static_cast<std::size_t>(c)].before(), groups[c]);
        }
      }
    }
    fails = any;
  });
  return fails == 0;
}

// The fibres of a plan that are side by side from fibre `first` on, at most kScanColumns.
inline int neighbours(const FibrePlan& plan, std::int64_t first) {
  std::int64_t count = std::min<std::int64_t>(kScanColumns, plan.count - first);
  for (const Fibres* fibres : {&plan.in, &plan.out}) {
    const std::int64_t width = fibres->outer.sizes[fibres->outer.ndim - 1];
    count = std::min(count, width - first % width);
  }
  return static_cast<int>(count);
}

// True if fibres lie side by side in both operands.
inline bool has_columns(const FibrePlan& plan) {
  return plan.is_column_wise() && plan.in.outer.strides[plan.in.outer.ndim - 1] == 1 &&
         plan.out.outer.ndim > 0 && plan.out.outer.strides[plan.out.outer.ndim - 1] == 1;
}

// Scans `columns` contiguous fibres from fibre `first` on, as columns of their transpose. `in` and
// `out` have room for plan.length rows of kScanColumns elements. Returns what scan_columns() does.
template <ScanOp kOp, class In>
bool scan_short_fibres(const FibrePlan& plan, std::int64_t first, int columns, In* in,
                       ScanOut<In>* out) {
  using Word = WordOf<In>;
  using OutWord = WordOf<ScanOut<In>>;
  const auto spacing = [](const Fibres& fibres) {
    return fibres.outer.strides[fibres.outer.ndim - 1];
  };
  transpose_words(
      Transposition<Word>{reinterpret_cast<Word*>(in), kScanColumns,
                          static_cast<const Word*>(plan.in.data) + plan.in.outer.offset(first),
                          spacing(plan.in), columns, plan.length});
  if (!scan_columns<kOp, In>({in, kScanColumns, out, kScanColumns, columns}, plan.length)) {
    return false;
  }
  transpose_words(Transposition<OutWord>{
      static_cast<OutWord*>(plan.out.data) + plan.out.outer.offset(first), spacing(plan.out),
      reinterpret_cast<const OutWord*>(out), kScanColumns, plan.length, columns});
  return true;
}

}  // namespace gantry::kernels::host
