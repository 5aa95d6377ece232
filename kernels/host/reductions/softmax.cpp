#include "kernels/impl/softmax.inl"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kernels/host/reductions/short_rows.hpp"
#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::host {

namespace {

// The largest element of `in`. Comparisons have no rounding: any order gives the same value, and
// NaN wins in each.
template <class Acc>
Acc largest(const Acc* in, std::int64_t count) {
  return reduce_contiguous<SoftmaxMax<Acc>, SoftmaxMax<Acc>, Acc>(in, count);
}

// Elements `stride` apart, as contiguous accumulators and back.
template <class Acc, class T>
void read_fibre(Acc* to, const T* from, std::int64_t stride, std::int64_t count) {
  if (stride == 1) {
    for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<Acc>(from[k]);
  } else {
    for (std::int64_t k = 0; k < count; ++k) to[k] = static_cast<Acc>(from[k * stride]);
  }
}
template <class T, class Acc>
void write_fibre(T* to, std::int64_t stride, const Acc* from, std::int64_t count) {
  if (stride == 1) {
    for (std::int64_t k = 0; k < count; ++k) to[k] = from_accumulator<T>(from[k]);
  } else {
    for (std::int64_t k = 0; k < count; ++k) to[k * stride] = from_accumulator<T>(from[k]);
  }
}

// One fibre of contiguous accumulators, which may be in place. `exponentials` has room for one.
template <class Acc>
void softmax_dense(bool logarithm, Acc* out, const Acc* in, std::int64_t length,
                   Acc* exponentials) {
  using Sum = SoftmaxSum<Acc>;
  const Acc maximum = largest(in, length);
  if (!logarithm) exponentials = out;
  with_fma([=] {
    for (std::int64_t k = 0; k < length; ++k) exponentials[k] = exponential(in[k] - maximum);
  });
  const Acc sum = reduce_contiguous<Sum, Sum, Acc>(exponentials, length);
  with_fma([=] {
    const Acc tail = logarithm ? natural_logarithm(sum) : sum;
    if (logarithm) {
      for (std::int64_t k = 0; k < length; ++k)
        out[k] = from_accumulator<Acc>(softmax_element(true, in[k], maximum, tail));
    } else {
      for (std::int64_t k = 0; k < length; ++k) out[k] = from_accumulator<Acc>(out[k] / tail);
    }
  });
}

template <class T>
void softmax_fibres(bool logarithm, const FibrePlan& plan) {
  using Acc = AccumulatorType<T>;
  const std::int64_t length = plan.length;
  const bool is_dense = std::is_same_v<T, Acc> && plan.in.stride == 1 && plan.out.stride == 1;
  std::vector<Acc> values(is_dense ? 0 : static_cast<std::size_t>(length));
  std::vector<Acc> exponentials(is_dense && !logarithm ? 0 : static_cast<std::size_t>(length));
  for (std::int64_t fibre = 0; fibre < plan.count; ++fibre) {
    const T* in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    if constexpr (std::is_same_v<T, Acc>) {
      if (is_dense) {
        softmax_dense(logarithm, out, in, length, exponentials.data());
        continue;
      }
    }
    with_fma([&] { read_fibre(values.data(), in, plan.in.stride, length); });
    softmax_dense(logarithm, values.data(), values.data(), length, exponentials.data());
    with_fma([&] { write_fibre(out, plan.out.stride, values.data(), length); });
  }
}

// exponentials[c] = e^(in[c] - maximum[c]).
template <class Acc, class T>
void exponentiate(Acc* __restrict__ exponentials, const T* __restrict__ in,
                  const Acc* __restrict__ maximum, int columns) {
  for (int c = 0; c < columns; ++c) {
    exponentials[c] = exponential(static_cast<Acc>(in[c]) - maximum[c]);
  }
}

// One row of results of neighbouring fibres. `out` may be `in`.
template <class Acc, class T>
void write_row(bool logarithm, T* out, const T* in, const Acc* __restrict__ exponentials,
               const Acc* __restrict__ maximum, const Acc* __restrict__ tail, int columns) {
  if (logarithm) {
#pragma GCC ivdep
    for (int c = 0; c < columns; ++c) {
      const Acc value = softmax_element(true, static_cast<Acc>(in[c]), maximum[c], tail[c]);
      out[c] = from_accumulator<T>(value);
    }
  } else {
    for (int c = 0; c < columns; ++c) out[c] = from_accumulator<T>(exponentials[c] / tail[c]);
  }
}

// Fibres whose elements are adjacent, one tile at a time.
template <class T>
void softmax_columns(bool logarithm, const FibrePlan& plan) {
  using Acc = AccumulatorType<T>;
  using Max = SoftmaxMax<Acc>;
  using Sum = SoftmaxSum<Acc>;
  // The exponentials of a tile stay in the second cache.
  constexpr std::int64_t kTileBytes = std::int64_t{1} << 18;
  constexpr std::int64_t kFewest = 16;
  const std::int64_t length = plan.length;
  const std::int64_t width = plan.in.outer.sizes[plan.in.outer.ndim - 1];
  const std::int64_t fitting = kTileBytes / (length * static_cast<std::int64_t>(sizeof(Acc)));
  const std::int64_t tile =
      std::min(width, std::clamp<std::int64_t>(fitting / kFewest * kFewest, kFewest, kTile));
  const std::int64_t chunks = (length + kReduceChunk - 1) / kReduceChunk;
  std::vector<Acc> scratch((kLevels + 2 + chunks) * kTile + length * tile);
  auto* levels = reinterpret_cast<Acc(*)[kTile]>(scratch.data());
  Acc* const maximum = levels[kLevels + 1];
  auto* const sums = levels + kLevels + 2;
  Acc* const exponentials = sums[chunks];
  for (std::int64_t fibre = 0; fibre < plan.count;) {
    const auto columns = static_cast<int>(std::min(tile, width - fibre % width));
    const T* const in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* const out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    const Columns<T> rows{in, plan.in.stride, columns};
    with_fma([=] {
      // Any order gives the same value, as in largest().
      std::fill_n(maximum, columns, Max::neutral());
      for (std::int64_t k = 0; k < length; ++k) {
        const T* const row = rows.row(k);
        for (int c = 0; c < columns; ++c) maximum[c] = Max::combine(maximum[c], Max::load(row[c]));
      }
      for (std::int64_t k = 0; k < length; ++k) {
        exponentiate(exponentials + k * columns, rows.row(k), maximum, columns);
      }
    });
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t first = chunk * kReduceChunk;
      reduce_tile<Sum>(Columns<Acc>{exponentials + first * columns, columns, columns},
                       std::min(kReduceChunk, length - first), sums[chunk], levels);
    }
    merge_tiles<Sum>(sums, chunks, columns, levels);
    with_fma([=] {
      Acc* const tail = sums[0];
      if (logarithm) {
        for (int c = 0; c < columns; ++c) tail[c] = natural_logarithm(tail[c]);
      }
      for (std::int64_t k = 0; k < length; ++k) {
        write_row(logarithm, out + k * plan.out.stride, rows.row(k), exponentials + k * columns,
                  maximum, tail, columns);
      }
    });
    fibre += columns;
  }
}

