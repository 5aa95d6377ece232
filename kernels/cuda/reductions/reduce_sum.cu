#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"

namespace gantry::kernels::cuda {

void reduce_sum(void* stream, const ReducePlan& plan) { reduce_elements<SumReducer>(stream, plan); }

}  // namespace gantry::kernels::cuda
