#pragma once

#include <cstdint>

#include "kernels/ordering/sort_plan.hpp"

namespace gantry::kernels::cuda {

// True if a block holds the keys of a fibre in its shared memory.
[[nodiscard]] bool fits_select_rows(const SortPlan& plan);

// Note [Radix selection] by a block for each fibre, which it reads once. Writes the candidates:
// plan.count keys and positions for each fibre, the same as select(). Of one sought element it
// writes the output itself.
void select_rows(void* stream, const SortPlan& plan, void* keys, std::uint32_t* positions);

}  // namespace gantry::kernels::cuda
