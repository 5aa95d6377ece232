// Members of Tensor that forward to the functions of elementwise.hpp, special_functions.hpp and
// aliases.hpp.
#include <gantry/tensor/aliases.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/special_functions.hpp>

namespace gantry {

#define GANTRY_UNARY(op)                                  \
  Tensor Tensor::op() const { return gantry::op(*this); } \
  Tensor& Tensor::op##_() const { return op##_out(handle(), *this); }

#define GANTRY_BINARY(op)                                                            \
  Tensor Tensor::op(const Operand& other) const { return gantry::op(*this, other); } \
  Tensor& Tensor::op##_(const Operand& other) const { return op##_out(handle(), *this, other); }

GANTRY_UNARY(neg)
GANTRY_UNARY(abs)
GANTRY_UNARY(sign)
GANTRY_UNARY(square)
GANTRY_UNARY(reciprocal)
GANTRY_UNARY(sqrt)
GANTRY_UNARY(rsqrt)
GANTRY_UNARY(exp)
GANTRY_UNARY(expm1)
GANTRY_UNARY(log)
GANTRY_UNARY(log2)
GANTRY_UNARY(log10)
GANTRY_UNARY(log1p)
GANTRY_UNARY(sin)
GANTRY_UNARY(cos)
GANTRY_UNARY(tan)
GANTRY_UNARY(asin)
GANTRY_UNARY(acos)
GANTRY_UNARY(atan)
GANTRY_UNARY(sinh)
GANTRY_UNARY(cosh)
GANTRY_UNARY(tanh)
GANTRY_UNARY(sigmoid)
GANTRY_UNARY(relu)
GANTRY_UNARY(gelu)
GANTRY_UNARY(silu)
GANTRY_UNARY(erf)
GANTRY_UNARY(floor)
GANTRY_UNARY(ceil)
GANTRY_UNARY(round)
GANTRY_UNARY(trunc)
GANTRY_UNARY(frac)
GANTRY_UNARY(bitwise_not)
GANTRY_UNARY(logical_not)
GANTRY_UNARY(asinh)
GANTRY_UNARY(acosh)
GANTRY_UNARY(atanh)
GANTRY_UNARY(erfc)
GANTRY_UNARY(exp2)
GANTRY_UNARY(sinc)
GANTRY_UNARY(deg2rad)
GANTRY_UNARY(rad2deg)
GANTRY_UNARY(absolute)
GANTRY_UNARY(sgn)
GANTRY_UNARY(fix)

GANTRY_BINARY(mul)
GANTRY_BINARY(floor_divide)
GANTRY_BINARY(remainder)
GANTRY_BINARY(fmod)
GANTRY_BINARY(pow)
GANTRY_BINARY(atan2)
GANTRY_BINARY(minimum)
GANTRY_BINARY(maximum)
GANTRY_BINARY(bitwise_and)
GANTRY_BINARY(bitwise_or)
GANTRY_BINARY(bitwise_xor)
GANTRY_BINARY(bitwise_left_shift)
GANTRY_BINARY(bitwise_right_shift)
GANTRY_BINARY(logical_and)
GANTRY_BINARY(logical_or)
GANTRY_BINARY(logical_xor)

GANTRY_BINARY(eq)
GANTRY_BINARY(ne)
GANTRY_BINARY(lt)
GANTRY_BINARY(le)
GANTRY_BINARY(gt)
GANTRY_BINARY(ge)
GANTRY_BINARY(hypot)
GANTRY_BINARY(xlogy)
GANTRY_BINARY(copysign)
GANTRY_BINARY(nextafter)
GANTRY_BINARY(ldexp)
GANTRY_BINARY(float_power)
GANTRY_BINARY(true_divide)
GANTRY_BINARY(clamp_min)
GANTRY_BINARY(clamp_max)

Tensor Tensor::max(const Tensor& other) const { return maximum(other); }
Tensor Tensor::min(const Tensor& other) const { return minimum(other); }

#undef GANTRY_UNARY
#undef GANTRY_BINARY

Tensor Tensor::isnan() const { return gantry::isnan(*this); }
Tensor Tensor::isinf() const { return gantry::isinf(*this); }
Tensor Tensor::isfinite() const { return gantry::isfinite(*this); }

Tensor Tensor::add(const Operand& other, const Scalar& alpha) const {
  return gantry::add(*this, other, alpha);
}
Tensor& Tensor::add_(const Operand& other, const Scalar& alpha) const {
  return add_out(handle(), *this, other, alpha);
}
Tensor Tensor::sub(const Operand& other, const Scalar& alpha) const {
  return gantry::sub(*this, other, alpha);
}
Tensor& Tensor::sub_(const Operand& other, const Scalar& alpha) const {
  return sub_out(handle(), *this, other, alpha);
}
Tensor Tensor::div(const Operand& other, RoundingMode mode) const {
  return gantry::div(*this, other, mode);
}
Tensor& Tensor::div_(const Operand& other, RoundingMode mode) const {
  return div_out(handle(), *this, other, mode);
}
Tensor Tensor::div(const Operand& other, std::string_view mode) const {
  return gantry::div(*this, other, mode);
}
Tensor& Tensor::div_(const Operand& other, std::string_view mode) const {
  return div_out(handle(), *this, other, mode);
}

Tensor Tensor::clamp(std::optional<Operand> low, std::optional<Operand> high) const {
  return gantry::clamp(*this, low, high);
}
Tensor& Tensor::clamp_(std::optional<Operand> low, std::optional<Operand> high) const {
  return clamp_out(handle(), *this, low, high);
}
Tensor Tensor::lerp(const Tensor& end, const Operand& weight) const {
  return gantry::lerp(*this, end, weight);
}
Tensor& Tensor::lerp_(const Tensor& end, const Operand& weight) const {
  return lerp_out(handle(), *this, end, weight);
}
Tensor Tensor::addcmul(const Tensor& a, const Tensor& b, const Scalar& value) const {
  return gantry::addcmul(*this, a, b, value);
}
Tensor& Tensor::addcmul_(const Tensor& a, const Tensor& b, const Scalar& value) const {
  return addcmul_out(handle(), *this, a, b, value);
}
Tensor Tensor::addcdiv(const Tensor& a, const Tensor& b, const Scalar& value) const {
  return gantry::addcdiv(*this, a, b, value);
}
Tensor& Tensor::addcdiv_(const Tensor& a, const Tensor& b, const Scalar& value) const {
  return addcdiv_out(handle(), *this, a, b, value);
}

Tensor Tensor::nan_to_num(double nan, std::optional<double> posinf,
                          std::optional<double> neginf) const {
  return gantry::nan_to_num(*this, nan, posinf, neginf);
}
Tensor& Tensor::nan_to_num_(double nan, std::optional<double> posinf,
                            std::optional<double> neginf) const {
  return nan_to_num_out(handle(), *this, nan, posinf, neginf);
}
Tensor Tensor::where(const Tensor& condition, const Operand& other) const {
  return gantry::where(condition, *this, other);
}
Tensor Tensor::isclose(const Tensor& other, double rtol, double atol, bool equal_nan) const {
  return gantry::isclose(*this, other, rtol, atol, equal_nan);
}

Tensor Tensor::signbit() const { return gantry::signbit(*this); }
Tensor Tensor::isposinf() const { return gantry::isposinf(*this); }
Tensor Tensor::isneginf() const { return gantry::isneginf(*this); }
Tensor Tensor::positive() const { return gantry::positive(*this); }
Tensor Tensor::logaddexp(const Operand& other) const { return gantry::logaddexp(*this, other); }
Tensor Tensor::logaddexp2(const Operand& other) const { return gantry::logaddexp2(*this, other); }
Tensor Tensor::rsub(const Operand& other, const Scalar& alpha) const {
  return gantry::rsub(*this, other, alpha);
}
Tensor Tensor::heaviside(const Tensor& values) const { return gantry::heaviside(*this, values); }
Tensor& Tensor::heaviside_(const Tensor& values) const {
  return heaviside_out(handle(), *this, values);
}

}  // namespace gantry
