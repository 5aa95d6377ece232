// Elementwise operations with two operands.
#include <gantry/tensor/elementwise.hpp>

#include <fmt/format.h>

#include <cstdint>

#include <gantry/core/error.hpp>

#include "kernels/elementwise/line.hpp"
#include "tensor/check.hpp"
#include "tensor/elementwise/dense_call.hpp"
#include "tensor/elementwise/elementwise_plan.hpp"
#include "tensor/named_ops.hpp"

namespace gantry {

namespace {

using kernels::BinaryOp;
using kernels::CompareOp;

// The dtypes that an operation accepts.
enum class Domain {
  any,
  numbers,           // all but bool
  real,              // all; integers and bool become f32
  integral_or_bool,  // integers and bool
  integral,          // integers
};

void check_domain(std::string_view op, Domain domain, DType dtype, Device device) {
  const auto refuse = [&](std::string_view expected) {
    throw DTypeError(
        fmt::format("{}: expected operands of {}, but got {}", op, expected, torch_name(dtype)),
        device.str());
  };
  switch (domain) {
    case Domain::any:
    case Domain::real:
      return;
    case Domain::numbers:
      if (dtype == DType::bool_) refuse("numbers");
      return;
    case Domain::integral_or_bool:
      if (is_floating_point(dtype)) refuse("an integral type or bool");
      return;
    case Domain::integral:
      if (category(dtype) != DTypeCategory::integral) refuse("an integral type");
      return;
  }
}

void check_alpha(std::string_view op, DType dtype, const Scalar& alpha, Device device) {
  if (dtype == DType::bool_ && alpha.category() == DTypeCategory::boolean) return;
  if (!is_floating_point(dtype) && alpha.category() == DTypeCategory::floating) {
    throw DTypeError(
        fmt::format(
            "{}: For integral input tensors, argument alpha must not be a floating point number.",
            op),
        device.str());
  }
  if (alpha.category() == DTypeCategory::integral && alpha.to<std::int64_t>() == 1) return;
  detail::check_factor_fits(op, alpha, dtype);
}

void check_exponent(std::string_view op, DType dtype, const Operand& exponent, Device device) {
  if (exponent.is_tensor()) return;
  if (!is_floating_point(dtype) && exponent.number().to<std::int64_t>() < 0) {
    throw InvalidArgument(
        fmt::format("{}: Integers to negative integer powers are not allowed.", op), device.str());
  }
  // In f32 and f64 an exponent that does not fit becomes infinite.
  if (dtype != DType::f32 && dtype != DType::f64) {
    detail::check_fits(op, exponent.number(), dtype);
  }
}

// Throws InvalidArgument for a number whose conversion to the operands' dtype would change the
// result. The others either keep their value or wrap as the result does.
void check_numbers(std::string_view name, BinaryOp op, DType dtype, const Operand& a,
                   const Operand& b) {
  const bool integral = category(dtype) == DTypeCategory::integral;
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::sub:
    case BinaryOp::mul:
    case BinaryOp::div:
    case BinaryOp::atan2:
    case BinaryOp::pow:  // a power of a wrapped base is the wrapped power; see check_exponent
      return;
    case BinaryOp::minimum:
    case BinaryOp::maximum:
      detail::check_operand_fits(name, a, dtype);
      detail::check_operand_fits(name, b, dtype);
      return;
    case BinaryOp::div_trunc:
    case BinaryOp::div_floor:
    case BinaryOp::remainder:
    case BinaryOp::fmod:
    case BinaryOp::shift_left:
    case BinaryOp::shift_right:
      if (!integral) return;
      detail::check_operand_fits(name, a, dtype);
      detail::check_operand_fits(name, b, dtype);
      return;
    case BinaryOp::bitwise_and:
    case BinaryOp::bitwise_or:
    case BinaryOp::bitwise_xor:
      // -1 stands for all bits.
      for (const Operand* operand : {&a, &b}) {
        if (!operand->is_tensor()) detail::check_fits(name, operand->number(), dtype);
      }
      return;
  }
}

bool is_bool(const Operand& operand) {
  return operand.is_tensor() ? operand.tensor().dtype() == DType::bool_
                             : operand.number().category() == DTypeCategory::boolean;
}

// Runs an operation as a DenseCall. Returns false, without an effect, if the arguments need a plan.
[[gnu::noinline]] bool try_dense(std::string_view name, BinaryOp op, Domain domain, Tensor* out,
                                 const Operand& a, const Operand& b, const Scalar& alpha,
                                 Tensor& result) {
  if (!a.is_tensor()) return false;
  detail::DenseCall call(a.tensor(), &b);
  const DType dtype = call.dtype();
  if (!call.fits(out, dtype)) return false;
  if (domain == Domain::real && !is_floating_point(dtype)) return false;
  if (domain != Domain::any) check_domain(name, domain, dtype, Device::cpu());
  check_alpha(name, dtype, alpha, Device::cpu());
  if (op == BinaryOp::pow) check_exponent(name, dtype, b, Device::cpu());
  if (!b.is_tensor()) check_numbers(name, op, dtype, a, b);
  result = call.begin();
  if (b.is_tensor()) {
    kernels::binary_line(op, dtype, call.numel(), call.output_data(), call.self_data(),
                         call.other_data(), alpha);
  } else {
    kernels::binary(kernels::Target::cpu(), op, call.output(), call.self(), b.number(), alpha);
  }
  return true;
}

// The result, if `out` is null.
Tensor run(std::string_view name, BinaryOp op, Domain domain, Tensor* out, const Operand& a,
           const Operand& b, const Scalar& alpha = 1) {
  if (Tensor result; try_dense(name, op, domain, out, a, b, alpha, result)) return result;
  detail::ElementwisePlan plan(name, out, {{"self", a}, {"other", b}});
  DType compute = plan.promoted();
  check_domain(name, domain, compute, plan.device());
  check_alpha(name, compute, alpha, plan.device());
  if (op == BinaryOp::pow) check_exponent(name, compute, b, plan.device());
  check_numbers(name, op, compute, a, b);
  if (domain == Domain::real && !is_floating_point(compute)) compute = DType::f32;
  plan.set_types(compute, compute);
  kernels::binary(plan.target(), op, plan.output(), plan.input(0), plan.input(1), alpha);
  return plan.finish();
}

Tensor run(std::string_view name, CompareOp op, Tensor* out, const Operand& a, const Operand& b) {
  if (a.is_tensor()) {
    if (detail::DenseCall call(a.tensor(), &b); call.fits(out, DType::bool_)) {
      Tensor result = call.begin();
      kernels::compare(kernels::Target::cpu(), op, call.output(), call.self(), call.other(b),
                       call.dtype());
      return result;
    }
  }
  detail::ElementwisePlan plan(name, out, {{"self", a}, {"other", b}});
  const DType compute = plan.promoted();
  plan.set_types(compute, DType::bool_);
  kernels::compare(plan.target(), op, plan.output(), plan.input(0), plan.input(1), compute);
  return plan.finish();
}

Tensor run_sub(Tensor* out, const Operand& a, const Operand& b, const Scalar& alpha) {
  if (is_bool(a) && is_bool(b)) {
    throw DTypeError(
        "sub: Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` "
        "or `logical_xor()` operator instead.",
        (a.is_tensor() ? a : b).tensor().device().str());
  }
  return run("sub", BinaryOp::sub, Domain::any, out, a, b, alpha);
}

RoundingMode rounding_mode(std::string_view text) {
  if (text == "trunc") return RoundingMode::trunc;
  if (text == "floor") return RoundingMode::floor;
  throw InvalidArgument(fmt::format(
      "div: expected rounding_mode to be one of None, 'trunc', or 'floor' but found '{}'", text));
}

Tensor run_div(Tensor* out, const Operand& a, const Operand& b, RoundingMode mode) {
  switch (mode) {
    case RoundingMode::none:
      return run("div", BinaryOp::div, Domain::real, out, a, b);
    case RoundingMode::trunc:
      return run("div", BinaryOp::div_trunc, Domain::numbers, out, a, b);
    case RoundingMode::floor:
      return run("div", BinaryOp::div_floor, Domain::numbers, out, a, b);
  }
  __builtin_unreachable();
}

}  // namespace

