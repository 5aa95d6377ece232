#pragma once

#include <cstdint>

#include <gantry/core/scalar.hpp>
#include <gantry/kernels/tensor_ref.hpp>

#include "kernels/operand.hpp"
#include "kernels/target.hpp"

namespace gantry::kernels {

enum class UnaryOp : std::uint8_t {
  neg,
  abs,
  sign,
  square,
  reciprocal,
  sqrt,
  rsqrt,
  exp,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  sigmoid,
  relu,
  gelu,
  silu,
  erf,
  floor,
  ceil,
  round,
  trunc,
  frac,
  bitwise_not,
};

// Unary operations with a bool result.
enum class PredicateOp : std::uint8_t { logical_not, is_nan, is_inf, is_finite };

enum class BinaryOp : std::uint8_t {
  add,
  sub,
  mul,
  div,
  div_trunc,
  div_floor,
  remainder,
  fmod,
  pow,
  atan2,
  minimum,
  maximum,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  shift_left,
  shift_right,
};

// Comparisons and logical operations, with a bool result.
enum class CompareOp : std::uint8_t {
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,
  logical_xor,
};

enum class TernaryOp : std::uint8_t {
  // a + c * (b - a) for |c| < 0.5, else b - (b - a) * (1 - c). Exact at c = 0 and c = 1.
  lerp,
  addcmul,  // a + number * b * c, number = `value`
  addcdiv,  // a + number * (b / c)
  clamp,    // min(max(a, b), c)
};

// out = op(in). DTypes: one for both. f16 and bf16 compute in f32 and round once. Integers wrap.
// Throws: DTypeError if op does not support the dtype.
void unary(const Target& target, UnaryOp op, const TensorRef& out, const TensorRef& in);

// out (bool) = op(in).
void predicate(const Target& target, PredicateOp op, const TensorRef& out, const TensorRef& in);

// out = op(a, b), or op(a, alpha * b) for add and sub. DTypes: one for all tensors; div: floating.
// div_trunc, div_floor, remainder and fmod by an integer zero give 0 on every platform. minimum and
// maximum propagate NaN. For bool, add is or, and mul is and.
void binary(const Target& target, BinaryOp op, const TensorRef& out, const Operand& a,
            const Operand& b, const Scalar& alpha = 1);

// out (bool) = op(a, b). Tensors have the dtype `compute`. At least one operand is a tensor.
void compare(const Target& target, CompareOp op, const TensorRef& out, const Operand& a,
             const Operand& b, DType compute);

// out = op(a, b, c). DTypes: one floating dtype for all; clamp: any but bool.
void ternary(const Target& target, TernaryOp op, const TensorRef& out, const Operand& a,
             const Operand& b, const Operand& c, const Scalar& value = 1);

// out = condition ? a : b; condition is bool, a and b have out's dtype.
void where(const Target& target, const TensorRef& out, const TensorRef& condition, const Operand& a,
           const Operand& b);

}  // namespace gantry::kernels
