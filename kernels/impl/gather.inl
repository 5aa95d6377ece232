// One element of a gather, shared by the host and the GPU.
#pragma once

#include "kernels/indexing_plan.hpp"

namespace gantry::kernels {

// Writes the element at `offsets`. If its index is out of range, writes 0 and returns false.
template <class T>
GANTRY_HD bool gather_element(const IndexingPlan& plan, const std::int64_t (&offsets)[3],
                              std::int64_t& index) {
  index = load_index(plan, offsets[2]);
  const bool inside = is_inside(plan, index);
  static_cast<T*>(plan.direct)[offsets[0]] =
      inside ? static_cast<const T*>(plan.indexed)[offsets[1] + index * plan.index_stride] : T{};
  return inside;
}

}  // namespace gantry::kernels
