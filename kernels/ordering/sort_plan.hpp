#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels {

// The plan of sort, select_rank and cumulative_extremum. A POD.
struct SortPlan {
  FibrePlan fibres;            // `out`: the values
  Fibres indices;              // of the written elements, i64
  Fibres ranks;                // i64; null data: `first` is the rank of every fibre
  bool largest_first = false;  // cumulative_extremum: the maximum
  std::int64_t first = 0;      // the first position of the order that is written
  std::int64_t count = 0;      // positions written
};

// The rank that fibre `fibre` begins with.
GANTRY_HD inline std::int64_t first_rank(const SortPlan& plan, std::int64_t fibre) {
  if (plan.ranks.data == nullptr) return plan.first;
  return static_cast<const std::int64_t*>(plan.ranks.data)[plan.ranks.outer.offset(fibre)];
}

// Where a fibre's values and indices go; null pointers skip them.
template <class U>
struct SortOutput {
  U* values = nullptr;
  std::int64_t* indices = nullptr;
  std::int64_t value_stride = 0;
  std::int64_t index_stride = 0;

  GANTRY_HD void write(std::int64_t at, U value, std::int64_t index) const {
    if (values != nullptr) values[at * value_stride] = value;
    if (indices != nullptr) indices[at * index_stride] = index;
  }
};

template <class U>
GANTRY_HD SortOutput<U> sort_output(const SortPlan& plan, std::int64_t fibre) {
  SortOutput<U> out;
  const Fibres& values = plan.fibres.out;
  if (values.data != nullptr) {
    out.values = static_cast<U*>(values.data) + values.outer.offset(fibre);
    out.value_stride = values.stride;
  }
  if (plan.indices.data != nullptr) {
    out.indices = static_cast<std::int64_t*>(plan.indices.data) + plan.indices.outer.offset(fibre);
    out.index_stride = plan.indices.stride;
  }
  return out;
}

template <class U>
GANTRY_HD const U* sort_input(const SortPlan& plan, std::int64_t fibre) {
  return static_cast<const U*>(plan.fibres.in.data) + plan.fibres.in.outer.offset(fibre);
}

namespace host {
void sort(const SortPlan& plan);
void cumulative_extremum(const SortPlan& plan);
}  // namespace host

namespace cuda {
// Elements of the longest fibre that the lanes of a warp sort.
inline constexpr std::int64_t kWarpSort = 128;
// Elements of the longest fibre that one block sorts, for elements of `bytes` bytes.
[[nodiscard]] constexpr std::int64_t longest_block_sort(std::size_t bytes) {
  return bytes <= 4 ? 16384 : 8192;
}
// The most elements per fibre that selection takes before it sorts them. Shorter fibres are sorted.
inline constexpr std::int64_t kMostSelected = 2048;

// True for fibres longer than kMostSelected of which few elements are written: select() finds them.
[[nodiscard]] inline bool is_selection(const SortPlan& plan) {
  return plan.fibres.length > kMostSelected && plan.count < plan.fibres.length &&
         plan.count <= kMostSelected;
}

// True if a block, or a warp, sorts a fibre.
[[nodiscard]] inline bool fits_block_sort(const FibrePlan& fibres) {
  return fibres.length <= longest_block_sort(element_size(fibres.dtype));
}

// Sorts fibres of fits_block_sort(). With `candidates`, element i of a fibre has the key
// candidates.keys[fibre * length + i] and is element candidates.positions[…] of the fibre of `in`;
// the plan's length is the number of candidates.
struct SortCandidates {
  const void* keys = nullptr;
  const std::uint32_t* positions = nullptr;
};
void sort_in_blocks(void* stream, const SortPlan& plan, const SortCandidates& candidates);
// The same for fibres of at most kWarpSort elements.
void sort_in_warps(void* stream, const SortPlan& plan, const SortCandidates& candidates);

[[nodiscard]] std::size_t sort_scratch_bytes(const SortPlan& plan);
void sort(void* stream, const SortPlan& plan, void* scratch);

// sort of one fibre without indices, whose values are dense. NaNs are in any order.
// True for dense elements that no block sorts; bool bytes may have several keys.
[[nodiscard]] bool has_sorted_values(const SortPlan& plan);
[[nodiscard]] std::size_t sort_values_bytes(const SortPlan& plan);
void sort_values(void* stream, const SortPlan& plan, void* scratch);

[[nodiscard]] std::size_t select_scratch_bytes(const SortPlan& plan);
void select(void* stream, const SortPlan& plan, void* scratch);

[[nodiscard]] std::size_t cumulative_scratch_bytes(const SortPlan& plan);
void cumulative_extremum(void* stream, const SortPlan& plan, void* scratch);
}  // namespace cuda

}  // namespace gantry::kernels
