#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"
#include "kernels/impl/moments.inl"

namespace gantry::kernels::cuda {

void reduce_moments(void* stream, const ReducePlan& plan) {
  reduce_states<MomentsReducer>(stream, plan);
}

}  // namespace gantry::kernels::cuda
