// Reductions whose state is several numbers, in the order of Note [Reduction order].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/host/reductions/short_rows.hpp"
#include "kernels/input.hpp"

namespace gantry::kernels::host {

// `count` structures of numbers of type Acc, one array for each number: vector code needs no
// shuffles then.
template <class Acc>
class NumberArrays {
 public:
  explicit NumberArrays(Acc* memory, std::int64_t count) : memory_(memory), count_(count) {}

  template <class S>
  [[nodiscard]] S get(std::int64_t at) const {
    return [&]<std::size_t... i>(std::index_sequence<i...>) {
      return S{memory_[i * count_ + at]...};
    }
    (std::make_index_sequence<sizeof(S) / sizeof(Acc)>{});
  }
  template <class S>
  void set(std::int64_t at, const S& value) const {
    if constexpr (sizeof(S) == 4 * sizeof(Acc)) {
      const auto& [a, b, c, d] = value;
      memory_[at] = a;
      memory_[count_ + at] = b;
      memory_[2 * count_ + at] = c;
      memory_[3 * count_ + at] = d;
    } else {
      const auto& [a, b] = value;
      memory_[at] = a;
      memory_[count_ + at] = b;
    }
  }

 private:
  Acc* memory_;
  std::int64_t count_;
};

// Takes `n` neighbouring elements into the accumulators from `at` on. They begin at element `k` of
// the chunk.
template <class R, class Acc, class In>
void take_elements(const NumberArrays<Acc>& accumulators, std::int64_t at, const In* in,
                   std::int64_t n, int k) {
  using Accumulator = typename R::Accumulator;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    auto accumulator = accumulators.template get<Accumulator>(at + i);
    R::take(accumulator, in[i], k);
    accumulators.set(at + i, accumulator);
  }
}

// Closes the accumulators of chunks of `count` elements, `columns` side by side, and combines their
// states: the first `columns` ones are the results.
template <class R, class Acc>
void merge_accumulators(const NumberArrays<Acc>& arrays, std::int64_t count, std::int64_t columns) {
  using State = typename R::State;
  static_assert(sizeof(State) == sizeof(typename R::Accumulator));
  const int width = accumulator_count(count);
  for (int j = 0; j < width; ++j) {
    const auto n =
        static_cast<int>(count > j ? (count - j + kAccumulators - 1) / kAccumulators : 0);
#pragma GCC ivdep
    for (std::int64_t i = j * columns; i < (j + 1) * columns; ++i) {
      arrays.set(i, R::close(arrays.template get<typename R::Accumulator>(i), n, 0));
    }
  }
  for (int half = width / 2; half > 0; half /= 2) {
    const std::int64_t values = half * columns;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < values; ++i) {
      arrays.set(i,
                 R::combine(arrays.template get<State>(i), arrays.template get<State>(i + values)));
    }
  }
}

// Reduces one chunk of `count` contiguous elements.
template <class R, class Acc, class In>
typename R::State reduce_state_chunk(const In* in, std::int64_t count, Acc* memory) {
  const NumberArrays<Acc> arrays(memory, kAccumulators);
  with_fma([=] {
    for (int j = 0; j < kAccumulators; ++j) arrays.set(j, R::start());
    for (std::int64_t k = 0; k < count; k += kAccumulators) {
      const std::int64_t n = std::min<std::int64_t>(kAccumulators, count - k);
      take_elements<R>(arrays, 0, in + k, n, static_cast<int>(k));
    }
    merge_accumulators<R>(arrays, count, 1);
  });
  return arrays.template get<typename R::State>(0);
}

// Reduces one chunk of `count` elements of each column.
template <class R, class Acc, class Rows>
void reduce_state_tile(const Rows& rows, std::int64_t count, typename R::State* out, Acc* memory) {
  const std::int64_t columns = rows.columns;
  const NumberArrays<Acc> arrays(memory, kAccumulators * columns);
  with_fma([=, &rows] {
    const std::int64_t used = accumulator_count(count) * columns;
    for (std::int64_t i = 0; i < used; ++i) arrays.set(i, R::start());
    for (std::int64_t k = 0; k < count; ++k) {
      take_elements<R>(arrays, k % kAccumulators * columns, rows.row(k), columns,
                       static_cast<int>(k));
    }
    merge_accumulators<R>(arrays, count, columns);
  });
  for (std::int64_t c = 0; c < columns; ++c) out[c] = arrays.template get<typename R::State>(c);
}

// Combines the states of one output's chunks, level by level.
template <class R>
typename R::State merge_states(std::vector<typename R::State>& states) {
  while (states.size() > 1) {
    std::vector<typename R::State> results;
    for (std::size_t first = 0; first < states.size(); first += kReduceChunk) {
      const std::size_t count = std::min<std::size_t>(kReduceChunk, states.size() - first);
      typename R::State* const chunk = states.data() + first;
      for (std::size_t k = kAccumulators; k < count; ++k) {
        chunk[k % kAccumulators] = R::combine(chunk[k % kAccumulators], chunk[k]);
      }
      const std::size_t width = std::min<std::size_t>(kAccumulators, count);
      for (std::size_t half = kAccumulators / 2; half > 0; half /= 2) {
        for (std::size_t j = 0; j < half && j + half < width; ++j) {
          chunk[j] = R::combine(chunk[j], chunk[j + half]);
        }
      }
      results.push_back(chunk[0]);
    }
    states = std::move(results);
  }
  return states[0];
}

// Writes the results of neighbouring outputs from `first` on. The functions of a result use fma.
template <class R>
void write_states(const ReducePlan& plan, std::int64_t first, int count,
                  const typename R::State* states) {
  with_fma([=, &plan] {
    for (int i = 0; i < count; ++i) R::write(plan, first + i, states[i]);
  });
}