// Contiguous fibres of kLength elements, each of which has an accumulator of its own in the sum.
template <int kLength, class T>
void softmax_whole_rows(bool logarithm, T* out, std::int64_t out_spacing, const T* in,
                        std::int64_t in_spacing, std::int64_t rows) {
  using Acc = AccumulatorType<T>;
  with_fma([=] {
    for (std::int64_t row = 0; row < rows; ++row) {
      T* const to = out + row * out_spacing;
      Acc elements[kLength];
      Acc exponentials[kLength];
      load_elements<SoftmaxMax<Acc>>(elements, in + row * in_spacing, kLength);
      const Acc maximum = merge_accumulators<SoftmaxMax<Acc>, kLength>(elements);
      for (int k = 0; k < kLength; ++k) exponentials[k] = exponential(elements[k] - maximum);
      const Acc sum = merge_accumulators<SoftmaxSum<Acc>, kLength>(exponentials);
      if (logarithm) {
        const Acc tail = natural_logarithm(sum);
        for (int k = 0; k < kLength; ++k)
          to[k] = from_accumulator<T>(softmax_element(true, elements[k], maximum, tail));
      } else {
        for (int k = 0; k < kLength; ++k) to[k] = from_accumulator<T>(exponentials[k] / sum);
      }
    }
  });
}

// Short contiguous fibres: whole rows, or columns of their transpose.
template <class T>
void softmax_short_fibres(bool logarithm, const FibrePlan& plan) {
  using Word = WordOf<T>;
  const int last = plan.in.outer.ndim - 1;
  const std::int64_t width = plan.in.outer.sizes[last];
  std::vector<Word> columns(static_cast<std::size_t>(plan.length * kTile));
  FibrePlan tile;
  tile.dtype = plan.dtype;
  tile.length = plan.length;
  tile.in.data = tile.out.data = columns.data();
  tile.in.stride = tile.out.stride = kTile;
  for (std::int64_t fibre = 0; fibre < plan.count; fibre += tile.count) {
    tile.count = std::min<std::int64_t>(kTile, width - fibre % width);
    const T* const in = static_cast<const T*>(plan.in.data) + plan.in.outer.offset(fibre);
    T* const out = static_cast<T*>(plan.out.data) + plan.out.outer.offset(fibre);
    const std::int64_t in_spacing = plan.in.outer.strides[last];
    const std::int64_t out_spacing = plan.out.outer.strides[last];
    if (plan.length == 64) {
      softmax_whole_rows<64>(logarithm, out, out_spacing, in, in_spacing, tile.count);
      continue;
    }
    if (plan.length == 32) {
      softmax_whole_rows<32>(logarithm, out, out_spacing, in, in_spacing, tile.count);
      continue;
    }
    tile.in.outer = {.ndim = 1, .sizes = {tile.count}, .strides = {1}};
    tile.out.outer = tile.in.outer;
    transpose_words(Transposition<Word>{columns.data(), kTile, reinterpret_cast<const Word*>(in),
                                        in_spacing, tile.count, plan.length});
    softmax_columns<T>(logarithm, tile);
    transpose_words(Transposition<Word>{reinterpret_cast<Word*>(out), out_spacing, columns.data(),
                                        kTile, plan.length, tile.count});
  }
}

}  // namespace

void softmax(bool logarithm, const FibrePlan& fibres) {
  const FibrePlan plan = with_merged_dims(fibres);
  if (plan.length == 0) return;
  dispatch_stored(plan.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating_point(dtype_of<T>)) {
      const int last = plan.in.outer.ndim - 1;
      if (plan.is_column_wise() && plan.in.outer.strides[last] == 1 &&
          plan.out.outer.strides[last] == 1) {
        softmax_columns<T>(logarithm, plan);
      } else if (has_short_fibres(plan, kShortRow)) {
        softmax_short_fibres<T>(logarithm, plan);
      } else {
        softmax_fibres<T>(logarithm, plan);
      }
    }
  });
}

}  // namespace gantry::kernels::host
