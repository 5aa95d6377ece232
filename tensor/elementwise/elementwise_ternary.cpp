// Elementwise operations with three operands, and composite ones.
#include <fmt/format.h>

#include <array>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/layout/copy.hpp"
#include "tensor/check.hpp"
#include "tensor/elementwise/elementwise_plan.hpp"
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

// addcmul of integers. The product gets its own memory, because `out` may be an input.
void run_integral_addcmul(detail::ElementwisePlan& plan, const Scalar& value) {
  const DType compute = plan.promoted();
  if (value.category() == DTypeCategory::floating) {
    throw DTypeError(
        "addcmul: For integral input tensors, argument value must not be a floating point number.",
        plan.device().str());
  }
  detail::check_factor_fits("addcmul", value, compute);
  plan.set_types(compute, compute);
  const Tensor product = empty(plan.shape(), {.dtype = compute, .device = plan.device()});
  kernels::binary(plan.target(), kernels::BinaryOp::mul, product.ref(), plan.input(1),
                  plan.input(2));
  kernels::binary(plan.target(), kernels::BinaryOp::add, plan.output(), plan.input(0),
                  product.ref(), value);
}

Tensor run(detail::ElementwisePlan& plan, TernaryOp op, DType compute, const Scalar& value = 1) {
  plan.set_types(compute, compute);
  kernels::ternary(plan.target(), op, plan.output(), plan.input(0), plan.input(1), plan.input(2),
                   value);
  return plan.finish();
}

// The common part of addcmul and addcdiv.
Tensor run_addc(std::string_view name, TernaryOp op, Tensor* out, const Tensor& self,
                const Tensor& a, const Tensor& b, const Scalar& value) {
  const Operand operand(self);
  const Operand first(a);
  const Operand second(b);
  detail::ElementwisePlan plan(name, out,
                               {{"self", operand}, {"tensor1", first}, {"tensor2", second}});
  const DType compute = plan.promoted();
  if (op == TernaryOp::addcdiv && !is_floating_point(a.dtype()) && !is_floating_point(b.dtype())) {
    throw DTypeError(
        fmt::format("{}: Integer division with addcdiv is no longer supported; expected tensor1 or "
                    "tensor2 of a floating type, but got {} and {}",
                    name, torch_name(a.dtype()), torch_name(b.dtype())),
        plan.device().str());
  }
  if (!is_floating_point(compute)) {
    run_integral_addcmul(plan, value);
    return plan.finish();
  }
  detail::check_factor_fits(name, value, compute);
  return run(plan, op, compute, value);
}

// lerp computes in the dtype of `start`. A 0-dim weight is converted to it, like a number.
Tensor run_lerp(Tensor* out, const Tensor& start, const Tensor& end, const Operand& weight) {
  const Operand first(start);
  const Operand second(end);
  detail::ElementwisePlan plan("lerp", out, {{"self", first}, {"end", second}, {"weight", weight}});
  const DType compute = start.dtype();
  check_floating("lerp", compute, plan.device());
  const auto check_same = [&](std::string_view name, const Tensor& tensor) {
    if (tensor.dtype() == compute) return;
    throw DTypeError(fmt::format("lerp: expected dtype {} for `{}` but got dtype {}",
                                 torch_name(compute), name, torch_name(tensor.dtype())),
                     plan.device().str());
  };
  check_same("end", end);
  if (weight.is_tensor() && weight.tensor().dim() > 0) check_same("weight", weight.tensor());
  if (!weight.is_tensor()) detail::check_factor_fits("lerp", weight.number(), compute);
  return run(plan, TernaryOp::lerp, compute);
}

// The number `bound` as a value of T. A bound that every element satisfies becomes the limit of T.
// Throws InvalidArgument, as PyTorch does, if no element satisfies it.
template <class T>
Scalar fitting_bound(std::string_view name, bool is_max, const Scalar& bound, Device device) {
  using Limits = std::numeric_limits<T>;
  const auto number = bound.to<std::int64_t>();
  if (number >= Limits::lowest() && number <= Limits::max()) return number;
  if (is_max == (number < Limits::lowest())) {
    throw InvalidArgument(
        fmt::format("clamp: Clamp {} value {} is outside the representable range of {}", name,
                    number, torch_name(dtype_of<T>)),
        device.str());
  }
  return is_max ? Limits::max() : Limits::lowest();
}

