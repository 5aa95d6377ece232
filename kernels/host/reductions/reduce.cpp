#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/host/reductions/chunks.hpp"
#include "kernels/reductions/wide_sum.inl"

namespace gantry::kernels::host {

namespace {

// The number of columns that are reduced side by side.
constexpr int kTile = 512;
// The levels of the tree over accumulators.
constexpr int kLevels = 7;
static_assert(1 << kLevels == kAccumulators);

// A result that is not finite, computed again: Note [Overflowing chunks].
template <class R, class Merge, class Acc, class In>
Acc repeat_output(const ReducePlan& plan, std::int64_t output, Acc value) {
  if (plan.chunks == 1) return repeated<R::kOp, Acc>(plan.source, output, {}, value);
  std::vector<Acc> results;
  std::vector<WideSum> wide;
  const auto add = [&](Acc result, const auto& wide_result) {
    results.push_back(result);
    wide.push_back(is_finite(result) ? WideSum{} : wide_result());
  };
  const In* row = static_cast<const In*>(plan.in) + plan.kept.offset(output);
  std::vector<In> gathered(kReduceChunk);
  for (std::int64_t first = 0; first < plan.length; first += kReduceChunk) {
    const std::int64_t count = std::min(kReduceChunk, plan.length - first);
    for (std::int64_t k = 0; k < count; ++k) gathered[k] = row[plan.reduced.offset(first + k)];
    add(reduce_chunk<R, Acc>(gathered.data(), count, 1),
        [&] { return wide_sum(plan.source, output, first, count); });
  }
  // The passes whose results are too many for one chunk.
  while (results.size() > kReduceChunk) {
    const std::vector<Acc> last_results = std::exchange(results, {});
    const std::vector<WideSum> last_wide = std::exchange(wide, {});
    const auto length = static_cast<std::int64_t>(last_results.size());
    const ChunkResults<Acc> last{last_results.data(), last_wide.data(), 1, length};
    for (std::int64_t first = 0; first < length; first += kReduceChunk) {
      const std::int64_t count = std::min(kReduceChunk, length - first);
      add(reduce_chunk<Merge, Acc>(last_results.data() + first, count, 1),
          [&] { return last.sum(first, count); });
    }
  }
  return repeated<R::kOp, Acc>(
      plan.source, output,
      {results.data(), wide.data(), 1, static_cast<std::int64_t>(results.size())}, value);
}

template <class R, class Merge, class Acc, class In>
void write_output(const ReducePlan& plan, std::int64_t output, Acc value) {
  if constexpr (R::kIsRepeated) {
    if (is_repeated<R>(plan, value)) value = repeat_output<R, Merge, Acc, In>(plan, output, value);
  }
  store_reduced<Acc>(plan.out, plan.kept_out.offset(output), plan.out_dtype, value, plan.divisor);
}

// Reduces one output at a time.
template <class R, class Merge, class Acc, class In>
void reduce_rows(const ReducePlan& plan) {
  std::vector<In> gathered;
  if (plan.reduced.ndim > 1) gathered.resize(std::min(plan.length, kReduceChunk));
  std::vector<Acc> partials;
  for (std::int64_t output = 0; output < plan.outputs; ++output) {
    const In* row = static_cast<const In*>(plan.in) + plan.kept.offset(output);
    if (plan.chunks == 1 && plan.reduced.ndim == 1) {
      write_output<R, Merge, Acc, In>(
          plan, output, reduce_chunk<R, Acc>(row, plan.length, plan.reduced.strides[0]));
      continue;
    }
    partials.clear();
    for (std::int64_t first = 0; first < plan.length; first += kReduceChunk) {
      const std::int64_t count = std::min(kReduceChunk, plan.length - first);
      if (plan.reduced.ndim > 1) {
        for (std::int64_t k = 0; k < count; ++k) gathered[k] = row[plan.reduced.offset(first + k)];
        partials.push_back(reduce_chunk<R, Acc>(gathered.data(), count, 1));
      } else {
        const std::int64_t stride = plan.reduced.strides[0];
        partials.push_back(reduce_chunk<R, Acc>(row + first * stride, count, stride));
      }
    }
    write_output<R, Merge, Acc, In>(plan, output, merge_partials<Merge>(partials));
  }
}

// Combines `rows` rows into `into`. Row k of column c is in[k * stride + c].
template <class R, class Acc, class In>
void combine_columns(Acc* __restrict__ into, const In* in, std::int64_t rows, std::int64_t stride,
                     int columns) {
  std::int64_t k = 0;
  for (; k + 4 <= rows; k += 4) {
    const In* row = in + k * stride;
    for (int c = 0; c < columns; ++c) {
      Acc value = R::combine(into[c], R::load(row[c]));
      value = R::combine(value, R::load(row[c + stride]));
      value = R::combine(value, R::load(row[c + 2 * stride]));
      into[c] = R::combine(value, R::load(row[c + 3 * stride]));
    }
  }
  for (; k < rows; ++k) {
    const In* row = in + k * stride;
    for (int c = 0; c < columns; ++c) into[c] = R::combine(into[c], R::load(row[c]));
  }
}

// The bits of `i` < `width`, a power of two, in reverse.
int reversed(int i, int width) {
  int result = 0;
  for (int bit = 1; bit < width; bit *= 2) result = 2 * result + ((i & bit) != 0);
  return result;
}

// Reduces one chunk of `columns` neighbouring outputs to `out`. Element k of column c is
// in[k * stride + c]. `levels` has kLevels + 1 rows of scratch.
//
// Accumulators come in the order in which the tree combines them, so that one of each of its levels
// is enough, which stay in the cache.
template <class R, class Acc, class In>
void reduce_tile(const In* in, std::int64_t count, std::int64_t stride, int columns, Acc* out,
                 Acc (*levels)[kTile]) {
  const int width = accumulator_count(count);
  with_fma([=] {
    for (int i = 0; i < width; ++i) {
      const int j = reversed(i, width);
      Acc* const into = levels[kLevels];
      std::fill_n(into, columns, R::neutral());
      if (j < count) {
        combine_columns<R>(into, in + j * stride, (count - j - 1) / kAccumulators + 1,
                           kAccumulators * stride, columns);
      }
      int level = 0;
      for (; (i >> level & 1) != 0; ++level) {
        for (int c = 0; c < columns; ++c) into[c] = R::combine(levels[level][c], into[c]);
      }
      std::copy_n(into, columns, i + 1 < width ? levels[level] : out);
    }
  });
}

// Reduces outputs whose elements are adjacent in the input, one tile at a time.
template <class R, class Merge, class Acc, class In>
void reduce_columns(const ReducePlan& plan) {
  const std::int64_t width = plan.kept.sizes[plan.kept.ndim - 1];
  const std::int64_t stride = plan.reduced.strides[0];
  std::vector<Acc> scratch((kLevels + 1) * kTile);
  auto* levels = reinterpret_cast<Acc(*)[kTile]>(scratch.data());
  std::vector<Acc> tile_partials(plan.chunks * kTile);
  std::vector<Acc> partials;
  for (std::int64_t base = 0; base < plan.outputs; base += width) {
    for (std::int64_t column = 0; column < width; column += kTile) {
      const int columns = static_cast<int>(std::min<std::int64_t>(kTile, width - column));
      const In* in = static_cast<const In*>(plan.in) + plan.kept.offset(base + column);
      for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
        const std::int64_t first = chunk * kReduceChunk;
        reduce_tile<R, Acc>(in + first * stride, std::min(kReduceChunk, plan.length - first),
                            stride, columns, tile_partials.data() + chunk * kTile, levels);
      }
      for (int c = 0; c < columns; ++c) {
        partials.clear();
        for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
          partials.push_back(tile_partials[chunk * kTile + c]);
        }
        write_output<R, Merge, Acc, In>(plan, base + column + c, merge_partials<Merge>(partials));
      }
    }
  }
}

template <class In, class Acc>
void reduce_with(const ReducePlan& plan) {
  with_reduction(plan.op, [&](auto tag) {
    constexpr Reduction op = decltype(tag)::value;
    using R = Reducer<op, Acc>;
    using Merge = Reducer<merging_reduction(op), Acc>;
    if constexpr (R::template supports<In>()) {
      const bool tiled = plan.is_column_wise() && plan.kept.strides[plan.kept.ndim - 1] == 1;
      if (tiled) {
        reduce_columns<R, Merge, Acc, In>(plan);
      } else {
        reduce_rows<R, Merge, Acc, In>(plan);
      }
    }
  });
}

}  // namespace

void reduce(const ReducePlan& plan) {
  dispatch_stored(plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<In>)) {
      if (plan.accumulator != DType::i64) return reduce_with<In, AccumulatorType<In>>(plan);
    }
    reduce_with<In, std::int64_t>(plan);
  });
}

}  // namespace gantry::kernels::host
