#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/elementwise/cuda_elementwise.hpp"
#include "kernels/impl/ternary.inl"

namespace gantry::kernels::cuda {

void ternary(void* stream, TernaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
             const Operand& c, const Scalar& value) {
  run_ternary(Loop(stream), op, out, a, b, c, value);
}

void where(void* stream, const TensorRef& out, const TensorRef& condition, const Operand& a,
           const Operand& b) {
  run_where(Loop(stream), out, condition, a, b);
}

}  // namespace gantry::kernels::cuda
