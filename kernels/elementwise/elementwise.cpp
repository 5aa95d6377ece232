#include "kernels/elementwise/elementwise.hpp"

#include "kernels/direct_call.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/elementwise/cuda_elementwise.hpp"
#include "kernels/elementwise/host_elementwise.hpp"
#include "kernels/elementwise/op_names.hpp"
#include "kernels/input.hpp"
#include "kernels/layout/copy.hpp"

namespace gantry::kernels {
namespace {

// The operand's tensor; null for a number.
const TensorRef* tensor_of(const Operand& operand) {
  return operand.is_number ? nullptr : &operand.tensor;
}

// Unary ops on bool. neg, abs, sign, square and relu are the identity.
void unary_bool(const Target& target, UnaryOp op, const TensorRef& out, const TensorRef& in) {
  if (op == UnaryOp::bitwise_not) return predicate(target, PredicateOp::logical_not, out, in);
  const bool keeps = op == UnaryOp::neg || op == UnaryOp::abs || op == UnaryOp::sign ||
                     op == UnaryOp::square || op == UnaryOp::relu;
  if (!keeps) detail::throw_undefined("unary", static_cast<int>(op), in.dtype);
  copy(target, out, in);
}

}  // namespace

void unary(const Target& target, UnaryOp op, const TensorRef& out, const TensorRef& in) {
  if (out.numel() == 0) return;
  if (in.dtype == DType::bool_) return unary_bool(target, op, out, in);
  if (is_direct_call(target)) return host::unary(op, out, in);
  submit(
      name_of(op), target, {&out, &in}, [=] { host::unary(op, out, in); },
      [&](void* stream) { cuda::unary(stream, op, out, in); });
}

void predicate(const Target& target, PredicateOp op, const TensorRef& out, const TensorRef& in) {
  if (out.numel() == 0) return;
  if (op == PredicateOp::logical_not) {
    return compare(target, CompareOp::eq, out, in, Scalar(0), in.dtype);
  }
  if (op == PredicateOp::is_nan) return compare(target, CompareOp::ne, out, in, in, in.dtype);
  if (!is_floating_point(in.dtype)) return fill(target, out, op == PredicateOp::is_finite);
  if (is_direct_call(target)) return host::predicate(op, out, in);
  submit(
      name_of(op), target, {&out, &in}, [=] { host::predicate(op, out, in); },
      [&](void* stream) { cuda::predicate(stream, op, out, in); });
}

void binary(const Target& target, BinaryOp op, const TensorRef& out, const Operand& a,
            const Operand& b, const Scalar& alpha) {
  if (out.numel() == 0) return;
  if (op == BinaryOp::pow && b.is_number && !b.is_element && !a.is_number &&
      is_floating_point(out.dtype)) {
    // Exponents for which an exact or much cheaper function exists.
    const double exponent = b.number.to<double>();
    if (exponent == 2) return unary(target, UnaryOp::square, out, a.tensor);
    if (exponent == 0.5) return unary(target, UnaryOp::sqrt, out, a.tensor);
    if (exponent == -1) return unary(target, UnaryOp::reciprocal, out, a.tensor);
    if (exponent == -0.5) return unary(target, UnaryOp::rsqrt, out, a.tensor);
  }
  if (is_direct_call(target)) return host::binary(op, out, a, b, alpha);
  submit(
      name_of(op), target, {&out, tensor_of(a), tensor_of(b)},
      [=] { host::binary(op, out, a, b, alpha); },
      [&](void* stream) { cuda::binary(stream, op, out, a, b, alpha); });
}

void compare(const Target& target, CompareOp op, const TensorRef& out, const Operand& a,
             const Operand& b, DType compute) {
  if (out.numel() == 0) return;
  if (is_direct_call(target)) return host::compare(op, out, a, b, compute);
  submit(
      name_of(op), target, {&out, tensor_of(a), tensor_of(b)},
      [=] { host::compare(op, out, a, b, compute); },
      [&](void* stream) { cuda::compare(stream, op, out, a, b, compute); });
}

void ternary(const Target& target, TernaryOp op, const TensorRef& out, const Operand& a,
             const Operand& b, const Operand& c, const Scalar& value) {
  if (out.numel() == 0) return;
  if (is_direct_call(target)) return host::ternary(op, out, a, b, c, value);
  submit(
      name_of(op), target, {&out, tensor_of(a), tensor_of(b), tensor_of(c)},
      [=] { host::ternary(op, out, a, b, c, value); },
      [&](void* stream) { cuda::ternary(stream, op, out, a, b, c, value); });
}

void where(const Target& target, const TensorRef& out, const TensorRef& condition, const Operand& a,
           const Operand& b) {
  if (out.numel() == 0) return;
  if (is_direct_call(target)) return host::where(out, condition, a, b);
  submit(
      KernelName::moving("where"), target, {&out, &condition, tensor_of(a), tensor_of(b)},
      [=] { host::where(out, condition, a, b); },
      [&](void* stream) { cuda::where(stream, out, condition, a, b); });
}

}  // namespace gantry::kernels
