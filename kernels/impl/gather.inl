// One element of a gather, shared by the host and the GPU.
#pragma once

#include "kernels/indexing/indexing_plan.hpp"

namespace gantry::kernels {

// The offset of one position's terms, or -1. Calls fault(term, index) for an index out of range.
template <class Fault>
GANTRY_HD std::int64_t offset_of_terms(const OffsetsPlan& plan, const std::int64_t (&offsets)[3],
                                       const Fault& fault) {
  std::int64_t result = 0;
  for (int k = 0; k < plan.count; ++k) {
    const IndexingPlan& term = plan.terms[k];
    const std::int64_t index = load_index(term, offsets[k + 1]);
    const std::int64_t position = position_of(term, index);
    if (is_inside(term, position)) {
      if (result >= 0) result += position * term.index_stride;
    } else {
      fault(term, index);
      result = -1;
    }
  }
  return result;
}

// Writes the element at `offsets`. If its index is out of range, writes 0 and returns false.
template <class T>
GANTRY_HD bool gather_element(const IndexingPlan& plan, const std::int64_t (&offsets)[3],
                              std::int64_t& index) {
  index = load_index(plan, offsets[2]);
  const std::int64_t position = position_of(plan, index);
  const bool inside = is_inside(plan, position);
  static_cast<T*>(plan.direct)[offsets[0]] =
      inside ? static_cast<const T*>(plan.indexed)[offsets[1] + position * plan.index_stride] : T{};
  return inside;
}

}  // namespace gantry::kernels
