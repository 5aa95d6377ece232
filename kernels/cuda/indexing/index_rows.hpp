#pragma once

#include <cstdint>

#include "kernels/indexing/indexing_plan.hpp"

namespace gantry::kernels::cuda {

// True if one block sorts all indices of the plan.
[[nodiscard]] bool is_short_index(const IndexingPlan& plan);

// Sorts the indices stably, in one launch. Writes the positions that they name, plan.index_size for
// an index out of range, and their places. Index faults are reported.
void sort_short_index(void* stream, const IndexingPlan& plan, std::uint32_t* keys,
                      std::uint32_t* places);

// True if the fibres are dense rows that a block holds in shared memory.
[[nodiscard]] bool has_index_rows(const IndexingPlan& plan);

// Makes the writes of sorted indices to rows of has_index_rows().
void index_rows(void* stream, const IndexingPlan& plan, ScatterMode mode, const std::uint32_t* keys,
                const std::uint32_t* places);

}  // namespace gantry::kernels::cuda
