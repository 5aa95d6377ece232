#include "kernels/elementwise/special.hpp"

#include <cmath>

#include "kernels/dispatch.hpp"

namespace gantry::kernels {

namespace {

const TensorRef* tensor_of(const Operand& operand) {
  return operand.is_number ? nullptr : &operand.tensor;
}

// The number of which copysign takes the sign, as one that every conversion keeps: kernels convert
// numbers, and a converted NaN is positive (Note [Canonical NaN]).
Operand sign_of(const Operand& operand) {
  if (!operand.is_number || operand.number.category() != DTypeCategory::floating) return operand;
  Operand sign = Scalar(std::copysign(1.0, operand.number.to<double>()));
  sign.is_element = operand.is_element;
  return sign;
}

}  // namespace

void special(const Target& target, SpecialOp op, const TensorRef& out, const TensorRef& in,
             const SpecialParameters& parameters) {
  if (out.numel() == 0) return;
  submit(
      name_of(op), target, {&out, &in}, [=] { host::special(op, out, in, parameters); },
      [&](void* stream) { cuda::special(stream, op, out, in, parameters); });
}

void special(const Target& target, SpecialBinaryOp op, const TensorRef& out, const Operand& a,
             const Operand& right) {
  if (out.numel() == 0) return;
  const Operand b = op == SpecialBinaryOp::copysign ? sign_of(right) : right;
  submit(
      name_of(op), target, {&out, tensor_of(a), tensor_of(b)},
      [=] { host::special(op, out, a, b); },
      [&](void* stream) { cuda::special(stream, op, out, a, b); });
}

const char* name_of(SpecialOp op) {
  switch (op) {
    using enum SpecialOp;
    case asinh:
      return "asinh";
    case acosh:
      return "acosh";
    case atanh:
      return "atanh";
    case erfc:
      return "erfc";
    case exp2:
      return "exp2";
    case sinc:
      return "sinc";
    case log_sigmoid:
      return "log_sigmoid";
    case softplus:
      return "softplus";
    case leaky_relu:
      return "leaky_relu";
    case elu:
      return "elu";
    case gelu_tanh:
      return "gelu_tanh";
    case sign_bit:
      return "signbit";
  }
  return "kernel";
}

const char* name_of(SpecialBinaryOp op) {
  switch (op) {
    using enum SpecialBinaryOp;
    case logaddexp:
      return "logaddexp";
    case logaddexp2:
      return "logaddexp2";
    case hypot:
      return "hypot";
    case xlogy:
      return "xlogy";
    case ldexp:
      return "ldexp";
    case copysign:
      return "copysign";
    case nextafter:
      return "nextafter";
    case heaviside:
      return "heaviside";
  }
  return "kernel";
}

}  // namespace gantry::kernels
