#pragma once

#include <cstdint>

#include "kernels/elementwise/elementwise.hpp"

// Elementwise functions of real numbers beyond elementwise.hpp.
//
// Note [Special functions]
// These functions compute in f64, on the host and on the GPU, and round once. For results of 16
// bits GPUs compute in f32. Exceptions need no f64 and have the same bits on every platform:
// leaky_relu, sign_bit, copysign, nextafter and heaviside.
namespace gantry::kernels {

enum class SpecialOp : std::uint8_t {
  asinh,
  acosh,
  atanh,
  erfc,
  exp2,
  sinc,         // sin(pi x) / (pi x)
  log_sigmoid,  // -log(1 + exp(-x))
  softplus,     // log(1 + exp(a x)) / a, or x where a x > b
  leaky_relu,   // x, or a x where x is not positive
  elu,          // b x, or a (exp(c x) - 1) where x is not positive
  gelu_tanh,    // math::gelu_tanh
  sign_bit,     // as bool
};

enum class SpecialBinaryOp : std::uint8_t {
  logaddexp,
  logaddexp2,
  hypot,
  xlogy,  // a log(b); 0 where a is 0 and b is not NaN
  ldexp,  // a 2^b
  copysign,
  nextafter,
  heaviside,  // 0 or 1 by the sign of a; b where a is 0
};

// The numbers a, b and c of a SpecialOp.
struct SpecialParameters {
  double a = 0;
  double b = 0;
  double c = 0;
};

// out = op(in). DTypes: one floating dtype for both; sign_bit: out is bool.
void special(const Target& target, SpecialOp op, const TensorRef& out, const TensorRef& in,
             const SpecialParameters& parameters = {});

// out = op(a, b). DTypes: one for all tensors: floating; heaviside: any.
void special(const Target& target, SpecialBinaryOp op, const TensorRef& out, const Operand& a,
             const Operand& b);

[[nodiscard]] const char* name_of(SpecialOp op);
[[nodiscard]] const char* name_of(SpecialBinaryOp op);

namespace host {
void special(SpecialOp op, const TensorRef& out, const TensorRef& in,
             const SpecialParameters& parameters);
void special(SpecialBinaryOp op, const TensorRef& out, const Operand& a, const Operand& b);
}  // namespace host

namespace cuda {
void special(void* stream, SpecialOp op, const TensorRef& out, const TensorRef& in,
             const SpecialParameters& parameters);
void special(void* stream, SpecialBinaryOp op, const TensorRef& out, const Operand& a,
             const Operand& b);
}  // namespace cuda

}  // namespace gantry::kernels
