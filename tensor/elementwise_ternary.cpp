// Elementwise operations with three operands, and those made of several others.
#include <fmt/format.h>

#include <array>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tensor/check.hpp"
#include "tensor/elementwise_plan.hpp"
#include "tensor/named_ops.hpp"

namespace gantry {

namespace {

using kernels::TernaryOp;

void check_floating(std::string_view op, DType dtype, Device device) {
  if (is_floating_point(dtype)) return;
  throw DTypeError(
      fmt::format("{}: expected operands of a floating type, but got {}", op, torch_name(dtype)),
      device.str());
}

Tensor run(std::string_view name, TernaryOp op, Tensor* out,
           const std::array<detail::ElementwisePlan::Argument, 3>& arguments,
           const Scalar& value = 1) {
  detail::ElementwisePlan plan(name, out, {arguments[0], arguments[1], arguments[2]});
  const DType compute = plan.promoted();
  if (op == TernaryOp::clamp) {
    if (compute == DType::bool_) {
      throw DTypeError("clamp: expected a tensor of numbers, but got Bool", plan.device().str());
    }
  } else {
    check_floating(name, compute, plan.device());
  }
  plan.set_types(compute, compute);
  kernels::ternary(plan.target(), op, plan.output(), plan.input(0), plan.input(1), plan.input(2),
                   value);
  return plan.finish();
}

// One bound of a clamp.
Tensor run_bound(kernels::BinaryOp op, Tensor* out, const Operand& self, const Operand& bound) {
  detail::ElementwisePlan plan("clamp", out, {{"self", self}, {"bound", bound}});
  const DType compute = plan.promoted();
  if (compute == DType::bool_) {
    throw DTypeError("clamp: expected a tensor of numbers, but got Bool", plan.device().str());
  }
  plan.set_types(compute, compute);
  kernels::binary(plan.target(), op, plan.output(), plan.input(0), plan.input(1));
  return plan.finish();
}

Tensor run_clamp(Tensor* out, const Tensor& self, const std::optional<Operand>& low,
                 const std::optional<Operand>& high) {
  const Operand operand(self);
  if (low && high) {
    return run("clamp", TernaryOp::clamp, out,
               {{{"self", operand}, {"min", *low}, {"max", *high}}});
  }
  if (low) return run_bound(kernels::BinaryOp::maximum, out, operand, *low);
  if (high) return run_bound(kernels::BinaryOp::minimum, out, operand, *high);
  throw InvalidArgument("clamp: At least one of 'min' or 'max' must not be None",
                        self.device().str());
}

Tensor run_lerp(Tensor* out, const Tensor& start, const Tensor& end, const Operand& weight) {
  return run("lerp", TernaryOp::lerp, out,
             {{{"self", Operand(start)}, {"end", Operand(end)}, {"weight", weight}}});
}

Tensor run_addc(std::string_view name, TernaryOp op, Tensor* out, const Tensor& self,
                const Tensor& a, const Tensor& b, const Scalar& value) {
  return run(name, op, out,
             {{{"self", Operand(self)}, {"tensor1", Operand(a)}, {"tensor2", Operand(b)}}}, value);
}

bool all_integral(const Tensor& self, const Tensor& a, const Tensor& b) {
  return !is_floating_point(self.dtype()) && !is_floating_point(a.dtype()) &&
         !is_floating_point(b.dtype());
}

Tensor run_where(std::string_view name, Tensor* out, const Tensor& condition, const Operand& a,
                 const Operand& b) {
  const Operand test(condition);
  detail::ElementwisePlan plan(name, out, {{"condition", test, true}, {"self", a}, {"other", b}});
  if (condition.dtype() != DType::bool_) {
    throw DTypeError(
        fmt::format(
            "where: expected condition to be a boolean tensor, but got a tensor with dtype {}",
            torch_name(condition.dtype())),
        condition.device().str());
  }
  plan.set_types(plan.promoted(), plan.promoted());
  kernels::where(plan.target(), plan.output(), plan.tensor_input(0), plan.input(1), plan.input(2));
  return plan.finish();
}

double largest(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return static_cast<double>(bfloat16::from_bits(0x7f7f));
    case DType::f32:
      return std::numeric_limits<float>::max();
    case DType::f64:
      return std::numeric_limits<double>::max();
    case DType::bool_:
    case DType::u8:
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      break;
  }
  return 0;
}

}  // namespace

Tensor clamp(const Tensor& self, std::optional<Operand> low, std::optional<Operand> high) {
  return run_clamp(nullptr, self, low, high);
}
Tensor& clamp_out(Tensor& out, const Tensor& self, std::optional<Operand> low,
                  std::optional<Operand> high) {
  run_clamp(&out, self, low, high);
  return out;
}

Tensor lerp(const Tensor& start, const Tensor& end, const Operand& weight) {
  return run_lerp(nullptr, start, end, weight);
}
Tensor& lerp_out(Tensor& out, const Tensor& start, const Tensor& end, const Operand& weight) {
  run_lerp(&out, start, end, weight);
  return out;
}

Tensor addcmul(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& value) {
  if (all_integral(self, a, b)) return add(self, mul(a, b), value);
  return run_addc("addcmul", TernaryOp::addcmul, nullptr, self, a, b, value);
}
Tensor& addcmul_out(Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                    const Scalar& value) {
  if (all_integral(self, a, b)) return add_out(out, self, mul(a, b), value);
  run_addc("addcmul", TernaryOp::addcmul, &out, self, a, b, value);
  return out;
}

Tensor addcdiv(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& value) {
  return run_addc("addcdiv", TernaryOp::addcdiv, nullptr, self, a, b, value);
}
Tensor& addcdiv_out(Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                    const Scalar& value) {
  run_addc("addcdiv", TernaryOp::addcdiv, &out, self, a, b, value);
  return out;
}

void detail::where_as(std::string_view op, Tensor& out, const Tensor& condition, const Operand& a,
                      const Operand& b) {
  run_where(op, &out, condition, a, b);
}

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  return run_where("where", nullptr, condition, a, b);
}
Tensor& where_out(Tensor& out, const Tensor& condition, const Operand& a, const Operand& b) {
  run_where("where", &out, condition, a, b);
  return out;
}

Tensor nan_to_num(const Tensor& self, double nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  detail::check_defined("nan_to_num", "self", self);
  Tensor result = empty_like(self);
  nan_to_num_out(result, self, nan, posinf, neginf);
  return result;
}

Tensor& nan_to_num_out(Tensor& out, const Tensor& self, double nan, std::optional<double> posinf,
                       std::optional<double> neginf) {
  constexpr std::string_view kOp = "nan_to_num";
  detail::check_defined(kOp, "self", self);
  detail::check_defined(kOp, "out", out);
  const Tensor is_nan = isnan(self);
  if (!is_floating_point(self.dtype())) {  // a copy
    detail::where_as(kOp, out, is_nan, false, self);
    return out;
  }
  // All tests come first: `out` may be `self`.
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor is_highest = eq(self, kInfinity);
  const Tensor is_lowest = eq(self, -kInfinity);
  const double limit = largest(self.dtype());
  detail::where_as(kOp, out, is_nan, nan, self);
  detail::where_as(kOp, out, is_highest, posinf.value_or(limit), out);
  detail::where_as(kOp, out, is_lowest, neginf.value_or(-limit), out);
  return out;
}

}  // namespace gantry