// The bounds of a clamp. All are checked before anything is written: `out` may be the first
// operand.
class Bounds {
 public:
  Bounds(const detail::ElementwisePlan& plan, std::initializer_list<bool> are_max) {
    const DType dtype = plan.promoted();
    if (dtype == DType::bool_) {
      throw DTypeError("clamp: expected a tensor of numbers, but got Bool", plan.device().str());
    }
    int i = 0;
    for (const bool is_max : are_max) {
      std::optional<Scalar>& number = numbers_[static_cast<std::size_t>(i)];
      if (const Operand& bound = plan.operand(++i); !bound.is_tensor()) {
        number = fitting(is_max, bound.number(), dtype, plan.device());
      }
    }
  }

  // Bound i of the plan, after set_types.
  kernels::Operand input(const detail::ElementwisePlan& plan, int i) const {
    const std::optional<Scalar>& number = numbers_[static_cast<std::size_t>(i)];
    return number ? kernels::Operand(*number) : plan.input(i + 1);
  }

 private:
  static Scalar fitting(bool is_max, const Scalar& bound, DType dtype, Device device) {
    return dispatch(dtype, [&]<class T>(TypeTag<T>) -> Scalar {
      if constexpr (std::is_integral_v<T>) {
        return fitting_bound<T>(is_max ? "max" : "min", is_max, bound, device);
      } else {
        detail::check_fits("clamp", bound, dtype);
        return bound;
      }
    });
  }

  std::array<std::optional<Scalar>, 2> numbers_;
};

Tensor run_clamp(Tensor* out, const Tensor& self, const std::optional<Operand>& low,
                 const std::optional<Operand>& high) {
  const Operand operand(self);
  if (low && high) {
    detail::ElementwisePlan plan("clamp", out, {{"self", operand}, {"min", *low}, {"max", *high}});
    const Bounds bounds(plan, {false, true});
    plan.set_types(plan.promoted(), plan.promoted());
    kernels::ternary(plan.target(), TernaryOp::clamp, plan.output(), plan.input(0),
                     bounds.input(plan, 0), bounds.input(plan, 1));
    return plan.finish();
  }
  if (!low && !high) {
    throw InvalidArgument("clamp: At least one of 'min' or 'max' must not be None",
                          self.device().str());
  }
  detail::ElementwisePlan plan("clamp", out,
                               {{"self", operand}, {low ? "min" : "max", low ? *low : *high}});
  const Bounds bounds(plan, {high.has_value()});
  plan.set_types(plan.promoted(), plan.promoted());
  kernels::binary(plan.target(), low ? kernels::BinaryOp::maximum : kernels::BinaryOp::minimum,
                  plan.output(), plan.input(0), bounds.input(plan, 0));
  return plan.finish();
}

// Throws InvalidArgument for a number that `dtype` cannot hold. As in PyTorch, f16 and bf16 make it
// infinite instead.
void check_choice(std::string_view op, const Operand& operand, DType dtype) {
  const bool may_overflow = dtype == DType::f16 || dtype == DType::bf16;
  if (!operand.is_tensor() && !may_overflow) detail::check_fits(op, operand.number(), dtype);
}

// The elements of a condition as bool. In PyTorch, too, bytes serve as conditions.
Tensor as_condition(const Tensor& condition) {
  return condition.defined() && condition.dtype() == DType::u8 ? condition.view(DType::bool_)
                                                               : condition;
}

Tensor run_where(std::string_view name, Tensor* out, const Tensor& given, const Operand& a,
                 const Operand& b, std::optional<DType> dtype = {}) {
  const Tensor condition = as_condition(given);
  const Operand test(condition);
  detail::ElementwisePlan plan(name, out, {{"condition", test, true}, {"self", a}, {"other", b}},
                               detail::ElementwisePlan::Use::moves);
  if (condition.dtype() != DType::bool_) {
    throw DTypeError(
        fmt::format(
            "where: expected condition to be a boolean tensor, but got a tensor with dtype {}",
            torch_name(condition.dtype())),
        condition.device().str());
  }
  const DType compute = dtype.value_or(plan.promoted());
  for (const Operand* operand : {&a, &b}) check_choice(name, *operand, compute);
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
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::f8e4m3:
    case DType::f8e5m2:
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
  // All tests come before the first write: the output may be `self`.
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
