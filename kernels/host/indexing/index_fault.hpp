#pragma once

#include <cstdint>

#include "kernels/indexing/indexing_plan.hpp"

namespace gantry::kernels::host {

// Reports an index out of range: in the device's fault record, unless the record is taken; without
// a record, by throwing IndexError. Note [Index faults].
void report_fault(const IndexingPlan& plan, std::int64_t index);

// Calls f(offsets) for every position of `plan`, in increasing order.
template <class F>
void for_each_position(const StridedPlan<3>& plan, F&& f) {
  std::int64_t index[kMaxDims] = {};
  std::int64_t offsets[3] = {};
  for (std::int64_t done = 0; done < plan.numel; ++done) {
    f(offsets);
    for (int dim = 0; dim < plan.ndim; ++dim) {
      for (int k = 0; k < 3; ++k) offsets[k] += plan.strides[dim][k];
      if (++index[dim] < plan.sizes[dim]) break;
      for (int k = 0; k < 3; ++k) offsets[k] -= plan.strides[dim][k] * plan.sizes[dim];
      index[dim] = 0;
    }
  }
}

}  // namespace gantry::kernels::host
