#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/host/reductions/short_rows.hpp"
#include "kernels/host/reductions/state_families.hpp"
#include "kernels/reductions/wide_sum.inl"

namespace gantry::kernels::host {

namespace {

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

// Stores results of neighbouring outputs from `first` on.
template <class Acc>
void store_results(const ReducePlan& plan, std::int64_t first, int count, Acc* values) {
  if constexpr (!std::is_same_v<Acc, std::int64_t>) {
    if (plan.op == Reduction::norm2) {
      for (int i = 0; i < count; ++i) values[i] = math::sqrt(values[i]);
    }
    if (plan.divisor != 1) {
      for (int i = 0; i < count; ++i) values[i] = values[i] / static_cast<Acc>(plan.divisor);
    }
  }
  const StridedIndex& kept = plan.kept_out;
  const std::int64_t width = kept.ndim > 0 ? kept.sizes[kept.ndim - 1] : 1;
  const std::int64_t stride = kept.ndim > 0 ? kept.strides[kept.ndim - 1] : 1;
  dispatch(plan.out_dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool> ||
                  is_floating_point(dtype_of<T>) == is_floating_point(dtype_of<Acc>)) {
      for (int done = 0; done < count;) {
        const std::int64_t output = first + done;
        T* const to = static_cast<T*>(plan.out) + kept.offset(output);
        const auto run =
            static_cast<int>(std::min<std::int64_t>(count - done, width - output % width));
        const Acc* const from = values + done;
        with_fma([=] {
          if (stride == 1) {
            for (int i = 0; i < run; ++i) to[i] = from_accumulator<T>(from[i]);
          } else {
            for (int i = 0; i < run; ++i) to[i * stride] = from_accumulator<T>(from[i]);
          }
        });
        done += run;
      }
    }
  });
}

// True if is_repeated() may hold for one of the results: they are looked at together first.
template <class R, class Acc>
bool may_be_repeated(const ReducePlan& plan, const Acc* values, int count) {
  Acc most = std::numeric_limits<Acc>::max();
  if (R::kOp == Reduction::prod && plan.out_dtype == DType::f16) most = Acc(65504);
  if (R::kOp == Reduction::prod && plan.out_dtype == DType::bf16) most = Acc(0x1.fep127);
  std::int32_t beyond = 0;
  with_fma([=, &beyond] {
    std::int32_t any = 0;  // with a bool the loop would be no vector code
    for (int i = 0; i < count; ++i) any |= (values[i] < 0 ? -values[i] : values[i]) <= most ? 0 : 1;
    beyond = any;
  });
  return beyond != 0;
}

// Writes the results of neighbouring outputs from `first` on. Repeats those that have to be.
template <class R, class Merge, class Acc, class In>
void write_outputs(const ReducePlan& plan, std::int64_t first, int count, Acc* values) {
  if constexpr (R::kIsRepeated) {
    const int beginning = may_be_repeated<R>(plan, values, count) ? 0 : count;
    for (int i = beginning; i < count; ++i) {
      if (is_repeated<R>(plan, values[i])) {
        values[i] = repeat_output<R, Merge, Acc, In>(plan, first + i, values[i]);
      }
    }
  }
  store_results(plan, first, count, values);
}

// Reduces one output at a time.
template <class R, class Merge, class Acc, class In>
void reduce_rows(const ReducePlan& plan) {
  constexpr int kBlock = 64;  // results that are written together
  Acc results[kBlock];
  std::vector<In> gathered;
  if (plan.reduced.ndim > 1) gathered.resize(std::min(plan.length, kReduceChunk));
  const std::int64_t stride = plan.reduced.ndim > 0 ? plan.reduced.strides[0] : 1;
  std::vector<Acc> partials;
  const auto reduce_row = [&](const In* row) {
    if (plan.chunks == 1 && plan.reduced.ndim <= 1) {
      return reduce_chunk<R, Acc>(row, plan.length, stride);
    }
    partials.clear();
    for (std::int64_t first = 0; first < plan.length; first += kReduceChunk) {
      const std::int64_t count = std::min(kReduceChunk, plan.length - first);
      if (plan.reduced.ndim > 1) {
        for (std::int64_t k = 0; k < count; ++k) gathered[k] = row[plan.reduced.offset(first + k)];
        partials.push_back(reduce_chunk<R, Acc>(gathered.data(), count, 1));
      } else {
        partials.push_back(reduce_chunk<R, Acc>(row + first * stride, count, stride));
      }
    }
    return merge_partials<Merge>(partials);
  };
  for (std::int64_t first = 0; first < plan.outputs; first += kBlock) {
    const auto count = static_cast<int>(std::min<std::int64_t>(kBlock, plan.outputs - first));
    for (int i = 0; i < count; ++i) {
      results[i] = reduce_row(static_cast<const In*>(plan.in) + plan.kept.offset(first + i));
    }
    write_outputs<R, Merge, Acc, In>(plan, first, count, results);
  }
}

// Reduces a row of kLength elements, each of which has an accumulator of its own.
template <class R, int kLength, class Acc, class In>
void reduce_whole_rows(const In* in, std::int64_t spacing, int rows, Acc* results) {
  with_fma([=] {
    for (int row = 0; row < rows; ++row) {
      Acc accumulators[kLength];
      load_elements<R>(accumulators, in + row * spacing, kLength);
      results[row] = merge_accumulators<R, kLength>(accumulators);
    }
  });
}

