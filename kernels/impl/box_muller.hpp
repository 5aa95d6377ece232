#pragma once

#include <cstdint>
#include <cstring>

#include <gantry/core/float16.hpp>
#include <gantry/core/macros.hpp>

#include "kernels/impl/math.hpp"

// Note [Normal numbers with the same bits everywhere]
// Math libraries differ in the last bits of log, sin and cos. Normal numbers made with them would
// differ between host and GPU. This file evaluates the three as polynomials with + - * / and sqrt
// only, which IEEE 754 rounds the same on every machine:
//   log(m 2^e) = e log 2 + 2 atanh(s), s = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)), with the
//   Taylor series of atanh up to terms of half an ulp (|s| < 0.172);
//   sin and cos with their Taylor series on [-pi/4, pi/4]. The angle is a fixed-point fraction of a
//   turn, so its quadrant and remainder are exact integer operations.
namespace gantry::kernels {

// A pair of independent standard normal numbers.
template <class C>
struct NormalPair {
  C first;
  C second;
};

namespace detail {

// Horner's rule: c[0] + z (c[1] + z (…)).
template <class C, int N>
GANTRY_HD C polynomial(C z, const C (&c)[N]) {
  C result = c[N - 1];
  for (int i = N - 2; i >= 0; --i) result = result * z + c[i];
  return result;
}

// Natural logarithm of a normal positive number.
GANTRY_HD inline float portable_log(float x) {
  const std::uint32_t bits = ::gantry::detail::float_bits(x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  float m = ::gantry::detail::float_from_bits((bits & 0x7fffffu) | 0x3f800000u);
  if (m > 1.41421356f) {
    m *= 0.5f;
    ++exponent;
  }
  const float s = (m - 1.0f) / (m + 1.0f);
  const float c[] = {1.0f, 1.0f / 3, 1.0f / 5, 1.0f / 7, 1.0f / 9, 1.0f / 11};
  return static_cast<float>(exponent) * 0.693147181f + 2.0f * s * polynomial(s * s, c);
}

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
  const double c[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                      1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
  return static_cast<double>(exponent) * 0.69314718055994531 + 2.0 * s * polynomial(s * s, c);
}

// Sine and cosine of x in [-pi/4, pi/4].
GANTRY_HD inline void portable_sincos(float x, float& sine, float& cosine) {
  const float z = x * x;
  const float s[] = {1.0f, -1.0f / 6, 1.0f / 120, -1.0f / 5040, 1.0f / 362880};
  const float c[] = {1.0f, -0.5f, 1.0f / 24, -1.0f / 720, 1.0f / 40320, -1.0f / 3628800};
  sine = x * polynomial(z, s);
  cosine = polynomial(z, c);
}

GANTRY_HD inline void portable_sincos(double x, double& sine, double& cosine) {
  const double z = x * x;
  const double s[] = {1.0,
                      -1.0 / 6,
                      1.0 / 120,
                      -1.0 / 5040,
                      1.0 / 362880,
                      -1.0 / 39916800,
                      1.0 / 6227020800.0,
                      -1.0 / 1307674368000.0,
                      1.0 / 355687428096000.0};
  const double c[] = {1.0,
                      -0.5,
                      1.0 / 24,
                      -1.0 / 720,
                      1.0 / 40320,
                      -1.0 / 3628800,
                      1.0 / 479001600.0,
                      -1.0 / 87178291200.0,
                      1.0 / 20922789888000.0};
  sine = x * polynomial(z, s);
  cosine = polynomial(z, c);
}

// The point at distance `radius` in direction (cosine, sine), rotated by `quarters` right angles.
template <class C>
GANTRY_HD NormalPair<C> turned(C radius, C cosine, C sine, unsigned quarters) {
  const C x = quarters & 1u ? sine : cosine;
  const C y = quarters & 1u ? cosine : sine;
  const bool flip_x = quarters == 1u || quarters == 2u;
  const bool flip_y = quarters >= 2u;
  return {radius * (flip_x ? -x : x), radius * (flip_y ? -y : y)};
}

}  // namespace detail

// Box-Muller transform: the radius from the first draw, on (0, 1], and the angle from the second.
GANTRY_HD inline NormalPair<float> box_muller(std::uint32_t radius_draw, std::uint32_t angle_draw) {
  const float unit = static_cast<float>(radius_draw) * 2.3283064365386963e-10f  // 2^-32
                     + 1.1641532182693481e-10f;                                 // 2^-33
  const float radius = math::sqrt(-2.0f * detail::portable_log(unit));
  const std::uint32_t quarters = (angle_draw + 0x20000000u) >> 30;
  const auto rest = static_cast<std::int32_t>(angle_draw - (quarters << 30));
  float sine;
  float cosine;
  detail::portable_sincos(static_cast<float>(rest) * 1.46291807926715968e-9f /* 2 pi 2^-32 */, sine,
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
  return detail::turned(radius, cosine, sine, static_cast<unsigned>(quarters));
}

}  // namespace gantry::kernels
