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

}  // namespace gantry::kernels::cuda
