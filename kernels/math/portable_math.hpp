#pragma once

#include <cstdint>
#include <cstring>

#include <gantry/core/macros.hpp>

#include "kernels/math/box_muller.hpp"

// Functions of f64 for random numbers, with the same bits on every machine: + - * /, fma, sqrt and
// rounding only (Note [Normal numbers with the same bits everywhere]).
namespace gantry::kernels::detail {

// 2^exponent of a normal number.
GANTRY_HD inline double power_of_two(int exponent) {
  const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

// e^x. x = k log 2 + r with |r| <= log(2) / 2; e^r is the Taylor series up to terms of half an ulp.
GANTRY_HD inline double portable_exp(double x) {
  if (x != x) return x;
  if (x > 709.8) return 1.0 / 0.0;
  if (x < -745.2) return 0;
  const double k = math::rint(x * 1.4426950408889634);
  const double high = math::fma(k, -0.693147180369123816490, x);
  const double r = math::fma(k, -1.90821492927058770002e-10, high);
  // Two factors, because 2^k may be out of range where the result is not.
  const int exponent = static_cast<int>(k);
  const int half = exponent / 2;
  return polynomial(r, 1.0, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040,
                    1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600,
                    1.0 / 6227020800.0) *
         power_of_two(half) * power_of_two(exponent - half);
}

// log(1 + x) for -1 < x <= 0.
GANTRY_HD inline double portable_log1p(double x) {
  if (x < -0.25) return portable_log(1.0 + x);
  // 2 atanh(s), whose argument keeps the digits of x.
  const double s = x / (2.0 + x);
  return 2.0 * s *
         polynomial(s * s, 1.0, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15,
                    1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23);
}

// log(k!) of a whole number: exact factorials up to 20, Stirling's series above.
GANTRY_HD inline double portable_log_factorial(double k) {
  if (k <= 20) {
    double factorial = 1;
    for (double i = 2; i <= k; ++i) factorial *= i;
    return portable_log(factorial);
  }
  const double n = k + 1;
  const double inverse = 1.0 / n;
  return (n - 0.5) * portable_log(n) - n + 0.91893853320467274 +
         inverse * polynomial(inverse * inverse, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680);
}

// tan(pi (u - 1/2)) for a 53-bit u, taken at the middle of its step: a finite number.
GANTRY_HD inline double portable_cauchy(std::uint64_t draw) {
  // Odd, in units of pi / 2^54; a right angle is 2^53 of them.
  const std::int64_t right = std::int64_t{1} << 53;
  const std::int64_t angle = static_cast<std::int64_t>(2 * draw + 1) - right;
  const std::int64_t magnitude = angle < 0 ? -angle : angle;
  const bool is_steep = magnitude > right / 2;
  const std::int64_t small = is_steep ? right - magnitude : magnitude;
  double sine;
  double cosine;
  portable_sincos(static_cast<double>(small) * 1.743934249004316e-16 /* pi / 2^54 */, sine, cosine);
  const double tangent = is_steep ? cosine / sine : sine / cosine;
  return angle < 0 ? -tangent : tangent;
}

}  // namespace gantry::kernels::detail
