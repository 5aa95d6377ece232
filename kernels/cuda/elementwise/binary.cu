#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/elementwise/cuda_elementwise.hpp"
#include "kernels/impl/binary.inl"

namespace gantry::kernels::cuda {

void binary(void* stream, BinaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
            const Scalar& alpha) {
  run_binary(Loop(stream), op, out, a, b, alpha);
}

}  // namespace gantry::kernels::cuda
