#include <algorithm>
#include <cstdint>

#include "kernels/host/host_fma.hpp"
#include "kernels/impl/cumulative.inl"

namespace gantry::kernels::host {

namespace {

// The number of fibres that run side by side.
constexpr int kTile = 256;

// Elements of one fibre that are looked at together.
constexpr int kBlock = 64;

// Writes the elements at positions found[0 … n), which name elements of `in`.
template <class U>
void write_found(const SortOutput<U>& out, const KeyOrder<U>& order, const U* in,
                 std::int64_t stride, const std::int64_t* found, std::int64_t first, int n) {
  const bool is_boolean = order.kind == KeyKind::boolean;
  for (int i = 0; i < n && out.values != nullptr; ++i) {
    const U bits = in[found[i] * stride];
    out.values[(first + i) * out.value_stride] = is_boolean ? static_cast<U>(bits != 0) : bits;
  }
  for (int i = 0; i < n && out.indices != nullptr; ++i) {
    out.indices[(first + i) * out.index_stride] = found[i];
  }
}

// Writes `n` values of to[i * stride].
template <class T>
void fill_strided(T* to, std::int64_t stride, T value, int n) {
  if (stride == 1) {
    std::fill_n(to, n, value);
  } else {
    for (int i = 0; i < n; ++i) to[i * stride] = value;
  }
}

// The same for `n` times one position, whose element is `bits`.
template <class U>
void write_best(const SortOutput<U>& out, const KeyOrder<U>& order, U bits, std::int64_t best,
                std::int64_t first, int n) {
  const bool is_boolean = order.kind == KeyKind::boolean;
  if (out.values != nullptr) {
    fill_strided(out.values + first * out.value_stride, out.value_stride,
                 is_boolean ? static_cast<U>(bits != 0) : bits, n);
  }
  if (out.indices != nullptr) {
    fill_strided(out.indices + first * out.index_stride, out.index_stride, best, n);
  }
}

// One fibre, block by block: keys, then the positions of the extrema, then their elements. Most
// blocks of long fibres have no new extremum, which vector code finds out.
template <class U, class KeyOf>
void run_one(const SortPlan& plan, const KeyOrder<U>& order, const KeyOf& key_of,
             std::int64_t fibre) {
  const U* const in = sort_input<U>(plan, fibre);
  const std::int64_t stride = plan.fibres.in.stride;
  const SortOutput<U> out = sort_output<U>(plan, fibre);
  U keys[kBlock];
  std::int64_t found[kBlock];
  U best_key = key_of(in[0]);
  std::int64_t best = 0;
  for (std::int64_t first = 0; first < plan.fibres.length; first += kBlock) {
    const auto n = static_cast<int>(std::min<std::int64_t>(kBlock, plan.fibres.length - first));
    const U* const from = in + first * stride;
    if (stride == 1) {
      for (int i = 0; i < n; ++i) keys[i] = key_of(from[i]);
    } else {
      for (int i = 0; i < n; ++i) keys[i] = key_of(from[i * stride]);
    }
    U highest = keys[0];
    for (int i = 1; i < n; ++i) highest = keys[i] > highest ? keys[i] : highest;
    if (highest < best_key) {
      write_best(out, order, in[best * stride], best, first, n);
      continue;
    }
    for (int i = 0; i < n; ++i) {
      const bool takes = keys[i] >= best_key;
      best_key = takes ? keys[i] : best_key;
      best = takes ? first + i : best;
      found[i] = best;
    }
    write_found(out, order, in, stride, found, first, n);
  }
}

// Neighbouring fibres, whose elements are adjacent in all operands.
template <class U, class KeyOf>
void run_tile(const SortPlan& plan, const KeyOrder<U>& order, const KeyOf& key_of,
              std::int64_t fibre, int columns) {
  const U* const in = sort_input<U>(plan, fibre);
  const std::int64_t stride = plan.fibres.in.stride;
  const SortOutput<U> out = sort_output<U>(plan, fibre);
  const bool is_boolean = order.kind == KeyKind::boolean;
  U best_bits[kTile];
  U best_keys[kTile];
  std::int64_t best[kTile];
  std::fill_n(best, columns, 0);
  for (int c = 0; c < columns; ++c) {
    best_bits[c] = in[c];
    best_keys[c] = key_of(in[c]);
  }
  for (std::int64_t i = 0; i < plan.fibres.length; ++i) {
    const U* const row = in + i * stride;
    for (int c = 0; c < columns; ++c) {
      const U key = key_of(row[c]);
      const bool takes = key >= best_keys[c];
      best_bits[c] = takes ? row[c] : best_bits[c];
      best[c] = takes ? i : best[c];
      best_keys[c] = takes ? key : best_keys[c];
    }
    if (out.values != nullptr) {
      U* const to = out.values + i * out.value_stride;
      for (int c = 0; c < columns; ++c) {
        to[c] = is_boolean ? static_cast<U>(best_bits[c] != 0) : best_bits[c];
      }
    }
    if (out.indices != nullptr) std::copy_n(best, columns, out.indices + i * out.index_stride);
  }
}

// True if neighbouring fibres have adjacent elements in all operands.
bool has_adjacent_fibres(const SortPlan& plan) {
  const int last = plan.fibres.in.outer.ndim - 1;
  const auto is_dense = [last](const Fibres& fibres) {
    return fibres.data == nullptr || fibres.outer.strides[last] == 1;
  };
  return plan.fibres.is_column_wise() && is_dense(plan.fibres.in) && is_dense(plan.fibres.out) &&
         is_dense(plan.indices);
}

}  // namespace

void cumulative_extremum(const SortPlan& plan) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    const KeyOrder<U> order = make_extremum_order<U>(plan.fibres.dtype, plan.largest_first);
    with_key_function(order, [&](const auto& key_of) {
      with_fma([&] {
        const std::int64_t count = plan.fibres.count;
        if (!has_adjacent_fibres(plan)) {
          for (std::int64_t fibre = 0; fibre < count; ++fibre) {
            run_one<U>(plan, order, key_of, fibre);
          }
          return;
        }
        const StridedIndex& outer = plan.fibres.in.outer;
        const std::int64_t width = outer.sizes[outer.ndim - 1];
        for (std::int64_t fibre = 0; fibre < count;) {
          const auto columns =
              static_cast<int>(std::min<std::int64_t>(kTile, width - fibre % width));
          run_tile<U>(plan, order, key_of, fibre, columns);
          fibre += columns;
        }
      });
    });
  });
}

}  // namespace gantry::kernels::host
