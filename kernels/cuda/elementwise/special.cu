#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/impl/special.inl"

namespace gantry::kernels::cuda {

void special(void* stream, SpecialOp op, const TensorRef& out, const TensorRef& in,
             const SpecialParameters& parameters) {
  run_special(Loop(stream), op, out, in, parameters);
}

void special(void* stream, SpecialBinaryOp op, const TensorRef& out, const Operand& a,
             const Operand& b) {
  run_special(Loop(stream), op, out, a, b);
}

}  // namespace gantry::kernels::cuda
