#pragma once

#include <cstdint>
#include <cstring>

#include <gantry/core/float16.hpp>
#include <gantry/core/macros.hpp>

#include "kernels/math/math.hpp"

// Note [Normal numbers with the same bits everywhere]
// Math libraries differ in the last bits of log, sin and cos. Normal numbers made with them would
// differ between host and GPU. This file evaluates the three as polynomials with + - * /, sqrt and
// fma only, which IEEE 754 rounds the same on every machine:
//   f32: -2 log(m 2^e) = f Q(f) - e 2 log 2, f = m - 1, m in [2/3, 4/3), with the minimax Q of
//   degree 7 (relative error 2e-7, of which the root keeps half);
//   f64: log(m 2^e) = e log 2 + 2 atanh(s), s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)), with
//   the Taylor series of atanh up to terms of half an ulp (|s| < 0.172);
//   f32: sin and cos of half a turn, [-pi/2, pi/2), with minimax coefficients (errors 6e-9 of the
//   sine, 6e-8 of the radius for the cosine);
//   f64: sin and cos on [-pi/4, pi/4] with Taylor coefficients. The angle is a fixed-point fraction
//   of a turn, so its half or quadrant and the remainder are exact integer operations.
namespace gantry::kernels {

// A pair of independent standard normal numbers: radius * x and radius * y.
template <class C>
struct NormalPair {
  C radius;
  C x;
  C y;
};

namespace detail {

// Horner's rule: first + z (second + z (…)). No loop, so that the host makes vector code of it.
template <class C>
GANTRY_HD C polynomial(C /*z*/, C last) {
  return last;
}
template <class C, class... Rest>
GANTRY_HD C polynomial(C z, C first, Rest... rest) {
  return math::fma(polynomial(z, static_cast<C>(rest)...), z, first);
}

// -2 log(x) of a normal positive number, but 2^-48 of 1: a root of 0 would need a branch.
GANTRY_HD inline float minus_two_log(float x) {
  const std::uint32_t bits = ::gantry::detail::float_bits(x);
  const std::uint32_t exponent = (bits - 0x3f2aaaabu) & 0xff800000u;  // times 2^23
  const float f = ::gantry::detail::float_from_bits(bits - exponent) - 1.0f;
  const float log2_part = math::fma(static_cast<float>(static_cast<std::int32_t>(exponent)),
                                    -1.65259166e-7f /* -2 log(2) / 2^23 */, 3.55271368e-15f);
  return math::fma(f,
                   polynomial(f, -2.0f, 0.999999225f, -0.666734755f, 0.50012517f, -0.396362275f,
                              0.328840286f, -0.339817852f, 0.305210412f),
                   log2_part);
}

// Natural logarithm of a normal positive number.
GANTRY_HD inline double portable_log(double x) {
  std::uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
  double m = 0;
  memcpy(&m, &bits, sizeof m);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  return static_cast<double>(exponent) * 0.69314718055994531 +
         2.0 * s *
             polynomial(s * s, 1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13,
                        1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23);
}

// Root of a number in [2^-60, 2^60], rounded to nearest as math::sqrt, but without the branch that
// compiled code has for the other numbers.
GANTRY_HD inline float near_one_sqrt(float x) {
  if constexpr (GANTRY_GPU_ARCH > 0) {
    float inverse = 0;
    GANTRY_PTX("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    const float root = x * inverse;
    return math::fma(math::fma(-root, root, x), 0.5f * inverse, root);
  } else {
    return math::sqrt(x);
  }
}

// Sine and cosine of x in [-pi/2, pi/2].
GANTRY_HD inline void portable_sincos(float x, float& sine, float& cosine) {
  const float z = x * x;
  sine = math::fma(
      x * z, polynomial(z, -0.166666597f, 0.00833306927f, -0.000198097769f, 2.60609568e-6f), x);
  cosine = polynomial(z, 1.0f, -0.499999315f, 0.0416639633f, -0.00138557085f, 2.31890335e-5f);
}

// Sine and cosine of x in [-pi/4, pi/4].
GANTRY_HD inline void portable_sincos(double x, double& sine, double& cosine) {
  const double z = x * x;
  sine = x * polynomial(z, 1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                        1.0 / 6227020800.0, -1.0 / 1307674368000.0, 1.0 / 355687428096000.0);
  cosine = polynomial(z, 1.0, -0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800,
                      1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0);
}

// The point (cosine, sine), rotated by `quarters` right angles.
GANTRY_HD inline NormalPair<double> turned(double radius, double cosine, double sine,
                                           std::uint32_t quarters) {
  const double x = quarters & 1u ? sine : cosine;
  const double y = quarters & 1u ? cosine : sine;
  const bool flip_x = quarters == 1u || quarters == 2u;
  const bool flip_y = quarters >= 2u;
  return {radius, flip_x ? -x : x, flip_y ? -y : y};
}

}  // namespace detail

// Box-Muller transform: the radius from the first draw, on (0, 1], and the angle from the second.
GANTRY_HD inline NormalPair<float> box_muller(std::uint32_t radius_draw, std::uint32_t angle_draw) {
  const float unit = math::fma(static_cast<float>(radius_draw), 2.3283064365386963e-10f /* 2^-32 */,
                               1.1641532182693481e-10f /* 2^-33 */);
  const float radius = detail::near_one_sqrt(detail::minus_two_log(unit));
  // The other half of the turn is the point opposite: a radius below 0.
  const auto half = static_cast<std::int32_t>(angle_draw << 1);  // a multiple of pi 2^-32
  const std::uint32_t sign = (angle_draw + 0x40000000u) & 0x80000000u;
  float sine;
  float cosine;
  detail::portable_sincos(static_cast<float>(half) * 7.31459034e-10f /* pi 2^-32 */, sine, cosine);
  return {::gantry::detail::float_from_bits(::gantry::detail::float_bits(radius) ^ sign), cosine,
          sine};
}

GANTRY_HD inline NormalPair<double> box_muller(std::uint64_t radius_draw,
                                               std::uint64_t angle_draw) {
  const double unit = (static_cast<double>(radius_draw >> 11) + 0.5) * 1.1102230246251565e-16;
  const double radius = math::sqrt(-2.0 * detail::portable_log(unit));
  const std::uint64_t quarters = (angle_draw + 0x2000000000000000u) >> 62;
  const auto rest = static_cast<std::int64_t>(angle_draw - (quarters << 62));
  double sine;
  double cosine;
  detail::portable_sincos(static_cast<double>(rest) * 3.40612158008655458e-19 /* 2 pi 2^-64 */,
                          sine, cosine);
  return detail::turned(radius, cosine, sine, static_cast<std::uint32_t>(quarters));
}

}  // namespace gantry::kernels
