#include "kernels/impl/gather.inl"

#include <algorithm>
#include <cstring>

#include "kernels/host/host_fma.hpp"
#include "kernels/host/indexing/position_window.hpp"
#include "kernels/host/indexing/row_groups.hpp"
#include "kernels/impl/scatter.inl"

namespace gantry::kernels::host {

namespace {

// Strides of a row's operands: the output, the input along the row, and the input along the index.
struct GatherStrides {
  std::int64_t to;
  std::int64_t from;
  std::int64_t index;
};

// A row whose positions have an index each.
template <class T>
void gather_each(T* to, const T* from, const std::int64_t* positions, std::int64_t n,
                 bool are_inside, const GatherStrides& strides) {
  if (!are_inside) {
    for (std::int64_t i = 0; i < n; ++i) {
      to[i * strides.to] =
          positions[i] < 0 ? T{} : from[i * strides.from + positions[i] * strides.index];
    }
  } else if (strides.to == 1 && strides.from == 0 && strides.index == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[positions[i]];
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      to[i * strides.to] = from[i * strides.from + positions[i] * strides.index];
    }
  }
}

// Copies `n` elements of other memory. A row of up to 64 bytes is a few words, the last of which
// share bytes with the ones before: a call of memcpy takes longer.
template <class T>
void copy_elements(T* to, const T* from, std::int64_t n) {
  struct Word {
    std::uint64_t halves[2];
  };
  constexpr std::size_t kWord = sizeof(Word);
  const auto bytes = static_cast<std::size_t>(n) * sizeof(T);
  const auto* const source = reinterpret_cast<const char*>(from);
  auto* const target = reinterpret_cast<char*>(to);
  const auto move = [&](std::size_t at, std::size_t other) {
    Word first, second;
    std::memcpy(&first, source + at, kWord);
    std::memcpy(&second, source + other, kWord);
    std::memcpy(target + at, &first, kWord);
    std::memcpy(target + other, &second, kWord);
  };
  if (bytes < kWord) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
  } else if (bytes <= 2 * kWord) {
    move(0, bytes - kWord);
  } else if (bytes <= 4 * kWord) {
    move(0, kWord);
    move(bytes - 2 * kWord, bytes - kWord);
  } else {
    std::memcpy(target, source, bytes);
  }
}

// A row of one index.
template <class T>
void gather_row(T* to, const T* from, std::int64_t position, std::int64_t n,
                const GatherStrides& strides) {
  const T* const row = from + position * strides.index;
  if (position < 0) {
    for (std::int64_t i = 0; i < n; ++i) to[i * strides.to] = T{};
  } else if (strides.to == 1 && strides.from == 1) {
    copy_elements(to, row, n);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * strides.to] = row[i * strides.from];
  }
}

template <class T>
void gather_rows(const IndexingPlan& plan) {
  PositionWindow window(plan, PositionWindow::Writes::direct);
  const auto [to_stride, from_stride, next_index] = plan.positions.strides[0];
  const GatherStrides strides{to_stride, from_stride, plan.index_stride};
  const std::int64_t length = plan.positions.sizes[0];
  auto* const out = static_cast<T*>(plan.direct);
  const auto* const in = static_cast<const T*>(plan.indexed);
  if (has_index_a_row(plan.positions)) {
    return for_each_indexed_row(
        plan.positions, window,
        [&](std::int64_t direct, std::int64_t indexed, std::int64_t position) {
          gather_row(out + direct, in + indexed, position, length, strides);
        });
  }
  if (has_short_rows(plan.positions)) {
    return for_each_short_row(
        plan.positions, window,
        [&](std::int64_t direct, std::int64_t indexed, const std::int64_t* positions) {
          gather_each(out + direct, in + indexed, positions, length, window.are_inside(), strides);
        });
  }
  for_each_row(plan.positions, [&](const std::int64_t(&offsets)[3]) {
    T* const to = out + offsets[0];
    const T* const from = in + offsets[1];
    if (next_index == 0) {
      return gather_row(to, from, *window.at(offsets[2], 1, 1), length, strides);
    }
    for (std::int64_t done = 0; done < length; done += kPositions) {
      const auto n = static_cast<int>(std::min<std::int64_t>(kPositions, length - done));
      const std::int64_t* const positions =
          window.at(offsets[2] + done * next_index, next_index, n);
      gather_each(to + done * to_stride, from + done * from_stride, positions, n,
                  window.are_inside(), strides);
    }
  });
}

}  // namespace

void gather(const IndexingPlan& plan) {
  dispatch_word(plan.element_bytes, [&](auto tag) {
    with_fma([&] { gather_rows<typename decltype(tag)::type>(plan); });
  });
}

void index_offsets(const OffsetsPlan& plan) {
  for_each_position(plan.positions, [&](const std::int64_t(&offsets)[3]) {
    plan.out[offsets[0]] = offset_of_terms(plan, offsets, report_fault);
  });
}

}  // namespace gantry::kernels::host