// Reduces short rows side by side.
template <class R, class Merge, class Acc, class In>
void reduce_short_rows(const ReducePlan& plan) {
  using Word = WordOf<In>;
  const int last = plan.kept.ndim - 1;
  const std::int64_t width = plan.kept.sizes[last];
  std::vector<Acc> scratch((kLevels + 2) * kTile);
  auto* levels = reinterpret_cast<Acc(*)[kTile]>(scratch.data());
  Acc* const results = levels[kLevels + 1];
  std::vector<In> transposed(static_cast<std::size_t>(plan.length * kTile));
  for (std::int64_t output = 0; output < plan.outputs;) {
    const auto rows = static_cast<int>(std::min<std::int64_t>(kTile, width - output % width));
    const In* const in = static_cast<const In*>(plan.in) + plan.kept.offset(output);
    const std::int64_t spacing = plan.kept.strides[last];
    if (plan.length == 64) {
      reduce_whole_rows<R, 64>(in, spacing, rows, results);
    } else if (plan.length == 32) {
      reduce_whole_rows<R, 32>(in, spacing, rows, results);
    } else {
      transpose_words(Transposition<Word>{reinterpret_cast<Word*>(transposed.data()), kTile,
                                          reinterpret_cast<const Word*>(in), spacing, rows,
                                          plan.length});
      reduce_tile<R>(Columns<In>{transposed.data(), kTile, rows}, plan.length, results, levels);
    }
    write_outputs<R, Merge, Acc, In>(plan, output, rows, results);
    output += rows;
  }
}

// Reduces outputs whose elements are adjacent in the input, one tile at a time.
template <class R, class Merge, class Acc, class In>
void reduce_columns(const ReducePlan& plan) {
  const int last = plan.kept.ndim - 1;
  const std::int64_t width = plan.kept.sizes[last];
  const std::int64_t stride = plan.reduced.strides[0];
  const std::int64_t slices = last > 0 ? plan.kept.sizes[last - 1] : 1;
  const std::int64_t slice_stride = last > 0 ? plan.kept.strides[last - 1] : 0;
  constexpr std::int64_t kNarrow = kNarrowBytes / sizeof(Acc);
  const bool is_narrow = width <= kNarrow && stride == width && plan.length >= kAccumulators;
  // Slices whose rows are one row of a tile.
  const std::int64_t together = is_narrow ? 1 : std::clamp<std::int64_t>(kTile / width, 1, slices);
  std::vector<Acc> scratch((kLevels + 1 + plan.chunks) * kTile +
                           (is_narrow ? kAccumulators * kNarrow : 0));
  auto* levels = reinterpret_cast<Acc(*)[kTile]>(scratch.data());
  auto* const partials = levels + kLevels + 1;
  std::vector<In> gathered(together > 1 ? SlicedColumns<In>::kGathered * kTile : 0);
  const auto reduce_columns_of = [&](const In* in, int columns, std::int64_t count, Acc* out) {
    if (is_narrow && count >= kAccumulators) {
      reduce_narrow<R, Merge>(in, count, columns, out, levels, partials[plan.chunks]);
    } else if (columns > width) {
      reduce_tile<R>(SlicedColumns<In>{in, stride, slice_stride, static_cast<int>(width), columns,
                                       reinterpret_cast<In(*)[kTile]>(gathered.data())},
                     count, out, levels);
    } else {
      reduce_tile<R>(Columns<In>{in, stride, columns}, count, out, levels);
    }
  };
  std::int64_t output = 0;
  while (output < plan.outputs) {
    const std::int64_t column = output % width;
    const std::int64_t slice = output / width % slices;
    const auto columns =
        static_cast<int>(together > 1 ? std::min(together, slices - slice) * width
                                      : std::min<std::int64_t>(kTile, width - column));
    const In* in = static_cast<const In*>(plan.in) + plan.kept.offset(output);
    for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
      const std::int64_t first = chunk * kReduceChunk;
      reduce_columns_of(in + first * stride, columns, std::min(kReduceChunk, plan.length - first),
                        partials[chunk]);
    }
    merge_tiles<Merge>(partials, plan.chunks, columns, levels);
    write_outputs<R, Merge, Acc, In>(plan, output, columns, partials[0]);
    output += columns;
  }
}

// Integers of longer rows are added along them.
constexpr std::int64_t kFewIntegers = 16;

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
      } else if (has_short_rows(plan) && (!kHasAnyOrder<Acc> || plan.length < kFewIntegers)) {
        reduce_short_rows<R, Merge, Acc, In>(plan);
      } else {
        reduce_rows<R, Merge, Acc, In>(plan);
      }
    }
  });
}

}  // namespace

void reduce(const ReducePlan& plan) {
  if (plan.op == Reduction::log_sum_exp) return reduce_log_sum_exp(plan);
  if (has_state(plan.op)) return reduce_moments(plan);
  dispatch_stored(plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<In>)) {
      if (plan.accumulator != DType::i64) return reduce_with<In, AccumulatorType<In>>(plan);
    }
    reduce_with<In, std::int64_t>(plan);
  });
}

}  // namespace gantry::kernels::host
