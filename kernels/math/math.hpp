#pragma once

#include <math.h>

#include <cstdint>
#include <type_traits>

#include <gantry/core/macros.hpp>

#include "kernels/math/brief_math.hpp"
#include "kernels/math/narrow_math.hpp"
#include "kernels/math/wide_math.hpp"

// Scalar functions of the elementwise functors, with the same overloads on host and device.
namespace gantry::kernels::math {

// Note [Accuracy of f32 functions]
// On the host, the f32 functions of narrow_math.hpp and wide_math.hpp are within 1 ulp. On the GPU,
// CUDA's own f32 functions are within 2 ulp. Exceptions are tan, sinh, cosh and compositions:
// these are functions of narrow_math.hpp, or compute in f64 and round. The host rounds f64, too,
// for functions that the two headers lack.
#define GANTRY_MATH_FUNCTION(name)                              \
  GANTRY_HD inline float name(float x) { return ::name##f(x); } \
  GANTRY_HD inline double name(double x) { return ::name(x); }
GANTRY_MATH_FUNCTION(sqrt)
GANTRY_MATH_FUNCTION(asin)
GANTRY_MATH_FUNCTION(acos)
GANTRY_MATH_FUNCTION(atan)
GANTRY_MATH_FUNCTION(floor)
GANTRY_MATH_FUNCTION(ceil)
GANTRY_MATH_FUNCTION(rint)
GANTRY_MATH_FUNCTION(trunc)
GANTRY_MATH_FUNCTION(fabs)
#undef GANTRY_MATH_FUNCTION

// a * b + c with one rounding. Where the definition of a result has it, host and GPU both do.
GANTRY_HD inline float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
GANTRY_HD inline double fma(double a, double b, double c) { return ::fma(a, b, c); }

// Of an f32 function, the host's expression or the GPU's.
#if GANTRY_GPU_ARCH == 0
#define GANTRY_HOST_OR_GPU(host, gpu) static_cast<float>(host)
#else
#define GANTRY_HOST_OR_GPU(host, gpu) static_cast<float>(gpu)
#endif

GANTRY_HD inline double exp(double x) { return ::exp(x); }
GANTRY_HD inline float exp(float x) { return GANTRY_HOST_OR_GPU(wide::exp(x), ::expf(x)); }
#define GANTRY_MATH_FUNCTION(name)                                               \
  GANTRY_HD inline double name(double x) { return ::name(x); }                   \
  GANTRY_HD inline float name(float x) {                                         \
    return GANTRY_HOST_OR_GPU(wide::name(static_cast<double>(x)), ::name##f(x)); \
  }
GANTRY_HD inline double log(double x) { return ::log(x); }
GANTRY_HD inline float log(float x) { return GANTRY_HOST_OR_GPU(narrow::log(x), ::logf(x)); }
GANTRY_MATH_FUNCTION(expm1)
GANTRY_MATH_FUNCTION(log2)
GANTRY_MATH_FUNCTION(log10)
GANTRY_MATH_FUNCTION(log1p)
GANTRY_MATH_FUNCTION(tanh)
GANTRY_MATH_FUNCTION(erf)
#undef GANTRY_MATH_FUNCTION

#define GANTRY_MATH_FUNCTION(name)                                                                 \
  GANTRY_HD inline double name(double x) { return ::name(x); }                                     \
  GANTRY_HD inline float name(float x) {                                                           \
    return GANTRY_HOST_OR_GPU(wide::name(static_cast<double>(x)), ::name(static_cast<double>(x))); \
  }
GANTRY_MATH_FUNCTION(sinh)
GANTRY_MATH_FUNCTION(cosh)
#undef GANTRY_MATH_FUNCTION

GANTRY_HD inline double tan(double x) { return ::tan(x); }
GANTRY_HD inline float tan(float x) { return static_cast<float>(::tan(static_cast<double>(x))); }

// sin and cos. `near` is the same function for arguments that are not is_far(), on the host without
// a branch.
GANTRY_HD inline bool is_far(double) { return true; }
GANTRY_HD inline bool is_far(float x) { return !(::fabsf(x) < 0x1p30f); }
GANTRY_HD inline double near_sin(double x) { return ::sin(x); }
GANTRY_HD inline double near_cos(double x) { return ::cos(x); }
GANTRY_HD inline float near_sin(float x) {
  return GANTRY_HOST_OR_GPU(wide::sin(static_cast<double>(x)), ::sinf(x));
}
GANTRY_HD inline float near_cos(float x) {
  return GANTRY_HOST_OR_GPU(wide::cos(static_cast<double>(x)), ::cosf(x));
}
GANTRY_HD inline double sin(double x) { return ::sin(x); }
GANTRY_HD inline double cos(double x) { return ::cos(x); }
GANTRY_HD inline float sin(float x) {
  return GANTRY_HOST_OR_GPU(is_far(x) ? ::sinf(x) : near_sin(x), ::sinf(x));
}
GANTRY_HD inline float cos(float x) {
  return GANTRY_HOST_OR_GPU(is_far(x) ? ::cosf(x) : near_cos(x), ::cosf(x));
}

// Composite functions, whose errors would add up in f32.
GANTRY_HD inline double sigmoid(double x) { return 1.0 / (1.0 + ::exp(-x)); }
GANTRY_HD inline double silu(double x) { return x / (1.0 + ::exp(-x)); }
// The exact form x * P(X < x) of the normal distribution; erfc keeps the negative tail accurate.
GANTRY_HD inline double gelu(double x) { return 0.5 * x * ::erfc(x * -0.70710678118654752440); }
// Its approximation by tanh; sqrt(2 / pi) (x + 0.044715 x^3).
GANTRY_HD inline double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + ::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
GANTRY_HD inline float gelu_tanh(float x) {
  return GANTRY_HOST_OR_GPU(wide::gelu_tanh(static_cast<double>(x)),
                            gelu_tanh(static_cast<double>(x)));
}
GANTRY_HD inline float sigmoid(float x) { return narrow::sigmoid(x); }
GANTRY_HD inline float silu(float x) {
  return GANTRY_HOST_OR_GPU(wide::silu(static_cast<double>(x)), narrow::silu(x));
}
GANTRY_HD inline float gelu(float x) { return narrow::gelu(x); }

// The same functions for results of 16 bits (Note [16-bit functions of GPUs]).
GANTRY_HD inline float brief_sigmoid(float x) {
  return GANTRY_HOST_OR_GPU(sigmoid(x), brief::sigmoid(x));
}
GANTRY_HD inline float brief_silu(float x) { return GANTRY_HOST_OR_GPU(silu(x), brief::silu(x)); }
GANTRY_HD inline float brief_gelu(float x) { return GANTRY_HOST_OR_GPU(gelu(x), brief::gelu(x)); }
// log(1 + e^(a x)) / a, and x above the bound, where no exponential overflows.
GANTRY_HD inline float brief_softplus(float x, float a, float bound) {
  const float t = a * x;
  if (t > bound) return x;
  return ((t < 0 ? 0 : t) + ::log1pf(::expf(-::fabsf(t)))) / a;
}
GANTRY_HD inline float brief_gelu_tanh(float x) {
  return GANTRY_HOST_OR_GPU(gelu_tanh(x), brief::gelu_tanh(x));
}

GANTRY_HD inline double pow(double x, double y) { return ::pow(x, y); }
GANTRY_HD inline float pow(float x, float y) {
  return GANTRY_HOST_OR_GPU(wide::pow(static_cast<double>(x), static_cast<double>(y)),
                            ::pow(static_cast<double>(x), static_cast<double>(y)));
}
#undef GANTRY_HOST_OR_GPU
GANTRY_HD inline double atan2(double y, double x) { return ::atan2(y, x); }
GANTRY_HD inline float atan2(float y, float x) {
  return static_cast<float>(::atan2(static_cast<double>(y), static_cast<double>(x)));
}
// Functions that are exact on every platform.
GANTRY_HD inline double fmod(double x, double y) { return ::fmod(x, y); }
GANTRY_HD inline float fmod(float x, float y) { return ::fmodf(x, y); }
GANTRY_HD inline double copysign(double x, double y) { return ::copysign(x, y); }
GANTRY_HD inline float copysign(float x, float y) { return ::copysignf(x, y); }

// Sum, difference and product. Integers wrap.
template <class C>
GANTRY_HD C add(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}
template <class C>
GANTRY_HD C sub(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(static_cast<U>(a) - static_cast<U>(b));
  } else {
    return a - b;
  }
}
template <class C>
GANTRY_HD C mul(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    using U = std::make_unsigned_t<C>;
    return static_cast<C>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}

// Integer quotient toward zero, and its remainder. Both are 0 for a zero divisor. The lowest number
// divided by -1 wraps.
template <class C>
GANTRY_HD C quotient(C a, C b) {
  if (b == 0) return 0;
  return b == -1 ? sub(C(0), a) : static_cast<C>(a / b);
}
template <class C>
GANTRY_HD C rest(C a, C b) {
  return b == 0 || b == -1 ? C(0) : static_cast<C>(a % b);
}

// The smaller and the larger of two numbers. NaN propagates.
template <class C>
GANTRY_HD C minimum(C a, C b) {
  if (a != a) return a;
  return b != b || b < a ? b : a;
}
template <class C>
GANTRY_HD C maximum(C a, C b) {
  if (a != a) return a;
  return b != b || a < b ? b : a;
}

// Integer power by repeated squaring. It wraps. A negative exponent gives the truncated reciprocal.
template <class C>
GANTRY_HD C integer_power(C base, C exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  C result = 1;
  while (exponent != 0) {
    if (exponent & 1) result = mul(result, base);
    base = mul(base, base);
    exponent >>= 1;
  }
  return result;
}

}  // namespace gantry::kernels::math
