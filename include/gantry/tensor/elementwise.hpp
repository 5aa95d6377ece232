#pragma once

#include <optional>
#include <string_view>

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

/// Elementwise operations.
///
/// Shapes: operands are broadcast; the result has the common shape.
/// DTypes: promoted by result_type (promote.hpp). Operations on real numbers (div, exp, sqrt, sin,
/// …) convert integers and bool to f32. f16 and bf16 compute in f32 and round once. Comparisons,
/// minimum and maximum first convert both operands to the promoted dtype, numbers included.
/// Numbers: in add, sub, mul and as the base of pow, a number outside an integer dtype's range
/// wraps, as the result does; so it does in a comparison, where 256 is 0 for a u8 tensor. In other
/// operations on integers, in minimum, maximum and where, and as alpha, weight or value, it is an
/// InvalidArgument. minimum, maximum and where make a number that f16 or bf16 cannot hold infinite.
/// Device/stream: current stream of the operands' device; the host does not block. All operands are
/// on one device. One 0-dim CPU tensor is allowed among operands on a GPU.
/// Aliasing: the result is new memory. `op_out(out, …)` writes to `out`. It has the result's shape,
/// and a dtype to which the result can be cast (can_cast). `out` may be an operand, but may not
/// partially overlap one. A member `op_` is `op_out` with the tensor as `out` and as first operand.
/// Throws: ShapeError, DTypeError, DeviceMismatchError, InvalidArgument. After an exception nothing
/// has changed.
/// @since 0.1
namespace gantry {

// One operand.
/// -x. Throws: DTypeError for bool.
[[nodiscard]] GANTRY_API Tensor neg(const Tensor& self);
GANTRY_API Tensor& neg_out(Tensor& out, const Tensor& self);
/// |x|.
[[nodiscard]] GANTRY_API Tensor abs(const Tensor& self);
GANTRY_API Tensor& abs_out(Tensor& out, const Tensor& self);
/// The sign: -1, 0 or 1; NaN for NaN.
[[nodiscard]] GANTRY_API Tensor sign(const Tensor& self);
GANTRY_API Tensor& sign_out(Tensor& out, const Tensor& self);
/// x * x. DTypes: i64 for bool.
[[nodiscard]] GANTRY_API Tensor square(const Tensor& self);
GANTRY_API Tensor& square_out(Tensor& out, const Tensor& self);
/// 1 / x.
[[nodiscard]] GANTRY_API Tensor reciprocal(const Tensor& self);
GANTRY_API Tensor& reciprocal_out(Tensor& out, const Tensor& self);
/// Square root.
[[nodiscard]] GANTRY_API Tensor sqrt(const Tensor& self);
GANTRY_API Tensor& sqrt_out(Tensor& out, const Tensor& self);
/// 1 / sqrt(x).
[[nodiscard]] GANTRY_API Tensor rsqrt(const Tensor& self);
GANTRY_API Tensor& rsqrt_out(Tensor& out, const Tensor& self);
/// e to the power of x.
[[nodiscard]] GANTRY_API Tensor exp(const Tensor& self);
GANTRY_API Tensor& exp_out(Tensor& out, const Tensor& self);
/// exp(x) - 1, accurate near 0.
[[nodiscard]] GANTRY_API Tensor expm1(const Tensor& self);
GANTRY_API Tensor& expm1_out(Tensor& out, const Tensor& self);
/// Natural logarithm.
[[nodiscard]] GANTRY_API Tensor log(const Tensor& self);
GANTRY_API Tensor& log_out(Tensor& out, const Tensor& self);
/// Logarithm to base 2.
[[nodiscard]] GANTRY_API Tensor log2(const Tensor& self);
GANTRY_API Tensor& log2_out(Tensor& out, const Tensor& self);
/// Logarithm to base 10.
[[nodiscard]] GANTRY_API Tensor log10(const Tensor& self);
GANTRY_API Tensor& log10_out(Tensor& out, const Tensor& self);
/// log(1 + x), accurate near 0.
[[nodiscard]] GANTRY_API Tensor log1p(const Tensor& self);
GANTRY_API Tensor& log1p_out(Tensor& out, const Tensor& self);
/// Sine of an angle in radians.
[[nodiscard]] GANTRY_API Tensor sin(const Tensor& self);
GANTRY_API Tensor& sin_out(Tensor& out, const Tensor& self);
/// Cosine of an angle in radians.
[[nodiscard]] GANTRY_API Tensor cos(const Tensor& self);
GANTRY_API Tensor& cos_out(Tensor& out, const Tensor& self);
/// Tangent of an angle in radians.
[[nodiscard]] GANTRY_API Tensor tan(const Tensor& self);
GANTRY_API Tensor& tan_out(Tensor& out, const Tensor& self);
/// Arcsine in radians.
[[nodiscard]] GANTRY_API Tensor asin(const Tensor& self);
GANTRY_API Tensor& asin_out(Tensor& out, const Tensor& self);
/// Arccosine in radians.
[[nodiscard]] GANTRY_API Tensor acos(const Tensor& self);
GANTRY_API Tensor& acos_out(Tensor& out, const Tensor& self);
/// Arctangent in radians.
[[nodiscard]] GANTRY_API Tensor atan(const Tensor& self);
GANTRY_API Tensor& atan_out(Tensor& out, const Tensor& self);
/// Hyperbolic sine.
[[nodiscard]] GANTRY_API Tensor sinh(const Tensor& self);
GANTRY_API Tensor& sinh_out(Tensor& out, const Tensor& self);
/// Hyperbolic cosine.
[[nodiscard]] GANTRY_API Tensor cosh(const Tensor& self);
GANTRY_API Tensor& cosh_out(Tensor& out, const Tensor& self);
/// Hyperbolic tangent.
[[nodiscard]] GANTRY_API Tensor tanh(const Tensor& self);
GANTRY_API Tensor& tanh_out(Tensor& out, const Tensor& self);
/// 1 / (1 + exp(-x)).
[[nodiscard]] GANTRY_API Tensor sigmoid(const Tensor& self);
GANTRY_API Tensor& sigmoid_out(Tensor& out, const Tensor& self);
/// max(x, 0). The result for -0 is -0.
[[nodiscard]] GANTRY_API Tensor relu(const Tensor& self);
GANTRY_API Tensor& relu_out(Tensor& out, const Tensor& self);
/// x times the standard normal distribution function at x (the exact form, with erf).
[[nodiscard]] GANTRY_API Tensor gelu(const Tensor& self);
GANTRY_API Tensor& gelu_out(Tensor& out, const Tensor& self);
/// x * sigmoid(x).
[[nodiscard]] GANTRY_API Tensor silu(const Tensor& self);
GANTRY_API Tensor& silu_out(Tensor& out, const Tensor& self);
/// Error function.
[[nodiscard]] GANTRY_API Tensor erf(const Tensor& self);
GANTRY_API Tensor& erf_out(Tensor& out, const Tensor& self);
/// Rounds down. Integers are unchanged.
[[nodiscard]] GANTRY_API Tensor floor(const Tensor& self);
GANTRY_API Tensor& floor_out(Tensor& out, const Tensor& self);
/// Rounds up. Integers are unchanged.
[[nodiscard]] GANTRY_API Tensor ceil(const Tensor& self);
GANTRY_API Tensor& ceil_out(Tensor& out, const Tensor& self);
/// Rounds to the nearest integer, ties to even. Integers are unchanged.
[[nodiscard]] GANTRY_API Tensor round(const Tensor& self);
GANTRY_API Tensor& round_out(Tensor& out, const Tensor& self);
/// Rounds toward zero. Integers are unchanged.
[[nodiscard]] GANTRY_API Tensor trunc(const Tensor& self);
GANTRY_API Tensor& trunc_out(Tensor& out, const Tensor& self);
/// x - trunc(x). DTypes: floating.
[[nodiscard]] GANTRY_API Tensor frac(const Tensor& self);
GANTRY_API Tensor& frac_out(Tensor& out, const Tensor& self);
/// Bitwise complement. DTypes: integers and bool.
[[nodiscard]] GANTRY_API Tensor bitwise_not(const Tensor& self);
GANTRY_API Tensor& bitwise_not_out(Tensor& out, const Tensor& self);

// Tests with a bool result.
/// True where x is zero.
[[nodiscard]] GANTRY_API Tensor logical_not(const Tensor& self);
GANTRY_API Tensor& logical_not_out(Tensor& out, const Tensor& self);
/// True where x is NaN; false for integers.
[[nodiscard]] GANTRY_API Tensor isnan(const Tensor& self);
GANTRY_API Tensor& isnan_out(Tensor& out, const Tensor& self);
/// True where x is +inf or -inf; false for integers.
[[nodiscard]] GANTRY_API Tensor isinf(const Tensor& self);
GANTRY_API Tensor& isinf_out(Tensor& out, const Tensor& self);
/// True where x is neither infinite nor NaN; true for integers.
[[nodiscard]] GANTRY_API Tensor isfinite(const Tensor& self);
GANTRY_API Tensor& isfinite_out(Tensor& out, const Tensor& self);

// Two operands, at least one a tensor.
/// a + alpha * b; for two bools, a or b.
[[nodiscard]] GANTRY_API Tensor add(const Operand& a, const Operand& b, const Scalar& alpha = 1);
GANTRY_API Tensor& add_out(Tensor& out, const Operand& a, const Operand& b,
                           const Scalar& alpha = 1);
/// a - alpha * b. Throws: DTypeError for two bools.
[[nodiscard]] GANTRY_API Tensor sub(const Operand& a, const Operand& b, const Scalar& alpha = 1);
GANTRY_API Tensor& sub_out(Tensor& out, const Operand& a, const Operand& b,
                           const Scalar& alpha = 1);
/// a / b. The rounding modes `trunc` and `floor` keep integer dtypes.
[[nodiscard]] GANTRY_API Tensor div(const Operand& a, const Operand& b,
                                    RoundingMode mode = RoundingMode::none);
GANTRY_API Tensor& div_out(Tensor& out, const Operand& a, const Operand& b,
                           RoundingMode mode = RoundingMode::none);
/// `mode` is "trunc" or "floor". Throws: InvalidArgument for any other.
[[nodiscard]] GANTRY_API Tensor div(const Operand& a, const Operand& b, std::string_view mode);
GANTRY_API Tensor& div_out(Tensor& out, const Operand& a, const Operand& b, std::string_view mode);
/// a * b; for two bools, a and b.
[[nodiscard]] GANTRY_API Tensor mul(const Operand& a, const Operand& b);
GANTRY_API Tensor& mul_out(Tensor& out, const Operand& a, const Operand& b);
/// floor(a / b). Division of an integer by zero gives 0.
[[nodiscard]] GANTRY_API Tensor floor_divide(const Operand& a, const Operand& b);
GANTRY_API Tensor& floor_divide_out(Tensor& out, const Operand& a, const Operand& b);
/// a - floor(a / b) * b, with the sign of b.
[[nodiscard]] GANTRY_API Tensor remainder(const Operand& a, const Operand& b);
GANTRY_API Tensor& remainder_out(Tensor& out, const Operand& a, const Operand& b);
/// a - trunc(a / b) * b, with the sign of a.
[[nodiscard]] GANTRY_API Tensor fmod(const Operand& a, const Operand& b);
GANTRY_API Tensor& fmod_out(Tensor& out, const Operand& a, const Operand& b);
/// a to the power of b. Throws: InvalidArgument for a number b that the dtype cannot hold
/// (integers, f16 and bf16), or that is negative (integers).
[[nodiscard]] GANTRY_API Tensor pow(const Operand& a, const Operand& b);
GANTRY_API Tensor& pow_out(Tensor& out, const Operand& a, const Operand& b);
/// The angle of the point with abscissa b and ordinate a, in radians, in [-pi, pi].
[[nodiscard]] GANTRY_API Tensor atan2(const Operand& a, const Operand& b);
GANTRY_API Tensor& atan2_out(Tensor& out, const Operand& a, const Operand& b);
/// The smaller of two elements; NaN propagates.
[[nodiscard]] GANTRY_API Tensor minimum(const Operand& a, const Operand& b);
GANTRY_API Tensor& minimum_out(Tensor& out, const Operand& a, const Operand& b);
/// Same as minimum, for two tensors.
[[nodiscard]] inline Tensor min(const Tensor& a, const Tensor& b) { return minimum(a, b); }
/// The larger of two elements; NaN propagates.
[[nodiscard]] GANTRY_API Tensor maximum(const Operand& a, const Operand& b);
GANTRY_API Tensor& maximum_out(Tensor& out, const Operand& a, const Operand& b);
inline Tensor& min_out(Tensor& out, const Tensor& a, const Tensor& b) {
  return minimum_out(out, a, b);
}
/// Same as maximum, for two tensors.
[[nodiscard]] inline Tensor max(const Tensor& a, const Tensor& b) { return maximum(a, b); }
/// Bitwise and. DTypes: integers and bool.
[[nodiscard]] GANTRY_API Tensor bitwise_and(const Operand& a, const Operand& b);
GANTRY_API Tensor& bitwise_and_out(Tensor& out, const Operand& a, const Operand& b);
inline Tensor& max_out(Tensor& out, const Tensor& a, const Tensor& b) {
  return maximum_out(out, a, b);
}
/// Bitwise or. DTypes: integers and bool.
[[nodiscard]] GANTRY_API Tensor bitwise_or(const Operand& a, const Operand& b);
GANTRY_API Tensor& bitwise_or_out(Tensor& out, const Operand& a, const Operand& b);
/// Bitwise exclusive or. DTypes: integers and bool.
[[nodiscard]] GANTRY_API Tensor bitwise_xor(const Operand& a, const Operand& b);
GANTRY_API Tensor& bitwise_xor_out(Tensor& out, const Operand& a, const Operand& b);
/// a << b. DTypes: integers.
[[nodiscard]] GANTRY_API Tensor bitwise_left_shift(const Operand& a, const Operand& b);
GANTRY_API Tensor& bitwise_left_shift_out(Tensor& out, const Operand& a, const Operand& b);
/// a >> b, arithmetic for signed dtypes. DTypes: integers.
[[nodiscard]] GANTRY_API Tensor bitwise_right_shift(const Operand& a, const Operand& b);
GANTRY_API Tensor& bitwise_right_shift_out(Tensor& out, const Operand& a, const Operand& b);
/// True where both are non-zero.
[[nodiscard]] GANTRY_API Tensor logical_and(const Operand& a, const Operand& b);
GANTRY_API Tensor& logical_and_out(Tensor& out, const Operand& a, const Operand& b);
/// True where at least one is non-zero.
[[nodiscard]] GANTRY_API Tensor logical_or(const Operand& a, const Operand& b);
GANTRY_API Tensor& logical_or_out(Tensor& out, const Operand& a, const Operand& b);
/// True where exactly one is non-zero.
[[nodiscard]] GANTRY_API Tensor logical_xor(const Operand& a, const Operand& b);
GANTRY_API Tensor& logical_xor_out(Tensor& out, const Operand& a, const Operand& b);
/// a == b, as bool.
[[nodiscard]] GANTRY_API Tensor eq(const Operand& a, const Operand& b);
GANTRY_API Tensor& eq_out(Tensor& out, const Operand& a, const Operand& b);
/// a != b, as bool.
[[nodiscard]] GANTRY_API Tensor ne(const Operand& a, const Operand& b);
GANTRY_API Tensor& ne_out(Tensor& out, const Operand& a, const Operand& b);
/// a < b, as bool.
[[nodiscard]] GANTRY_API Tensor lt(const Operand& a, const Operand& b);
GANTRY_API Tensor& lt_out(Tensor& out, const Operand& a, const Operand& b);
/// a <= b, as bool.
[[nodiscard]] GANTRY_API Tensor le(const Operand& a, const Operand& b);
GANTRY_API Tensor& le_out(Tensor& out, const Operand& a, const Operand& b);
/// a > b, as bool.
[[nodiscard]] GANTRY_API Tensor gt(const Operand& a, const Operand& b);
GANTRY_API Tensor& gt_out(Tensor& out, const Operand& a, const Operand& b);
/// a >= b, as bool.
[[nodiscard]] GANTRY_API Tensor ge(const Operand& a, const Operand& b);
GANTRY_API Tensor& ge_out(Tensor& out, const Operand& a, const Operand& b);

// Three operands.
/// min(max(x, low), high). One of the bounds may be absent. NaN propagates. A tensor bound is
/// converted to the result's dtype. Throws: InvalidArgument for a bound that is a number and that
/// no element of an integer dtype can satisfy, or that a floating dtype cannot hold.
[[nodiscard]] GANTRY_API Tensor clamp(const Tensor& self, std::optional<Operand> low,
                                      std::optional<Operand> high = {});
GANTRY_API Tensor& clamp_out(Tensor& out, const Tensor& self, std::optional<Operand> low,
                             std::optional<Operand> high = {});
/// start + weight * (end - start). DTypes: the same floating dtype for all; a number or 0-dim
/// `weight` may have any.
[[nodiscard]] GANTRY_API Tensor lerp(const Tensor& start, const Tensor& end, const Operand& weight);
GANTRY_API Tensor& lerp_out(Tensor& out, const Tensor& start, const Tensor& end,
                            const Operand& weight);
/// self + value * a * b.
[[nodiscard]] GANTRY_API Tensor addcmul(const Tensor& self, const Tensor& a, const Tensor& b,
                                        const Scalar& value = 1);
GANTRY_API Tensor& addcmul_out(Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                               const Scalar& value = 1);
/// self + value * (a / b). Throws: DTypeError unless a or b has a floating dtype.
[[nodiscard]] GANTRY_API Tensor addcdiv(const Tensor& self, const Tensor& a, const Tensor& b,
                                        const Scalar& value = 1);
GANTRY_API Tensor& addcdiv_out(Tensor& out, const Tensor& self, const Tensor& a, const Tensor& b,
                               const Scalar& value = 1);
/// `a` where the bool tensor `condition` is true, else `b`. DTypes: a and b promoted. Throws:
/// InvalidArgument for a number that the dtype cannot hold; f16 and bf16 make it infinite instead.
[[nodiscard]] GANTRY_API Tensor where(const Tensor& condition, const Operand& a, const Operand& b);
GANTRY_API Tensor& where_out(Tensor& out, const Tensor& condition, const Operand& a,
                             const Operand& b);
/// Replaces NaN, +inf and -inf. The default for infinities is the largest and lowest finite number.
[[nodiscard]] GANTRY_API Tensor nan_to_num(const Tensor& self, double nan = 0,
                                           std::optional<double> posinf = {},
                                           std::optional<double> neginf = {});
GANTRY_API Tensor& nan_to_num_out(Tensor& out, const Tensor& self, double nan = 0,
                                  std::optional<double> posinf = {},
                                  std::optional<double> neginf = {});
/// A copy of self with `value` where the bool tensor `mask` is true. self and mask are broadcast.
/// Throws: InvalidArgument for a number or a 0-dim CPU tensor that the dtype cannot hold.
[[nodiscard]] inline Tensor masked_fill(const Tensor& self, const Tensor& mask,
                                        const Operand& value) {
  return self.masked_fill(mask, value);
}
/// True where |a - b| <= atol + rtol * |b|. Equal infinities are close; two NaN only with
/// equal_nan.
[[nodiscard]] GANTRY_API Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5,
                                        double atol = 1e-8, bool equal_nan = false);
