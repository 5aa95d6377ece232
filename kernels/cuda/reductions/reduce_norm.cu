#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"

namespace gantry::kernels::cuda {

void reduce_norm(void* stream, const ReducePlan& plan) {
  dispatch_floating("reduce", plan.in_dtype, [&](auto tag) {
    using In = typename decltype(tag)::type;
    reduce_with<In, AccumulatorType<In>, NormReducer<AccumulatorType<In>>>(stream, plan);
  });
}

}  // namespace gantry::kernels::cuda
