#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/ordering/ordered_key.hpp"
#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::host {

namespace {

// A key and its position. Pairs of one fibre differ, so any sort of them is stable.
template <class U, class Position>
struct Entry {
  U key;
  Position position;

  friend bool operator<(const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : a.position < b.position;
  }
};

// Fewest entries that a radix sort is faster for.
constexpr std::size_t kRadixEntries = 256;

// Sorts by key, a byte at a time. The entries are in the order of their positions.
template <class E>
void radix_sort(std::vector<E>& entries, std::vector<E>& other) {
  using U = decltype(E::key);
  constexpr int kBytes = static_cast<int>(sizeof(U));
  std::array<std::array<std::size_t, 256>, kBytes> counts{};
  for (const E& entry : entries) {
    for (int byte = 0; byte < kBytes; ++byte) ++counts[byte][(entry.key >> (8 * byte)) & 0xff];
  }
  other.resize(entries.size());
  for (int byte = 0; byte < kBytes; ++byte) {
    std::array<std::size_t, 256>& next = counts[byte];
    if (next[(entries[0].key >> (8 * byte)) & 0xff] == entries.size()) continue;
    std::size_t total = 0;
    for (std::size_t& count : next) total += std::exchange(count, total);
    for (const E& entry : entries) other[next[(entry.key >> (8 * byte)) & 0xff]++] = entry;
    entries.swap(other);
  }
}

// Brings the entries in [first, first + count) of the order to their places.
template <class E>
void sort_part(std::vector<E>& entries, std::vector<E>& other, std::size_t first,
               std::size_t count) {
  const auto begin = entries.begin();
  const std::size_t end = first + count;
  if (end <= entries.size() / 64) {
    std::partial_sort(begin, begin + static_cast<std::ptrdiff_t>(end), entries.end());
  } else if (count == 1) {
    std::nth_element(begin, begin + static_cast<std::ptrdiff_t>(first), entries.end());
  } else if (first == 0 && end < entries.size() / 8) {
    std::nth_element(begin, begin + static_cast<std::ptrdiff_t>(end), entries.end());
    std::sort(begin, begin + static_cast<std::ptrdiff_t>(end));
  } else if (entries.size() < kRadixEntries) {
    std::sort(begin, entries.end());
  } else {
    radix_sort(entries, other);
  }
}

template <class U, class Position>
void sort_fibres(const SortPlan& plan) {
  const KeyOrder<U> order = make_key_order<U>(plan.fibres.dtype, plan.largest_first);
  const auto length = static_cast<std::size_t>(plan.fibres.length);
  std::vector<Entry<U, Position>> entries;
  std::vector<Entry<U, Position>> other;
  for (std::int64_t fibre = 0; fibre < plan.fibres.count; ++fibre) {
    const U* in = sort_input<U>(plan, fibre);
    const std::int64_t stride = plan.fibres.in.stride;
    entries.resize(length);
    with_key_function(order, [&](const auto& key_of) {
      for (std::size_t i = 0; i < length; ++i) {
        entries[i] = {key_of(in[static_cast<std::int64_t>(i) * stride]), static_cast<Position>(i)};
      }
    });
    const std::int64_t first = first_rank(plan, fibre);
    sort_part(entries, other, static_cast<std::size_t>(first),
              static_cast<std::size_t>(plan.count));
    const SortOutput<U> out = sort_output<U>(plan, fibre);
    for (std::int64_t i = 0; i < plan.count; ++i) {
      const Entry<U, Position>& entry = entries[static_cast<std::size_t>(first + i)];
      const auto position = static_cast<std::int64_t>(entry.position);
      const U value = order.is_exact(entry.key) ? order.element(entry.key) : in[position * stride];
      out.write(i, value, position);
    }
  }
}

}  // namespace

void sort(const SortPlan& plan) {
  dispatch_keys(plan.fibres.dtype, [&](auto tag) {
    using U = typename decltype(tag)::type;
    if (plan.fibres.length <= INT64_C(0xffffffff)) {
      sort_fibres<U, std::uint32_t>(plan);
    } else {
      sort_fibres<U, std::uint64_t>(plan);
    }
  });
}

}  // namespace gantry::kernels::host
