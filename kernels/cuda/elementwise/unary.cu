#include "kernels/cuda/elementwise/loop.cuh"
#include "kernels/elementwise/cuda_elementwise.hpp"
#include "kernels/impl/unary.inl"

namespace gantry::kernels::cuda {

void unary(void* stream, UnaryOp op, const TensorRef& out, const TensorRef& in) {
  run_unary(Loop(stream), op, out, in);
}

void predicate(void* stream, PredicateOp op, const TensorRef& out, const TensorRef& in) {
  run_predicate(Loop(stream), op, out, in);
}

}  // namespace gantry::kernels::cuda
