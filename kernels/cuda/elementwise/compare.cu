#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/elementwise/cuda_elementwise.hpp"
#include "kernels/impl/compare.inl"

namespace gantry::kernels::cuda {

void compare(void* stream, CompareOp op, const TensorRef& out, const Operand& a, const Operand& b,
             DType compute) {
  run_compare(Loop(stream), op, out, a, b, compute);
}

}  // namespace gantry::kernels::cuda
