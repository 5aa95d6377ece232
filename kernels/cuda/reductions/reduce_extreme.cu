#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"

namespace gantry::kernels::cuda {

void reduce_extreme(void* stream, const ReducePlan& plan) {
  reduce_elements<ExtremeReducer>(stream, plan);
}

}  // namespace gantry::kernels::cuda
