#pragma once

#include <gantry/core/export.hpp>
#include <gantry/tensor/tensor.hpp>

/// Elementwise functions of real numbers beyond those of elementwise.hpp.
///
/// Shapes, device, stream, aliasing and `op_out`: as in elementwise.hpp.
/// DTypes: promoted by result_type. Integers and bool become f32, unless a function says otherwise.
/// f16, bf16 and f32 compute in f64 and round once.
/// Throws: ShapeError, DTypeError, DeviceMismatchError, InvalidArgument. After an exception nothing
/// has changed.
/// @since 0.3
namespace gantry {

// One operand.
/// Inverse hyperbolic sine.
[[nodiscard]] GANTRY_API Tensor asinh(const Tensor& self);
GANTRY_API Tensor& asinh_out(Tensor& out, const Tensor& self);
/// Inverse hyperbolic cosine; NaN below 1.
[[nodiscard]] GANTRY_API Tensor acosh(const Tensor& self);
GANTRY_API Tensor& acosh_out(Tensor& out, const Tensor& self);
/// Inverse hyperbolic tangent; NaN outside [-1, 1].
[[nodiscard]] GANTRY_API Tensor atanh(const Tensor& self);
GANTRY_API Tensor& atanh_out(Tensor& out, const Tensor& self);
/// 1 - erf(x), accurate for large x.
[[nodiscard]] GANTRY_API Tensor erfc(const Tensor& self);
GANTRY_API Tensor& erfc_out(Tensor& out, const Tensor& self);
/// 2 to the power of x.
[[nodiscard]] GANTRY_API Tensor exp2(const Tensor& self);
GANTRY_API Tensor& exp2_out(Tensor& out, const Tensor& self);
/// sin(pi x) / (pi x); 1 at 0.
[[nodiscard]] GANTRY_API Tensor sinc(const Tensor& self);
GANTRY_API Tensor& sinc_out(Tensor& out, const Tensor& self);
/// Degrees to radians.
[[nodiscard]] GANTRY_API Tensor deg2rad(const Tensor& self);
GANTRY_API Tensor& deg2rad_out(Tensor& out, const Tensor& self);
/// Radians to degrees.
[[nodiscard]] GANTRY_API Tensor rad2deg(const Tensor& self);
GANTRY_API Tensor& rad2deg_out(Tensor& out, const Tensor& self);

// Tests with a bool result.
/// True where the sign bit is set: for negative numbers, -0 and NaN with a minus sign.
[[nodiscard]] GANTRY_API Tensor signbit(const Tensor& self);
GANTRY_API Tensor& signbit_out(Tensor& out, const Tensor& self);
/// True where x is +inf; false for integers.
[[nodiscard]] GANTRY_API Tensor isposinf(const Tensor& self);
GANTRY_API Tensor& isposinf_out(Tensor& out, const Tensor& self);
/// True where x is -inf; false for integers.
[[nodiscard]] GANTRY_API Tensor isneginf(const Tensor& self);
GANTRY_API Tensor& isneginf_out(Tensor& out, const Tensor& self);

// Two operands, at least one a tensor.
/// log(exp(a) + exp(b)) without overflow. DTypes: floating.
[[nodiscard]] GANTRY_API Tensor logaddexp(const Operand& a, const Operand& b);
GANTRY_API Tensor& logaddexp_out(Tensor& out, const Operand& a, const Operand& b);
/// log2(2^a + 2^b) without overflow. DTypes: floating.
[[nodiscard]] GANTRY_API Tensor logaddexp2(const Operand& a, const Operand& b);
GANTRY_API Tensor& logaddexp2_out(Tensor& out, const Operand& a, const Operand& b);
/// sqrt(a² + b²) without overflow. DTypes: floating.
[[nodiscard]] GANTRY_API Tensor hypot(const Operand& a, const Operand& b);
GANTRY_API Tensor& hypot_out(Tensor& out, const Operand& a, const Operand& b);
/// a * log(b); 0 where a is 0 and b is not NaN.
[[nodiscard]] GANTRY_API Tensor xlogy(const Operand& a, const Operand& b);
GANTRY_API Tensor& xlogy_out(Tensor& out, const Operand& a, const Operand& b);
/// |a| with the sign of b.
[[nodiscard]] GANTRY_API Tensor copysign(const Operand& a, const Operand& b);
GANTRY_API Tensor& copysign_out(Tensor& out, const Operand& a, const Operand& b);
/// The next representable number after a in the direction of b, in the promoted dtype. DTypes:
/// floating.
[[nodiscard]] GANTRY_API Tensor nextafter(const Operand& a, const Operand& b);
GANTRY_API Tensor& nextafter_out(Tensor& out, const Operand& a, const Operand& b);
/// a * 2^b.
[[nodiscard]] GANTRY_API Tensor ldexp(const Operand& a, const Operand& b);
GANTRY_API Tensor& ldexp_out(Tensor& out, const Operand& a, const Operand& b);
/// a to the power of b, in f64 for all dtypes of the operands.
[[nodiscard]] GANTRY_API Tensor float_power(const Operand& a, const Operand& b);
GANTRY_API Tensor& float_power_out(Tensor& out, const Operand& a, const Operand& b);
/// The step function: 0 where x is negative or NaN, 1 where it is positive, `values` where it is
/// 0. DTypes: any, the same for both.
[[nodiscard]] GANTRY_API Tensor heaviside(const Tensor& self, const Tensor& values);
GANTRY_API Tensor& heaviside_out(Tensor& out, const Tensor& self, const Tensor& values);

}  // namespace gantry
