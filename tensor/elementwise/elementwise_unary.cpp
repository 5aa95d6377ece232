// Elementwise operations with one operand.
#include <fmt/format.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>

#include "kernels/layout/copy.hpp"
#include "tensor/elementwise/dense_call.hpp"
#include "tensor/elementwise/elementwise_plan.hpp"

namespace gantry {

namespace {

using kernels::PredicateOp;
using kernels::UnaryOp;

// The dtypes that an operation accepts, and its result for integers and bool.
enum class Domain {
  any,               // all; computes in the operand's dtype
  numbers,           // all but bool
  real,              // all; integers and bool become f32
  arithmetic,        // all; bool becomes i64
  rounding,          // all; integers and bool are unchanged
  floating_only,     // floating dtypes
  integral_or_bool,  // integers and bool
};

[[noreturn]] void refuse(std::string_view op, std::string_view expected, DType dtype,
                         Device device) {
  throw DTypeError(
      fmt::format("{}: expected a tensor of {}, but got {}", op, expected, torch_name(dtype)),
      device.str());
}

void check_domain(std::string_view op, Domain domain, DType dtype, Device device) {
  switch (domain) {
    case Domain::any:
    case Domain::real:
    case Domain::arithmetic:
    case Domain::rounding:
      return;
    case Domain::numbers:
      if (dtype == DType::bool_) refuse(op, "numbers", dtype, device);
      return;
    case Domain::floating_only:
      if (!is_floating_point(dtype)) refuse(op, "a floating type", dtype, device);
      return;
    case Domain::integral_or_bool:
      if (is_floating_point(dtype)) refuse(op, "an integral type or bool", dtype, device);
      return;
  }
}

DType compute_type(Domain domain, DType dtype) {
  if (domain == Domain::real && !is_floating_point(dtype)) return DType::f32;
  if (domain == Domain::arithmetic && dtype == DType::bool_) return DType::i64;
  return dtype;
}

// Runs an operation as a DenseCall. Returns false, without an effect, if the arguments need a plan.
bool try_dense(std::string_view name, UnaryOp op, Domain domain, Tensor* out, const Tensor& self,
               Tensor& result) {
  detail::DenseCall call(self);
  const DType dtype = call.dtype();
  if (!call.fits(out, dtype) || compute_type(domain, dtype) != dtype || dtype == DType::bool_ ||
      (domain == Domain::rounding && !is_floating_point(dtype))) {
    return false;
  }
  check_domain(name, domain, dtype, Device::cpu());
  result = call.begin();
  kernels::unary(kernels::Target::cpu(), op, call.output(), call.self());
  return true;
}

Tensor run(std::string_view name, UnaryOp op, Domain domain, Tensor* out, const Tensor& self) {
  if (Tensor result; try_dense(name, op, domain, out, self, result)) return result;
  const Operand operand(self);
  detail::ElementwisePlan plan(name, out, {{"self", operand}});
  const DType dtype = plan.promoted();
  if (op == UnaryOp::neg && dtype == DType::bool_) {
    throw DTypeError(
        "neg: Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
        "invert a mask, use the `~` or `logical_not()` operator instead.",
        self.device().str());
  }
  check_domain(name, domain, dtype, plan.device());
  const bool floating = is_floating_point(dtype);
  const DType compute = compute_type(domain, dtype);
  plan.set_types(compute, compute);
  if (domain == Domain::rounding && !floating) {
    kernels::copy(plan.target(), plan.output(), plan.tensor_input(0));
  } else {
    kernels::unary(plan.target(), op, plan.output(), plan.tensor_input(0));
  }
  return plan.finish();
}

Tensor run(std::string_view name, PredicateOp op, Tensor* out, const Tensor& self) {
  const Operand operand(self);
  detail::ElementwisePlan plan(name, out, {{"self", operand}});
  plan.set_types(plan.promoted(), DType::bool_);
  kernels::predicate(plan.target(), op, plan.output(), plan.tensor_input(0));
  return plan.finish();
}

}  // namespace

#define GANTRY_UNARY(op, domain)                                                                 \
  Tensor op(const Tensor& self) { return run(#op, UnaryOp::op, Domain::domain, nullptr, self); } \
  Tensor& op##_out(Tensor& out, const Tensor& self) {                                            \
    run(#op, UnaryOp::op, Domain::domain, &out, self);                                           \
    return out;                                                                                  \
  }

GANTRY_UNARY(neg, any)
GANTRY_UNARY(abs, any)
GANTRY_UNARY(sign, any)
GANTRY_UNARY(square, arithmetic)
GANTRY_UNARY(relu, numbers)
GANTRY_UNARY(reciprocal, real)
GANTRY_UNARY(sqrt, real)
GANTRY_UNARY(rsqrt, real)
GANTRY_UNARY(exp, real)
GANTRY_UNARY(expm1, real)
GANTRY_UNARY(log, real)
GANTRY_UNARY(log2, real)
GANTRY_UNARY(log10, real)
GANTRY_UNARY(log1p, real)
GANTRY_UNARY(sin, real)
GANTRY_UNARY(cos, real)
GANTRY_UNARY(tan, real)
GANTRY_UNARY(asin, real)
GANTRY_UNARY(acos, real)
GANTRY_UNARY(atan, real)
GANTRY_UNARY(sinh, real)
GANTRY_UNARY(cosh, real)
GANTRY_UNARY(tanh, real)
GANTRY_UNARY(sigmoid, real)
GANTRY_UNARY(gelu, real)
GANTRY_UNARY(silu, real)
GANTRY_UNARY(erf, real)
GANTRY_UNARY(floor, rounding)
GANTRY_UNARY(ceil, rounding)
GANTRY_UNARY(round, rounding)
GANTRY_UNARY(trunc, rounding)
GANTRY_UNARY(frac, floating_only)
GANTRY_UNARY(bitwise_not, integral_or_bool)
#undef GANTRY_UNARY

#define GANTRY_PREDICATE(name, op)                                                       \
  Tensor name(const Tensor& self) { return run(#name, PredicateOp::op, nullptr, self); } \
  Tensor& name##_out(Tensor& out, const Tensor& self) {                                  \
    run(#name, PredicateOp::op, &out, self);                                             \
    return out;                                                                          \
  }

GANTRY_PREDICATE(logical_not, logical_not)
GANTRY_PREDICATE(isnan, is_nan)
GANTRY_PREDICATE(isinf, is_inf)
GANTRY_PREDICATE(isfinite, is_finite)
#undef GANTRY_PREDICATE

}  // namespace gantry
