#pragma once

#include "kernels/elementwise/elementwise.hpp"

// The kernels of elementwise.hpp on a cudaStream_t of the current device.
namespace gantry::kernels::cuda {

void unary(void* stream, UnaryOp op, const TensorRef& out, const TensorRef& in);
void predicate(void* stream, PredicateOp op, const TensorRef& out, const TensorRef& in);
void binary(void* stream, BinaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
            const Scalar& alpha);
void compare(void* stream, CompareOp op, const TensorRef& out, const Operand& a, const Operand& b,
             DType compute);
void ternary(void* stream, TernaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
             const Operand& c, const Scalar& value);
void where(void* stream, const TensorRef& out, const TensorRef& condition, const Operand& a,
           const Operand& b);

}  // namespace gantry::kernels::cuda
