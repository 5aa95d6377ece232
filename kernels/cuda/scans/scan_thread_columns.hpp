#pragma once

#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::cuda {

// Scans short columns that are enough for a thread each. Returns false, and does nothing, if the
// plan is not of such. Precondition: dims are merged.
[[nodiscard]] bool scan_thread_columns(void* stream, ScanOp op, const FibrePlan& plan);

}  // namespace gantry::kernels::cuda
