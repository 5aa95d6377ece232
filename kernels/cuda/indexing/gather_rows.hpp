#pragma once

#include "kernels/indexing/indexing_plan.hpp"

namespace gantry::kernels::cuda {

// Gathers along dense rows, which blocks hold in shared memory, and returns true. Returns false,
// and does nothing, for other plans.
[[nodiscard]] bool gather_along_rows(void* stream, const IndexingPlan& plan);

// Gathers rows of an index each to a dense output, whose vectors lie across rows, and returns true.
// Returns false, and does nothing, for other plans.
[[nodiscard]] bool gather_whole_rows(void* stream, const IndexingPlan& plan);

}  // namespace gantry::kernels::cuda
