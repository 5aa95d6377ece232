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
// Each function has the f32 nearest to the exact value, or one of its neighbours; gelu and silu are
// within 2 ulp. Where a rounding error would matter, a second number (`…_low`) holds it. As in Note
// [f32 functions in f64], there are no calls and no branches, and vector code has the bits of
// scalar code. Polynomials have the least relative error at 1200 Chebyshev points (Lawson's
// weights): coefficients are rounded to f32 one after the other, from the lowest on, and the rest
// is fitted again. Of e^x, even and odd terms are two chains of fma: a single one would leave the
// processor idle, and more chains need more products.
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

// e^x = 2^n (1 + rest), |rest| < 0.42; `exponent` is n in the place of a number's exponent.
struct Exponential {
  std::uint32_t exponent;
  float rest;
};
// log(2) = 0.693359375 - 0.000212194440; the first has 10 bits, so its product is exact.
inline constexpr float kLogOfTwo = 0.693359375f;
inline constexpr float kLogOfTwoLow = -2.12194440e-4f;
inline constexpr float kRounder = 0x1.8p23f;
// `shifted` is n plus the rounder, whose own bits leave at the top; r = x - n log(2).
GANTRY_HD inline Exponential exponential_from(float shifted, float r) {
  const float square = r * r;
  const float p = fma(square, fma(square, 0.00138198212f, fma(r, 0.00836868957f, 0.0416682772f)),
                      fma(r, 0.166665211f, 0.49999994f));
  return {word_of(shifted) << 23, fma(square, p, r)};
}
GANTRY_HD inline Exponential exponential(float x) {
  const float shifted = fma(x, 1.44269502f, kRounder);
  const float n = shifted - kRounder;
  return exponential_from(shifted, fma(n, -kLogOfTwoLow, fma(n, -kLogOfTwo, x)));
}
// e^(a b), without a rounding of the product.
GANTRY_HD inline Exponential exponential_of_product(float a, float b) {
  const float shifted = fma(a * 1.44269502f, b, kRounder);
  const float n = shifted - kRounder;
  return exponential_from(shifted, fma(n, -kLogOfTwoLow, fma(a, b, n * -kLogOfTwo)));
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
  const Exponential e = exponential(kZero < magnitude ? kZero : magnitude);  // NaN stays
  const float one = scaled(kSpare, 0 - e.exponent);
  const float part = fma(e.rest, kSpare, one);
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
//
// Within 2 ulp: the nearest number takes a fifth more instructions, and GPUs are then slower than
// their memory.
GANTRY_HD inline float gelu(float x) {
  const float a = brief::bounded_magnitude(x, 15.0f);
  const float inverse = brief::rounded_reciprocal(a + 1.125f);
  const float v = fma(6.625f, brief::rounded_reciprocal(a + 3.625f), -1.0f);
  const float s =
      polynomial(v, 0.00249007018f, 0.270139009f, 0.0256306566f, -0.103637323f, -0.0982147902f,
                 -0.0390794575f, -0.00037760564f, 0.00558837829f, 0.000683412014f, -0.00075506355f);
  const Exponential e = exponential_of_product(-0.5f * a, a);

  // t = 2^n a / (a + 9/8), times 1 + s and 1 + rest. `t_low` corrects the quotient.
  const float product = a * scaled(kSpare, e.exponent);
  const float t = product * inverse;
  const float t_low = fma(-t, 1.125f, fma(-t, a, product));
  const float both = fma(s, 1.0f + e.rest, e.rest);
  const float twice = fma(t_low, inverse, fma(t, both, t));
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