void detail::add_as(std::string_view op, Tensor& out, const Operand& a, const Operand& b) {
  run(op, BinaryOp::add, Domain::any, &out, a, b);
}

Tensor add(const Operand& a, const Operand& b, const Scalar& alpha) {
  return run("add", BinaryOp::add, Domain::any, nullptr, a, b, alpha);
}
Tensor& add_out(Tensor& out, const Operand& a, const Operand& b, const Scalar& alpha) {
  run("add", BinaryOp::add, Domain::any, &out, a, b, alpha);
  return out;
}
Tensor sub(const Operand& a, const Operand& b, const Scalar& alpha) {
  return run_sub(nullptr, a, b, alpha);
}
Tensor& sub_out(Tensor& out, const Operand& a, const Operand& b, const Scalar& alpha) {
  run_sub(&out, a, b, alpha);
  return out;
}
Tensor div(const Operand& a, const Operand& b, RoundingMode mode) {
  return run_div(nullptr, a, b, mode);
}
Tensor& div_out(Tensor& out, const Operand& a, const Operand& b, RoundingMode mode) {
  run_div(&out, a, b, mode);
  return out;
}
Tensor div(const Operand& a, const Operand& b, std::string_view mode) {
  return run_div(nullptr, a, b, rounding_mode(mode));
}
Tensor& div_out(Tensor& out, const Operand& a, const Operand& b, std::string_view mode) {
  run_div(&out, a, b, rounding_mode(mode));
  return out;
}

