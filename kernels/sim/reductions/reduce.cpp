#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/sim/reductions/chunks.hpp"

namespace gantry::kernels::host {

namespace {

// The number of columns that are reduced side by side.
constexpr int kTile = 512;

// Reduces one output at a time.
template <class R, class Merge, class Acc, class In>
void reduce_rows(const ReducePlan& plan) {
  std::vector<In> gathered;
  if (plan.reduced.ndim > 1) gathered.resize(std::min(plan.length, kReduceChunk));
  std::vector<Acc> partials;
  for (std::int64_t output = 0; output < plan.outputs; ++output) {
    const In* row = static_cast<const In*>(plan.in) + plan.kept.offset(output);
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
    store_reduced<Acc>(plan.out, plan.kept_out.offset(output), plan.out_dtype,
                       merge_partials<Merge>(partials), plan.divisor);
  }
}

// Reduces one chunk of `columns` neighbouring outputs. Element k of column c is in[k * stride + c].
template <class R, class Acc, class In>
void reduce_tile(const In* in, std::int64_t count, std::int64_t stride, int columns,
                 Acc (*accumulators)[kTile], Acc* out) {
  const int width = accumulator_count(count);
  for (int j = 0; j < width; ++j) std::fill_n(accumulators[j], columns, R::neutral());
  // One lane after the other: its accumulators stay in the cache.
  with_fma([=] {
    for (int j = 0; j < width; ++j) {
      Acc* into = accumulators[j];
      for (std::int64_t k = j; k < count; k += kAccumulators) {
        const In* row = in + k * stride;
        for (int c = 0; c < columns; ++c) into[c] = R::combine(into[c], R::load(row[c]));
      }
    }
  });
  for (int half = width / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) {
      for (int c = 0; c < columns; ++c) {
        accumulators[j][c] = R::combine(accumulators[j][c], accumulators[j + half][c]);
      }
    }
  }
  std::copy_n(accumulators[0], columns, out);
}

// Reduces outputs whose elements are adjacent in the input, one tile at a time.
template <class R, class Merge, class Acc, class In>
void reduce_columns(const ReducePlan& plan) {
  const std::int64_t width = plan.kept.sizes[plan.kept.ndim - 1];
  const std::int64_t stride = plan.reduced.strides[0];
  std::vector<Acc> scratch(kAccumulators * kTile);
  auto* accumulators = reinterpret_cast<Acc(*)[kTile]>(scratch.data());
  std::vector<Acc> tile_partials(plan.chunks * kTile);
  std::vector<Acc> partials;
  for (std::int64_t base = 0; base < plan.outputs; base += width) {
    for (std::int64_t column = 0; column < width; column += kTile) {
      const int columns = static_cast<int>(std::min<std::int64_t>(kTile, width - column));
      const In* in = static_cast<const In*>(plan.in) + plan.kept.offset(base + column);
      for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
        const std::int64_t first = chunk * kReduceChunk;
        reduce_tile<R, Acc>(in + first * stride, std::min(kReduceChunk, plan.length - first),
                            stride, columns, accumulators, tile_partials.data() + chunk * kTile);
      }
      for (int c = 0; c < columns; ++c) {
        partials.clear();
        for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
          partials.push_back(tile_partials[chunk * kTile + c]);
        }
        store_reduced<Acc>(plan.out, plan.kept_out.offset(base + column + c), plan.out_dtype,
                           merge_partials<Merge>(partials), plan.divisor);
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
