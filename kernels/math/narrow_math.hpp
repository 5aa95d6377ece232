#pragma once

#include <math.h>

#include <cstdint>
#include <limits>

#include <gantry/core/macros.hpp>

#include "kernels/math/brief_math.hpp"

// f32 functions in f32: vectors of the host have twice as many elements as in wide_math.hpp. GPUs
// compute sigmoid, silu and gelu by them.
//
// Note [f32 functions in f32]
// Each function has the f32 nearest to the exact value, or one of its neighbours. Where a rounding
// error would matter, a second number (`…_low`) holds it. As in Note [f32 functions in f64], there
// are no calls and no branches, and vector code has the bits of scalar code. Polynomials have the
// least relative error at 1200 Chebyshev points (Lawson's weights): coefficients are rounded to f32
// one after the other, from the lowest on, and the rest is fitted again. Even and odd terms are two
// chains of fma: a single one would leave the processor idle, and more chains need more products.
namespace gantry::kernels::narrow {

GANTRY_HD inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
GANTRY_HD inline std::uint32_t word_of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
GANTRY_HD inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
// x times 2^n, for n in the place of a number's exponent. Unsigned: sums wrap around.
GANTRY_HD inline float scaled(float x, std::uint32_t exponent) {
  return float_of(word_of(x) + exponent);
}

// Horner's rule: first + x (second + x (…)).
GANTRY_HD inline float polynomial(float /*x*/, float last) { return last; }
template <class... Rest>
GANTRY_HD inline float polynomial(float x, float first, Rest... rest) {
  return fma(polynomial(x, rest...), x, first);
}

// e^(x + x_low) = 2^n (1 + first + rest), |first + rest| < 0.42, |rest| < 0.11. `first` has no
// rounding error; `exponent` is n in the place of a number's exponent.
struct Exponential {
  std::uint32_t exponent;
  float first;
  float rest;
};
GANTRY_HD inline Exponential exponential(float x, float x_low) {
  constexpr float kRounder = 0x1.8p23f;
  const float shifted = fma(x, 1.44269502f, kRounder);
  const float n = shifted - kRounder;
  // log(2) = 0.693359375 - 0.000212194440; the first has 10 bits, so its product is exact.
  const float r = fma(n, -0.693359375f, x);
  const float r_low = fma(n, 2.12194440e-4f, x_low);
  const float sum = r + r_low;
  const float square = sum * sum;
  const float p = fma(square, fma(square, 0.00138198212f, fma(sum, 0.00836868957f, 0.0416682772f)),
                      fma(sum, 0.166665211f, 0.49999994f));
  // The rounder's own bits leave at the top.
  return {word_of(shifted) << 23, r, fma(square, p, r_low)};
}

// 2^kSpare: results that are no normal numbers are computed as multiples of its inverse, and
// rounded once by their last multiplication.
inline constexpr float kSpare = 0x1p60f;

// Beyond it the sigmoid of -a, and a times it, round to 0.
inline constexpr float kZero = 112.0f;

// 1 / (1 + e^a) = factor * power of the magnitude a of x; `factor` is a normal number.
struct Tail {
  float factor;
  float power;
};
// With e^a = 2^n (1 + tail): 2^-n / (2^-n + 1 + tail).
GANTRY_HD inline Tail sigmoid_tail(float x) {
  const float magnitude = ::fabsf(x);
  const Exponential e = exponential(kZero < magnitude ? kZero : magnitude, 0.0f);  // NaN stays
  const float one = scaled(kSpare, 0 - e.exponent);
  const float part = fma(e.first + e.rest, kSpare, one);
  const float sum = kSpare + part;
  const float sum_low = part - (sum - kSpare);
  const float quotient = brief::rounded_reciprocal(sum);
  const float rest = fma(-quotient, sum_low, fma(-quotient, sum, 1.0f));
  return {fma(quotient, rest, quotient), one};
}
GANTRY_HD inline float sigmoid(float x) {
  const Tail tail = sigmoid_tail(x);
  const float of_negative = tail.factor * tail.power;
  return x < 0 ? of_negative : 1.0f - of_negative;
}
// Within 2 ulp. A negative x multiplies the factor first, since the product may be normal where the
// sigmoid is not. At -infinity the definition has 0 times infinity.
GANTRY_HD inline float silu(float x) {
  const Tail tail = sigmoid_tail(x);
  const float magnitude = ::fabsf(x);
  const float a = kZero < magnitude ? kZero : magnitude;
  const float negative = a * (tail.factor * kSpare) * tail.power * (-1.0f / kSpare);
  return x < 0 ? negative - (x - x) : fma(-a, tail.factor * tail.power, x);
}

// The normal distribution's tail P(X > a) = e^(-a^2 / 2) (1 + s) / (2 a + 9/4), where s is small: a
// polynomial of v = (3 - a) / (a + 29/8), fitted for a <= 13.2. Beyond 15 the result rounds to 0.
GANTRY_HD inline float gelu(float x) {
  const float a = brief::bounded_magnitude(x, 15.0f);
  const float half = -0.5f * a;
  const float power = half * a;
  const Exponential e = exponential(power, fma(half, a, -power));

  // One division for both quotients.
  const float sum = a + 1.125f;
  const float other_sum = a + 3.625f;
  const float inverse_product = brief::rounded_reciprocal(sum * other_sum);
  const float inverse = inverse_product * other_sum;
  // The factor 3 - a makes the error small where s is large.
  const float v = (3.0f - a) * (sum * inverse_product);
  const float v2 = v * v;
  const float even = polynomial(v2, 0.00249007018f, 0.0256306566f, -0.0982147902f, -0.00037760564f,
                                0.000683412014f);
  const float odd =
      polynomial(v2, 0.270139009f, -0.103637323f, -0.0390794575f, 0.00558837829f, -0.00075506355f);
  const float s = fma(v, odd, even);

  // t = 2^n a / (a + 9/8), then times 1 + s and 1 + first + rest. The sum ends with the largest
  // terms.
  const float product = a * scaled(kSpare, e.exponent);
  const float t = product * inverse;
  const float sum_low = a - (sum - 1.125f);
  const float t_low = fma(-t, sum_low, fma(-t, sum, product)) * inverse;
  const float exp = 1.0f + (e.first + e.rest);
  const float small = fma(t, fma(s, exp, e.rest), t_low * exp);
  const float twice = t + fma(t, e.first, small);
  // 0 times -infinity is NaN, as by the definition. -0 keeps its sign.
  return fma(twice, -0.5f / kSpare, x * (x > 0 ? 1.0f : 0.0f));
}

// x = 2^n (1 + f) with |f| <= 1/3.
inline float log(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool is_subnormal = x < 0x1p-126f;
  const std::uint32_t bits = word_of(is_subnormal ? x * 0x1p23f : x);
  // Of x / (2/3). Unsigned: the bits of negative numbers wrap around.
  const auto exponent = static_cast<std::int32_t>(bits - 0x3f2aaaabU) >> 23;
  const float f = float_of(bits - (static_cast<std::uint32_t>(exponent) << 23)) - 1.0f;
  const float n = static_cast<float>(exponent) - (is_subnormal ? 23.0f : 0.0f);
  const float f2 = f * f;
  const float f4 = f2 * f2;
  const float p =
      fma(f4, fma(f2, fma(f, -0.121255808f, 0.134257495f), fma(f, -0.123461902f, 0.141183093f)),
          fma(f2, fma(f, -0.166701406f, 0.200037807f), fma(f, -0.249999881f, 0.333333194f)));
  float value = fma(n, 0.693147182f, fma(f2, fma(f, p, -0.5f), f));
  value = x == 0 ? -kInfinity : value;
  value = x == kInfinity ? x : value;
  return x >= 0 ? value : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace gantry::kernels::narrow
