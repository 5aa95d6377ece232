#include <gantry/tensor/special_functions.hpp>

#include <fmt/format.h>

#include <limits>
#include <numbers>

#include <gantry/core/error.hpp>

#include "kernels/elementwise/special.hpp"
#include "kernels/layout/copy.hpp"
#include "tensor/elementwise/elementwise_plan.hpp"

namespace gantry {

namespace {

using kernels::SpecialBinaryOp;
using kernels::SpecialOp;

// The dtypes that an operation accepts.
enum class Domain {
  real,           // all; integers and bool become f32
  floating_only,  // floating dtypes
};

DType compute_type(std::string_view op, Domain domain, const detail::ElementwisePlan& plan) {
  const DType dtype = plan.promoted();
  if (is_floating_point(dtype)) return dtype;
  if (domain == Domain::real) return DType::f32;
  throw DTypeError(
      fmt::format("{}: expected operands of a floating type, but got {}", op, torch_name(dtype)),
      plan.device().str());
}

Tensor run(std::string_view name, SpecialOp op, Tensor* out, const Tensor& self) {
  const Operand operand(self);
  detail::ElementwisePlan plan(name, out, {{"self", operand}});
  const DType compute = compute_type(name, Domain::real, plan);
  plan.set_types(compute, compute);
  kernels::special(plan.target(), op, plan.output(), plan.tensor_input(0));
  return plan.finish();
}

Tensor run(std::string_view name, SpecialBinaryOp op, Domain domain, Tensor* out, const Operand& a,
           const Operand& b) {
  detail::ElementwisePlan plan(name, out, {{"self", a}, {"other", b}});
  const DType compute = compute_type(name, domain, plan);
  plan.set_types(compute, compute);
  kernels::special(plan.target(), op, plan.output(), plan.input(0), plan.input(1));
  return plan.finish();
}

// self * factor.
Tensor run_scaled(std::string_view name, Tensor* out, const Tensor& self, double factor) {
  const Operand operand(self);
  detail::ElementwisePlan plan(name, out, {{"self", operand}});
  const DType compute = compute_type(name, Domain::real, plan);
  plan.set_types(compute, compute);
  kernels::binary(plan.target(), kernels::BinaryOp::mul, plan.output(), plan.tensor_input(0),
                  Scalar(factor));
  return plan.finish();
}

Tensor run_signbit(Tensor* out, const Tensor& self) {
  const Operand operand(self);
  detail::ElementwisePlan plan("signbit", out, {{"self", operand}});
  const DType compute = plan.promoted();
  plan.set_types(compute, DType::bool_);
  if (is_floating_point(compute)) {
    kernels::special(plan.target(), SpecialOp::sign_bit, plan.output(), plan.tensor_input(0));
  } else {
    kernels::compare(plan.target(), kernels::CompareOp::lt, plan.output(), plan.tensor_input(0),
                     Scalar(0), compute);
  }
  return plan.finish();
}

// self == infinity.
Tensor run_is_infinity(std::string_view name, Tensor* out, const Tensor& self, double infinity) {
  const Operand operand(self);
  detail::ElementwisePlan plan(name, out, {{"self", operand}});
  const DType compute = plan.promoted();
  plan.set_types(compute, DType::bool_);
  if (is_floating_point(compute)) {
    kernels::compare(plan.target(), kernels::CompareOp::eq, plan.output(), plan.tensor_input(0),
                     Scalar(infinity), compute);
  } else {
    kernels::fill(plan.target(), plan.output(), Scalar(false));
  }
  return plan.finish();
}

Tensor run_float_power(Tensor* out, const Operand& a, const Operand& b) {
  detail::ElementwisePlan plan("float_power", out, {{"self", a}, {"exponent", b}});
  plan.set_types(DType::f64, DType::f64);
  kernels::binary(plan.target(), kernels::BinaryOp::pow, plan.output(), plan.input(0),
                  plan.input(1));
  return plan.finish();
}

Tensor run_heaviside(Tensor* out, const Tensor& self, const Tensor& values) {
  const Operand first(self);
  const Operand second(values);
  detail::ElementwisePlan plan("heaviside", out, {{"self", first}, {"values", second}});
  if (self.dtype() != values.dtype()) {
    throw DTypeError(fmt::format("heaviside: expected self and values of one dtype, but got {} and "
                                 "{}",
                                 torch_name(self.dtype()), torch_name(values.dtype())),
                     plan.device().str());
  }
  plan.set_types(self.dtype(), self.dtype());
  kernels::special(plan.target(), SpecialBinaryOp::heaviside, plan.output(), plan.input(0),
                   plan.input(1));
  return plan.finish();
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kDegree = std::numbers::pi / 180;

}  // namespace

#define GANTRY_UNARY(name, call)                           \
  Tensor name(const Tensor& self) {                        \
    Tensor* const out = nullptr;                           \
    return call;                                           \
  }                                                        \
  Tensor& name##_out(Tensor& target, const Tensor& self) { \
    Tensor* const out = &target;                           \
    call;                                                  \
    return target;                                         \
  }

GANTRY_UNARY(asinh, run("asinh", SpecialOp::asinh, out, self))
GANTRY_UNARY(acosh, run("acosh", SpecialOp::acosh, out, self))
GANTRY_UNARY(atanh, run("atanh", SpecialOp::atanh, out, self))
GANTRY_UNARY(erfc, run("erfc", SpecialOp::erfc, out, self))
GANTRY_UNARY(exp2, run("exp2", SpecialOp::exp2, out, self))
GANTRY_UNARY(sinc, run("sinc", SpecialOp::sinc, out, self))
GANTRY_UNARY(deg2rad, run_scaled("deg2rad", out, self, kDegree))
GANTRY_UNARY(rad2deg, run_scaled("rad2deg", out, self, 180 / std::numbers::pi))
GANTRY_UNARY(signbit, run_signbit(out, self))
GANTRY_UNARY(isposinf, run_is_infinity("isposinf", out, self, kInfinity))
GANTRY_UNARY(isneginf, run_is_infinity("isneginf", out, self, -kInfinity))
#undef GANTRY_UNARY

#define GANTRY_BINARY(name, domain)                                          \
  Tensor name(const Operand& a, const Operand& b) {                          \
    return run(#name, SpecialBinaryOp::name, Domain::domain, nullptr, a, b); \
  }                                                                          \
  Tensor& name##_out(Tensor& out, const Operand& a, const Operand& b) {      \
    run(#name, SpecialBinaryOp::name, Domain::domain, &out, a, b);           \
    return out;                                                              \
  }

GANTRY_BINARY(logaddexp, floating_only)
GANTRY_BINARY(logaddexp2, floating_only)
GANTRY_BINARY(hypot, floating_only)
GANTRY_BINARY(xlogy, real)
GANTRY_BINARY(copysign, real)
GANTRY_BINARY(nextafter, floating_only)
GANTRY_BINARY(ldexp, real)
#undef GANTRY_BINARY

Tensor float_power(const Operand& a, const Operand& b) { return run_float_power(nullptr, a, b); }
Tensor& float_power_out(Tensor& out, const Operand& a, const Operand& b) {
  run_float_power(&out, a, b);
  return out;
}

Tensor heaviside(const Tensor& self, const Tensor& values) {
  return run_heaviside(nullptr, self, values);
}
Tensor& heaviside_out(Tensor& out, const Tensor& self, const Tensor& values) {
  run_heaviside(&out, self, values);
  return out;
}

}  // namespace gantry