/// Same as Tensor::allclose. Device/stream: blocks the host.
[[nodiscard]] inline bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5,
                                   double atol = 1e-8, bool equal_nan = false) {
  return a.allclose(b, rtol, atol, equal_nan);
}
/// Same as Tensor::equal. Device/stream: blocks the host.
[[nodiscard]] inline bool equal(const Tensor& a, const Tensor& b) { return a.equal(b); }

// Operators.
/// Calls the function of the operation: add for +, remainder for %, bitwise_and for &, lt for <.
/// @{
[[nodiscard]] inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator+(const Tensor& a, const Scalar& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator+(const Scalar& a, const Tensor& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, const Scalar& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator-(const Scalar& a, const Tensor& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, const Scalar& b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator*(const Scalar& a, const Tensor& b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, const Scalar& b) { return div(a, b); }
[[nodiscard]] inline Tensor operator/(const Scalar& a, const Tensor& b) { return div(a, b); }
[[nodiscard]] inline Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
[[nodiscard]] inline Tensor operator==(const Tensor& a, const Scalar& b) { return eq(a, b); }
[[nodiscard]] inline Tensor operator==(const Scalar& a, const Tensor& b) { return eq(a, b); }
[[nodiscard]] inline Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
[[nodiscard]] inline Tensor operator!=(const Tensor& a, const Scalar& b) { return ne(a, b); }
[[nodiscard]] inline Tensor operator!=(const Scalar& a, const Tensor& b) { return ne(a, b); }
[[nodiscard]] inline Tensor operator<(const Tensor& a, const Tensor& b) { return lt(a, b); }
[[nodiscard]] inline Tensor operator<(const Tensor& a, const Scalar& b) { return lt(a, b); }
[[nodiscard]] inline Tensor operator<(const Scalar& a, const Tensor& b) { return lt(a, b); }
[[nodiscard]] inline Tensor operator<=(const Tensor& a, const Tensor& b) { return le(a, b); }
[[nodiscard]] inline Tensor operator<=(const Tensor& a, const Scalar& b) { return le(a, b); }
[[nodiscard]] inline Tensor operator<=(const Scalar& a, const Tensor& b) { return le(a, b); }
[[nodiscard]] inline Tensor operator>(const Tensor& a, const Tensor& b) { return gt(a, b); }
[[nodiscard]] inline Tensor operator>(const Tensor& a, const Scalar& b) { return gt(a, b); }
[[nodiscard]] inline Tensor operator>(const Scalar& a, const Tensor& b) { return gt(a, b); }
[[nodiscard]] inline Tensor operator>=(const Tensor& a, const Tensor& b) { return ge(a, b); }
[[nodiscard]] inline Tensor operator>=(const Tensor& a, const Scalar& b) { return ge(a, b); }
[[nodiscard]] inline Tensor operator>=(const Scalar& a, const Tensor& b) { return ge(a, b); }
[[nodiscard]] inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
[[nodiscard]] inline Tensor operator%(const Tensor& a, const Scalar& b) { return remainder(a, b); }
[[nodiscard]] inline Tensor operator%(const Scalar& a, const Tensor& b) { return remainder(a, b); }
[[nodiscard]] inline Tensor operator&(const Tensor& a, const Tensor& b) {
  return bitwise_and(a, b);
}
[[nodiscard]] inline Tensor operator&(const Tensor& a, const Scalar& b) {
  return bitwise_and(a, b);
}
[[nodiscard]] inline Tensor operator&(const Scalar& a, const Tensor& b) {
  return bitwise_and(a, b);
}
[[nodiscard]] inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
[[nodiscard]] inline Tensor operator|(const Tensor& a, const Scalar& b) { return bitwise_or(a, b); }
[[nodiscard]] inline Tensor operator|(const Scalar& a, const Tensor& b) { return bitwise_or(a, b); }
[[nodiscard]] inline Tensor operator^(const Tensor& a, const Tensor& b) {
  return bitwise_xor(a, b);
}
[[nodiscard]] inline Tensor operator^(const Tensor& a, const Scalar& b) {
  return bitwise_xor(a, b);
}
[[nodiscard]] inline Tensor operator^(const Scalar& a, const Tensor& b) {
  return bitwise_xor(a, b);
}
[[nodiscard]] inline Tensor operator<<(const Tensor& a, const Tensor& b) {
  return bitwise_left_shift(a, b);
}
[[nodiscard]] inline Tensor operator<<(const Tensor& a, const Scalar& b) {
  return bitwise_left_shift(a, b);
}
[[nodiscard]] inline Tensor operator<<(const Scalar& a, const Tensor& b) {
  return bitwise_left_shift(a, b);
}
[[nodiscard]] inline Tensor operator>>(const Tensor& a, const Tensor& b) {
  return bitwise_right_shift(a, b);
}
[[nodiscard]] inline Tensor operator>>(const Tensor& a, const Scalar& b) {
  return bitwise_right_shift(a, b);
}
[[nodiscard]] inline Tensor operator>>(const Scalar& a, const Tensor& b) {
  return bitwise_right_shift(a, b);
}
[[nodiscard]] inline Tensor operator~(const Tensor& self) { return bitwise_not(self); }
/// @}

}  // namespace gantry
