#pragma once

#include "kernels/reductions/reduce_plan.hpp"

namespace gantry::kernels::cuda {

// The passes of reduce() by operation, one source file each, which compile side by side.
void reduce_sum(void* stream, const ReducePlan& plan);
void reduce_product(void* stream, const ReducePlan& plan);
void reduce_extreme(void* stream, const ReducePlan& plan);  // min and max
void reduce_norm(void* stream, const ReducePlan& plan);     // norm2 and sum_abs
void reduce_nonzero(void* stream, const ReducePlan& plan);  // any, all and count_nonzero
void reduce_moments(void* stream, const ReducePlan& plan);  // variance and deviation
void reduce_log_sum_exp(void* stream, const ReducePlan& plan);
void reduce_arg(void* stream,
                const ReducePlan& plan);  // argmax and argmin of columns and short rows

}  // namespace gantry::kernels::cuda
