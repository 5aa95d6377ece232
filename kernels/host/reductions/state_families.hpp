#pragma once

#include "kernels/reductions/reduce_plan.hpp"

namespace gantry::kernels::host {

// The reductions whose state is several numbers, one source file each.
void reduce_moments(const ReducePlan& plan);  // variance and deviation
void reduce_log_sum_exp(const ReducePlan& plan);

}  // namespace gantry::kernels::host