#define GANTRY_BINARY(name, op, domain)                                 \
  Tensor name(const Operand& a, const Operand& b) {                     \
    return run(#name, BinaryOp::op, Domain::domain, nullptr, a, b);     \
  }                                                                     \
  Tensor& name##_out(Tensor& out, const Operand& a, const Operand& b) { \
    run(#name, BinaryOp::op, Domain::domain, &out, a, b);               \
    return out;                                                         \
  }

GANTRY_BINARY(mul, mul, any)
GANTRY_BINARY(floor_divide, div_floor, numbers)
GANTRY_BINARY(remainder, remainder, numbers)
GANTRY_BINARY(fmod, fmod, numbers)
GANTRY_BINARY(pow, pow, numbers)
GANTRY_BINARY(atan2, atan2, real)
GANTRY_BINARY(minimum, minimum, any)
GANTRY_BINARY(maximum, maximum, any)
GANTRY_BINARY(bitwise_and, bitwise_and, integral_or_bool)
GANTRY_BINARY(bitwise_or, bitwise_or, integral_or_bool)
GANTRY_BINARY(bitwise_xor, bitwise_xor, integral_or_bool)
GANTRY_BINARY(bitwise_left_shift, shift_left, integral)
GANTRY_BINARY(bitwise_right_shift, shift_right, integral)
#undef GANTRY_BINARY

#define GANTRY_COMPARISON(name)                                         \
  Tensor name(const Operand& a, const Operand& b) {                     \
    return run(#name, CompareOp::name, nullptr, a, b);                  \
  }                                                                     \
  Tensor& name##_out(Tensor& out, const Operand& a, const Operand& b) { \
    run(#name, CompareOp::name, &out, a, b);                            \
    return out;                                                         \
  }

GANTRY_COMPARISON(eq)
GANTRY_COMPARISON(ne)
GANTRY_COMPARISON(lt)
GANTRY_COMPARISON(le)
GANTRY_COMPARISON(gt)
GANTRY_COMPARISON(ge)
GANTRY_COMPARISON(logical_and)
GANTRY_COMPARISON(logical_or)
GANTRY_COMPARISON(logical_xor)
#undef GANTRY_COMPARISON

}  // namespace gantry
