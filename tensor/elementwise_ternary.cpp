// Elementwise operations with three operands, and those made of several others.
#include <fmt/format.h>

#include <array>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/copy.hpp"
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

// addcmul without floating types: the product first, since `out` may be an input.
void run_integral_addcmul(detail::ElementwisePlan& plan, const Scalar& value) {
  const DType compute = plan.promoted();
  if (value.category() == DTypeCategory::floating) {
    throw DTypeError(
        "addcmul: For integral input tensors, argument value must not be a floating point number.",
        plan.device().str());
  }
  plan.set_types(compute, compute);
  const Tensor product = empty(plan.shape(), {.dtype = compute, .device = plan.device()});
  kernels::binary(plan.target(), kernels::BinaryOp::mul, product.ref(), plan.input(1),
                  plan.input(2));
  kernels::binary(plan.target(), kernels::BinaryOp::add, plan.output(), plan.input(0),
                  product.ref(), value);
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
  } else if (op == TernaryOp::addcmul && !is_floating_point(compute)) {
    run_integral_addcmul(plan, value);
    return plan.finish();
  } else {
    check_floating(name, compute, plan.device());
  }
  plan.set_types(compute, compute);
  kernels::ternary(plan.target(), op, plan.output(), plan.input(0), plan.input(1), plan.input(2),
                   value);
  return plan.finish();
}

// One bound of a clamp.
Tensor run_bound(kernels::BinaryOp op, Tensor* out, const Operand& self, std::string_view name,
                 const Operand& bound) {
  detail::ElementwisePlan plan("clamp", out, {{"self", self}, {name, bound}});
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
  if (low) return run_bound(kernels::BinaryOp::maximum, out, operand, "min", *low);
  if (high) return run_bound(kernels::BinaryOp::minimum, out, operand, "max", *high);
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

Tensor run_where(std::string_view name, Tensor* out, const Tensor& condition, const Operand& a,
                 const Operand& b, std::optional<DType> dtype = {}) {
  const Operand test(condition);
  detail::ElementwisePlan plan(name, out, {{"condition", test, true}, {"self", a}, {"other", b}});
  if (condition.dtype() != DType::bool_) {
    throw DTypeError(
        fmt::format(
            "where: expected condition to be a boolean tensor, but got a tensor with dtype {}",
            torch_name(condition.dtype())),
        condition.device().str());
  }
  const DType compute = dtype.value_or(plan.promoted());
  plan.set_types(compute, compute);
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

Tensor run_nan_to_num(Tensor* out, const Tensor& self, double nan, std::optional<double> posinf,
                      std::optional<double> neginf) {
  const Operand operand(self);
  detail::ElementwisePlan plan("nan_to_num", out, {{"self", operand}});
  const DType compute = plan.promoted();
  plan.set_types(compute, compute);
  const kernels::Target target = plan.target();
  const TensorRef source = plan.tensor_input(0);
  if (!is_floating_point(compute)) {
    kernels::copy(target, plan.output(), source);
    return plan.finish();
  }
  // All tests come first: the output may be `self`.
  const TensorOptions tests{.dtype = DType::bool_, .device = plan.device()};
  const Tensor is_nan = empty(plan.shape(), tests);
  const Tensor is_highest = empty(plan.shape(), tests);
  const Tensor is_lowest = empty(plan.shape(), tests);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  using kernels::CompareOp;
  kernels::predicate(target, kernels::PredicateOp::is_nan, is_nan.ref(), source);
  kernels::compare(target, CompareOp::eq, is_highest.ref(), source, Scalar(kInfinity), compute);
  kernels::compare(target, CompareOp::eq, is_lowest.ref(), source, Scalar(-kInfinity), compute);
  const double limit = largest(compute);
  const TensorRef result = plan.output();
  kernels::where(target, result, is_nan.ref(), Scalar(nan), source);
  kernels::where(target, result, is_highest.ref(), Scalar(posinf.value_or(limit)), result);
  kernels::where(target, result, is_lowest.ref(), Scalar(neginf.value_or(-limit)), result);
  return plan.finish();
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
  return run_addc("addcmul", TernaryOp::addcmul, nullptr, self, a, b, value);
}
Tensor& addcmul_out(Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                    const Scalar& value) {
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

Tensor detail::where_as(std::string_view op, Tensor* out, const Tensor& condition, const Operand& a,
                        const Operand& b, DType dtype) {
  return run_where(op, out, condition, a, b, dtype);
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
  return run_nan_to_num(nullptr, self, nan, posinf, neginf);
}
Tensor& nan_to_num_out(Tensor& out, const Tensor& self, double nan, std::optional<double> posinf,
                       std::optional<double> neginf) {
  run_nan_to_num(&out, self, nan, posinf, neginf);
  return out;
}

}  // namespace gantry
