#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"
#include "kernels/impl/log_sum_exp.inl"

namespace gantry::kernels::cuda {

void reduce_log_sum_exp(void* stream, const ReducePlan& plan) {
  reduce_states<LogSumExpReducer>(stream, plan);
}

}  // namespace gantry::kernels::cuda