// The most columns whose accumulators stay in the second cache.
inline constexpr std::int64_t kStateColumns = 64;

// Reduces neighbouring outputs, whose elements are adjacent in the input, one tile at a time.
template <class R, class Acc, class In>
void reduce_state_columns(const ReducePlan& plan) {
  const int last = plan.kept.ndim - 1;
  const std::int64_t width = plan.kept.sizes[last];
  const std::int64_t stride = plan.reduced.strides[0];
  const std::int64_t slices = last > 0 ? plan.kept.sizes[last - 1] : 1;
  const std::int64_t slice_stride = last > 0 ? plan.kept.strides[last - 1] : 0;
  // Slices whose rows are one row of a tile.
  const std::int64_t together = std::clamp<std::int64_t>(kStateColumns / width, 1, slices);
  std::vector<Acc> memory(kAccumulators * kStateColumns * sizeof(typename R::State) / sizeof(Acc));
  std::vector<In> gathered(together > 1 ? SlicedColumns<In>::kGathered * kTile : 0);
  std::vector<typename R::State> results(kStateColumns * plan.chunks);
  std::vector<typename R::State> states;
  for (std::int64_t output = 0; output < plan.outputs;) {
    const std::int64_t column = output % width;
    const std::int64_t slice = output / width % slices;
    const auto columns = static_cast<int>(together > 1 ? std::min(together, slices - slice) * width
                                                       : std::min(kStateColumns, width - column));
    const In* const in = static_cast<const In*>(plan.in) + plan.kept.offset(output);
    for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
      const In* const from = in + chunk * kReduceChunk * stride;
      const std::int64_t count = std::min(kReduceChunk, plan.length - chunk * kReduceChunk);
      auto* const to = results.data() + chunk * kStateColumns;
      if (columns > width) {
        reduce_state_tile<R>(
            SlicedColumns<In>{from, stride, slice_stride, static_cast<int>(width), columns,
                              reinterpret_cast<In(*)[kTile]>(gathered.data())},
            count, to, memory.data());
      } else {
        reduce_state_tile<R>(Columns<In>{from, stride, columns}, count, to, memory.data());
      }
    }
    for (int c = 0; c < columns && plan.chunks > 1; ++c) {
      states.clear();
      for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
        states.push_back(results[chunk * kStateColumns + c]);
      }
      results[c] = merge_states<R>(states);
    }
    write_states<R>(plan, output, columns, results.data());
    output += columns;
  }
}

// Reduces short rows side by side.
template <class R, class Acc, class In>
void reduce_state_short_rows(const ReducePlan& plan) {
  using Word = WordOf<In>;
  const int last = plan.kept.ndim - 1;
  const std::int64_t width = plan.kept.sizes[last];
  std::vector<Acc> memory(kAccumulators * kStateColumns * sizeof(typename R::State) / sizeof(Acc));
  std::vector<In> transposed(static_cast<std::size_t>(plan.length * kStateColumns));
  std::vector<typename R::State> results(kStateColumns);
  for (std::int64_t output = 0; output < plan.outputs;) {
    const auto rows = static_cast<int>(std::min(kStateColumns, width - output % width));
    const Word* const in = static_cast<const Word*>(plan.in) + plan.kept.offset(output);
    transpose_words(Transposition<Word>{reinterpret_cast<Word*>(transposed.data()), kStateColumns,
                                        in, plan.kept.strides[last], rows, plan.length});
    reduce_state_tile<R>(Columns<In>{transposed.data(), kStateColumns, rows}, plan.length,
                         results.data(), memory.data());
    write_states<R>(plan, output, rows, results.data());
    output += rows;
  }
}

// Reduces one output at a time.
template <class R, class Acc, class In>
void reduce_state_rows(const ReducePlan& plan) {
  const bool is_dense =
      plan.reduced.ndim == 0 || (plan.reduced.ndim == 1 && plan.reduced.strides[0] == 1);
  std::vector<Acc> memory(kAccumulators * sizeof(typename R::State) / sizeof(Acc));
  std::vector<In> gathered(is_dense ? 0 : std::min(plan.length, kReduceChunk));
  std::vector<typename R::State> states;
  for (std::int64_t output = 0; output < plan.outputs; ++output) {
    const In* const row = static_cast<const In*>(plan.in) + plan.kept.offset(output);
    states.clear();
    for (std::int64_t first = 0; first < plan.length; first += kReduceChunk) {
      const std::int64_t count = std::min(kReduceChunk, plan.length - first);
      const In* in = row + first;
      if (!is_dense) {
        for (std::int64_t k = 0; k < count; ++k) gathered[k] = row[plan.reduced.offset(first + k)];
        in = gathered.data();
      }
      states.push_back(reduce_state_chunk<R>(in, count, memory.data()));
    }
    const typename R::State state = merge_states<R>(states);
    write_states<R>(plan, output, 1, &state);
  }
}

// Reduces `plan`, of elements of a floating dtype, with states of R.
template <template <class> class R>
void reduce_states(const ReducePlan& plan) {
  dispatch_floating("reduce", plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    using Acc = AccumulatorType<In>;
    if (plan.is_column_wise() && plan.kept.strides[plan.kept.ndim - 1] == 1) {
      reduce_state_columns<R<Acc>, Acc, In>(plan);
    } else if (has_short_rows(plan)) {
      reduce_state_short_rows<R<Acc>, Acc, In>(plan);
    } else {
      reduce_state_rows<R<Acc>, Acc, In>(plan);
    }
  });
}

}  // namespace gantry::kernels::host
