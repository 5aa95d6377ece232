#pragma once

#include <cstdint>
#include <cstring>

#include <gantry/core/float16.hpp>
#include <gantry/core/macros.hpp>

#include "kernels/impl/math.hpp"

// Note [Normal numbers with the same bits everywhere]
// Math libraries differ in the last bits of log, sin and cos. Normal numbers made with them would
// differ between host and GPU. This file evaluates the three as polynomials with + - * /, sqrt and
// fma only, which IEEE 754 rounds the same on every machine:
//   f32: -2 log(m 2^e) = f Q(f) - e 2 log 2, f = m - 1, m in [2/3, 4/3), with the minimax Q of
//   degree 8 (relative error 3e-8);
//   f64: log(m 2^e) = e log 2 + 2 atanh(s), s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)), with
//   the Taylor series of atanh up to terms of half an ulp (|s| < 0.172);
//   sin and cos on [-pi/4, pi/4], in f32 with minimax, in f64 with Taylor coefficients. The angle
//   is a fixed-point fraction of a turn, so its quadrant and remainder are exact integer
//   operations.
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

// -2 log(x) of a normal positive number.
GANTRY_HD inline float minus_two_log(float x) {
  const std::uint32_t bits = ::gantry::detail::float_bits(x);
  const std::uint32_t exponent = (bits - 0x3f2aaaabu) & 0xff800000u;  // times 2^23
  const float f = ::gantry::detail::float_from_bits(bits - exponent) - 1.0f;
  const float log2_part = static_cast<float>(static_cast<std::int32_t>(exponent)) *
                          -1.65259166e-7f;  // -2 log(2) / 2^23
  return math::fma(f,
                   polynomial(f, -2.0f, 0.99999863f, -0.66666335f, 0.50016057f, -0.40023887f,
                              0.32825583f, -0.27975303f, 0.30806395f, -0.28112218f),
                   log2_part);
}

// Natural logarithm of a normal positive number.
GANTRY_HD inline double portable_log(double x) {
  std::uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
  double m;
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

// Sine and cosine of x in [-pi/4, pi/4].
GANTRY_HD inline void portable_sincos(float x, float& sine, float& cosine) {
  const float z = x * x;
  sine = math::fma(x * z, polynomial(z, -0.16666655f, 0.008332178f, -0.00019517299f), x);
  cosine = polynomial(z, 1.0f, -0.5f, 0.041666646f, -0.0013887368f, 2.4438452e-5f);
}

GANTRY_HD inline void portable_sincos(double x, double& sine, double& cosine) {
  const double z = x * x;
  sine = x * polynomial(z, 1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800,
                        1.0 / 6227020800.0, -1.0 / 1307674368000.0, 1.0 / 355687428096000.0);
  cosine = polynomial(z, 1.0, -0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800,
                      1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0);
}

// The point (cosine, sine), rotated by `quarters` right angles.
GANTRY_HD inline NormalPair<float> turned(float radius, float cosine, float sine,
                                          std::uint32_t quarters) {
  const std::uint32_t x = ::gantry::detail::float_bits(quarters & 1u ? sine : cosine);
  const std::uint32_t y = ::gantry::detail::float_bits(quarters & 1u ? cosine : sine);
  return {radius, ::gantry::detail::float_from_bits(x ^ ((quarters + 1u) << 30 & 0x80000000u)),
          ::gantry::detail::float_from_bits(y ^ (quarters << 30 & 0x80000000u))};
}
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
  const float radius = math::sqrt(detail::minus_two_log(unit));
  const std::uint32_t quarters = (angle_draw + 0x20000000u) >> 30;
  const auto rest = static_cast<std::int32_t>(angle_draw << 2);  // times 2^2
  float sine;
  float cosine;
  detail::portable_sincos(static_cast<float>(rest) * 3.65729517e-10f /* 2 pi 2^-34 */, sine,
                          cosine);
  return detail::turned(radius, cosine, sine, quarters);
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
