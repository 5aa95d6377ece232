#pragma once

#include <math.h>

#include <cstdint>

#include <gantry/core/macros.hpp>

// f32 functions of GPUs whose results are rounded to 16 bits.
//
// Note [16-bit functions of GPUs]
// A relative error below 2^-15 moves a result of 16 bits only where it is almost halfway between
// two of them. So these functions take the GPU's approximate e^x and 1/x, and short polynomials.
// The host computes as for f32 and rounds.
namespace gantry::kernels::brief {

#if GANTRY_GPU_ARCH != 0
// 2^(a b). 2^64 times the result is far from numbers that the instruction takes as zero.
__device__ inline float power_of_two(float a, float b) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(::fmaf(a, b, 64.0f)));
  return 0x1p-64f * result;
}
// 1 / x of a normal number whose reciprocal is normal, too.
__device__ inline float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / x with the bits of a division, which has a branch for numbers that are not normal.
GANTRY_HD inline float rounded_reciprocal(float x) {
  const float first = reciprocal(x);
  return ::fmaf(first, -::fmaf(x, first, -1.0f), first);
}

// The smaller of |x| and a positive bound, also for NaN.
GANTRY_HD inline float bounded_magnitude(float x, float bound) {
  return ::fminf(::fabsf(x), bound);
}

// e^-a / (1 + e^-a) and 1 / (1 + e^-a), where neither overflows.
__device__ inline float sigmoid(float x) {
  const float power = power_of_two(-1.44269502f, ::fabsf(x));
  const float inverse = reciprocal(1.0f + power);
  return x < 0 ? power * inverse : inverse;
}

// 0 times -infinity is NaN, as by the definition.
__device__ inline float silu(float x) { return x * sigmoid(x); }
__device__ inline float gelu_tanh(float x) {
  return x * sigmoid(1.59576912f * ::fmaf(0.044715f * x * x, x, x));
}

// max(x, 0) - a P(X > a), a = |x|. The tail has the form of narrow::gelu's, with a polynomial of
// fewer terms, fitted at Chebyshev points.
__device__ inline float gelu(float x) {
  const float a = bounded_magnitude(x, 15.0f);
  const float v = (2.5f - a) * reciprocal(a + 3.625f);
  const float v2 = v * v;
  const float low = ::fmaf(v, 0.294350892f, 1.0246668f);
  const float middle = ::fmaf(v, -0.176928014f, -0.00511961989f);
  const float high = ::fmaf(v, -0.0489439964f, -0.152886882f);
  const float s = ::fmaf(v2, ::fmaf(v2, high, middle), low);
  const float power = power_of_two(-0.721347520f * a, a);
  const float tail = power * s * (0.5f * a * reciprocal(a + 1.125f));
  // x - x is NaN at -infinity, where 0 * infinity is NaN with the definition.
  return (x < 0 ? -(x - x) : x) - tail;
}

#else
GANTRY_HD inline float rounded_reciprocal(float x) { return 1.0f / x; }
// As integers: of a comparison of f32, compilers would make two versions of the rest.
GANTRY_HD inline float bounded_magnitude(float x, float bound) {
  const std::int32_t bits = __builtin_bit_cast(std::int32_t, x) & 0x7fffffff;
  const std::int32_t most = __builtin_bit_cast(std::int32_t, bound);
  return __builtin_bit_cast(float, bits < most ? bits : most);
}
#endif

}  // namespace gantry::kernels::brief
