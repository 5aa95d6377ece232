#pragma once

#include <cuda_runtime.h>

#include "kernels/indexing/indexing_plan.hpp"

namespace gantry::kernels::cuda {

// Writes an index out of range to the device's fault record, unless the record is taken. The record
// is in pinned host memory, and the host may read it while the kernel runs: hence the system-scope
// fence and the three states. Note [Index faults].
__device__ inline void report_fault(const IndexingPlan& plan, std::int64_t index) {
  if (plan.rule == IndexRule::offsets) return;
  if (atomicCAS(&plan.fault->raised, FaultRecord::kNone, FaultRecord::kWriting) !=
      FaultRecord::kNone) {
    return;
  }
  plan.fault->dim = plan.dim;
  plan.fault->index = index;
  plan.fault->size = plan.index_size;
  plan.fault->op = plan.op;
  __threadfence_system();
  atomicExch_system(&plan.fault->raised, FaultRecord::kRaised);
}

// The position that `index` names. Reports an index out of range and returns -1.
__device__ inline std::int64_t checked_position(const IndexingPlan& plan, std::int64_t index) {
  const std::int64_t position = position_of(plan, index);
  if (is_inside(plan, position)) return position;
  report_fault(plan, index);
  return -1;
}

}  // namespace gantry::kernels::cuda
