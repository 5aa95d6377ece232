// The offset that the indices of one position name, shared by the host and the GPU.
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

}  // namespace gantry::kernels
