#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"

namespace gantry::kernels::cuda {

void reduce_product(void* stream, const ReducePlan& plan) {
  reduce_elements<ProductReducer>(stream, plan);
}

}  // namespace gantry::kernels::cuda
