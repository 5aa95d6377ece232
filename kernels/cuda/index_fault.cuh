#pragma once

#include <cuda_runtime.h>

#include "kernels/indexing_plan.hpp"

namespace gantry::kernels::cuda {

// Puts an index that is out of range into the device's fault record, which lies in pinned host
// memory, unless it holds one already. The host may look at it while the kernel runs, because it
// waited for another stream. Note [Index faults].
__device__ inline void report_fault(const IndexingPlan& plan, std::int64_t index) {
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
