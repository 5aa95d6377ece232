#include "kernels/impl/scatter.inl"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/host/host_fma.hpp"
#include "kernels/host/indexing/position_window.hpp"
#include "kernels/host/indexing/row_groups.hpp"

namespace gantry::kernels::host {

namespace {

// Update::apply with the test for NaN as a branch: a selection would lengthen the way from one
// addition to the next one at its position.
template <class Update, class T>
T updated(T old, T value) {
  if constexpr (std::is_same_v<Update, ScatterAdd<float>> ||
                std::is_same_v<Update, ScatterAdd<double>>) {
    const T sum = old + value;
    if (__builtin_expect(sum == sum, 1)) return sum;
  } else if constexpr (std::is_same_v<Update, ScatterAdd<bfloat16>>) {
    const float sum = static_cast<float>(old) + static_cast<float>(value);
    if (__builtin_expect(sum == sum, 1)) {
      const auto bits = std::bit_cast<std::uint32_t>(sum);
      return bfloat16::from_bits(
          static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16));
    }
  }
  return Update::apply(old, value);
}

// Strides of a row's operands: the input, the output along the row, and the output along the index.
struct ScatterStrides {
  std::int64_t from;
  std::int64_t to;
  std::int64_t index;
};

// A row whose positions have an index each.
template <class Update, class T>
void scatter_each(T* to, const T* from, const std::int64_t* positions, std::int64_t n,
                  bool are_inside, const ScatterStrides& strides) {
  if (are_inside && strides.to == 0 && strides.from == 1 && strides.index == 1) {
    for (std::int64_t i = 0; i < n; ++i) {
      to[positions[i]] = updated<Update>(to[positions[i]], from[i]);
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    if (positions[i] < 0) continue;
    T& element = to[i * strides.to + positions[i] * strides.index];
    element = updated<Update>(element, from[i * strides.from]);
  }
}

// A row of one index.
template <class Update, class T>
void scatter_row(T* to, const T* from, std::int64_t position, std::int64_t n,
                 const ScatterStrides& strides) {
  if (position < 0) return;
  T* const row = to + position * strides.index;
  if (strides.to == 1 && strides.from == 1) {
    for (std::int64_t i = 0; i < n; ++i) row[i] = Update::apply(row[i], from[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      row[i * strides.to] = Update::apply(row[i * strides.to], from[i * strides.from]);
    }
  }
}

template <class Update>
void scatter_rows(const IndexingPlan& plan) {
  using T = typename Update::Element;
  PositionWindow window(plan, PositionWindow::Writes::indexed);
  const auto [from_stride, to_stride, next_index] = plan.positions.strides[0];
  const ScatterStrides strides{from_stride, to_stride, plan.index_stride};
  const std::int64_t length = plan.positions.sizes[0];
  const auto* const in = static_cast<const T*>(plan.direct);
  auto* const out = static_cast<T*>(plan.indexed);
  if (has_index_a_row(plan.positions)) {
    return for_each_indexed_row(
        plan.positions, window,
        [&](std::int64_t direct, std::int64_t indexed, std::int64_t position) {
          scatter_row<Update>(out + indexed, in + direct, position, length, strides);
        });
  }
  if (has_short_rows(plan.positions)) {
    return for_each_short_row(
        plan.positions, window,
        [&](std::int64_t direct, std::int64_t indexed, const std::int64_t* positions) {
          scatter_each<Update>(out + indexed, in + direct, positions, length, window.are_inside(),
                               strides);
        });
  }
  for_each_row(plan.positions, [&](const std::int64_t(&offsets)[3]) {
    const T* const from = in + offsets[0];
    T* const to = out + offsets[1];
    if (next_index == 0) {
      return scatter_row<Update>(to, from, *window.at(offsets[2], 1, 1), length, strides);
    }
    for (std::int64_t done = 0; done < length; done += kPositions) {
      const auto n = static_cast<int>(std::min<std::int64_t>(kPositions, length - done));
      const std::int64_t* const positions =
          window.at(offsets[2] + done * next_index, next_index, n);
      scatter_each<Update>(to + done * to_stride, from + done * from_stride, positions, n,
                           window.are_inside(), strides);
    }
  });
}

}  // namespace

void scatter(const IndexingPlan& plan, ScatterMode mode) {
  dispatch_scatter(mode, plan.dtype, plan.element_bytes, [&](auto tag) {
    with_fma([&] { scatter_rows<typename decltype(tag)::type>(plan); });
  });
}

}  // namespace gantry::kernels::host
