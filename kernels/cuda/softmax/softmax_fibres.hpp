#pragma once

#include "kernels/reductions/fibre_plan.hpp"

namespace gantry::kernels::cuda {

// Softmax of columns, and of rows that are shorter than a warp has threads for. Returns false, and
// does nothing, if the plan is of other rows. Precondition: dims are merged.
[[nodiscard]] bool softmax_of_fibres(void* stream, bool logarithm, const FibrePlan& plan);

}  // namespace gantry::kernels::cuda
