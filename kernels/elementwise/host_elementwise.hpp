#pragma once

#include "kernels/elementwise/elementwise.hpp"

// The kernels of elementwise.hpp on the calling thread.
namespace gantry::kernels::host {

void unary(UnaryOp op, const TensorRef& out, const TensorRef& in);
void predicate(PredicateOp op, const TensorRef& out, const TensorRef& in);
void binary(BinaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
            const Scalar& alpha);
void compare(CompareOp op, const TensorRef& out, const Operand& a, const Operand& b, DType compute);
void ternary(TernaryOp op, const TensorRef& out, const Operand& a, const Operand& b,
             const Operand& c, const Scalar& value);
void where(const TensorRef& out, const TensorRef& condition, const Operand& a, const Operand& b);

}  // namespace gantry::kernels::host
