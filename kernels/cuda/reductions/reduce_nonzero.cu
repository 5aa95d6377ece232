#include "kernels/cuda/reductions/reduce_families.hpp"
#include "kernels/cuda/reductions/reduce_kernels.cuh"

namespace gantry::kernels::cuda {

void reduce_nonzero(void* stream, const ReducePlan& plan) {
  // Whether an element is zero is a question about its bits.
  switch (element_size(plan.in_dtype)) {
    case 1:
      return reduce_with<std::int8_t, std::int64_t, NonzeroReducer>(stream, plan);
    case 2:
      return reduce_with<std::int16_t, std::int64_t, NonzeroReducer>(stream, plan);
    case 4:
      return reduce_with<std::int32_t, std::int64_t, NonzeroReducer>(stream, plan);
    case 8:
      return reduce_with<std::int64_t, std::int64_t, NonzeroReducer>(stream, plan);
  }
}

}  // namespace gantry::kernels::cuda
