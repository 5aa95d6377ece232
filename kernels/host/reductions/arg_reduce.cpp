#include "kernels/impl/arg_reduce.inl"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/host/reductions/short_rows.hpp"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::host {

namespace {

// precedes() without a branch, for vector code.
template <bool kLargest, class Acc>
bool takes_over(Acc value, Acc best) {
  const bool is_better = kLargest ? value > best : value < best;
  return is_better | ((value != value) & (best == best));
}

// The index of the preferred element. Whole blocks are compared with the best one so far.
template <bool kLargest, class T>
std::int64_t arg_of(const T* in, std::int64_t length, std::int64_t stride) {
  using Acc = AccumulatorType<T>;
  using Best = Reducer<kLargest ? Reduction::max : Reduction::min, Acc>;
  constexpr std::int64_t kBlock = 512;
  ArgReduceState<Acc> best{static_cast<Acc>(in[0]), 0};
  for (std::int64_t first = 0; first < length; first += kBlock) {
    const T* const block = in + first * stride;
    const std::int64_t count = std::min(kBlock, length - first);
    const Acc value = reduce_chunk<Best, Acc>(block, count, stride);
    if (!takes_over<kLargest>(value, best.value)) continue;
    std::int64_t k = 0;
    while (takes_over<kLargest>(value, static_cast<Acc>(block[k * stride]))) ++k;
    best = {value, first + k};
  }
  return best.index;
}

// Neighbouring fibres, whose elements are adjacent.
template <bool kLargest, class T>
void arg_of_columns(const Columns<T>& rows, std::int64_t length, std::int64_t* indices) {
  using Acc = AccumulatorType<T>;
  with_fma([=, &rows] {
    Acc best[kTile];
    for (int c = 0; c < rows.columns; ++c) best[c] = static_cast<Acc>(rows.in[c]);
    std::fill_n(indices, rows.columns, 0);
    for (std::int64_t k = 1; k < length; ++k) {
      const T* const row = rows.row(k);
      for (int c = 0; c < rows.columns; ++c) {
        const Acc value = static_cast<Acc>(row[c]);
        const bool takes = takes_over<kLargest>(value, best[c]);
        best[c] = takes ? value : best[c];
        indices[c] = takes ? k : indices[c];
      }
    }
  });
}

// Short contiguous fibres that are evenly spaced, as columns of their transpose.
template <bool kLargest, class T>
void arg_of_short_fibres(const T* in, std::int64_t spacing, int fibres, std::int64_t length,
                         T* transposed, std::int64_t* indices) {
  using Word = WordOf<T>;
  transpose_words(Transposition<Word>{reinterpret_cast<Word*>(transposed), kTile,
                                      reinterpret_cast<const Word*>(in), spacing, fibres, length});
  arg_of_columns<kLargest>(Columns<T>{transposed, kTile, fibres}, length, indices);
}

template <bool kLargest, class T>
void arg_fibres(const FibrePlan& plan, const Fibres& indices) {
  constexpr std::int64_t kFewest = 8;  // short fibres that are worth it
  const StridedIndex& outer = plan.in.outer;
  const std::int64_t neighbours = outer.ndim > 0 ? outer.sizes[outer.ndim - 1] : 1;
  const std::int64_t spacing = outer.ndim > 0 ? outer.strides[outer.ndim - 1] : 1;
  const bool is_tiled = plan.is_column_wise() && spacing == 1;
  const bool is_short =
      !is_tiled && plan.in.stride == 1 && plan.length <= kShortRow && neighbours >= kFewest;
  const std::int64_t width = is_tiled || is_short ? neighbours : 1;
  std::int64_t found[kTile];
  std::vector<T> transposed(is_short ? static_cast<std::size_t>(plan.length * kTile) : 0);
  for (std::int64_t fibre = 0; fibre < plan.count;) {
    const T* const in = static_cast<const T*>(plan.in.data) + outer.offset(fibre);
    const auto columns = static_cast<int>(std::min<std::int64_t>(kTile, width - fibre % width));
    if (is_tiled) {
      arg_of_columns<kLargest>(Columns<T>{in, plan.in.stride, columns}, plan.length, found);
    } else if (is_short) {
      arg_of_short_fibres<kLargest>(in, spacing, columns, plan.length, transposed.data(), found);
    } else {
      found[0] = arg_of<kLargest>(in, plan.length, plan.in.stride);
    }
    for (int c = 0; c < columns; ++c, ++fibre) {
      static_cast<std::int64_t*>(indices.data)[indices.outer.offset(fibre)] = found[c];
      if (plan.out.data != nullptr) {
        static_cast<T*>(plan.out.data)[plan.out.outer.offset(fibre)] =
            stored_value(in[c * spacing + found[c] * plan.in.stride]);
      }
    }
  }
}

}  // namespace

void arg_reduce(bool largest, const FibrePlan& plan, const Fibres& indices) {
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    largest ? arg_fibres<true, T>(plan, indices) : arg_fibres<false, T>(plan, indices);
  });
}

}  // namespace gantry::kernels::host
