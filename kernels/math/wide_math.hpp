#pragma once

#include <bit>
#include <cstdint>
#include <limits>

// f32 functions on the host, in f64.
//
// Note [f32 functions in f64]
// Each function takes the value of an f32 and returns its result in f64 with a relative error below
// 1e-9. That is negligible after rounding to f32. So a composition (silu) is as accurate as a
// single function. There are no branches and no calls: compilers make vector code of a loop over
// them. Only + - * / and fma round, so vector code and scalar code have the same
// bits. Polynomials are Taylor's, or fitted at Chebyshev's points with mpmath.
namespace gantry::kernels::wide {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// x + kRounder has the nearest integer to x in its low bits, for |x| < 2^51.
inline constexpr double kRounder = 0x1.8p52;
inline constexpr double kLog2 = 0.69314718055994531;

inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }

// Horner's rule: first + x (second + x (…)). No loop, which compilers would have to unroll first.
inline double polynomial(double /*x*/, double last) { return last; }
template <class... Rest>
inline double polynomial(double x, double first, Rest... rest) {
  return fma(polynomial(x, rest...), x, first);
}

// NaN stays NaN.
inline double clamped(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

inline double with_sign(double magnitude, double sign) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(magnitude) |
                               (std::bit_cast<std::uint64_t>(sign) & kSign));
}
inline double absolute(double x) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & (~std::uint64_t{0} >> 1));
}

// e^x = 2^n (1 + tail), |log(1 + tail)| <= log(2) / 2.
struct Exponential {
  double power;  // 2^n
  double tail;
};
inline Exponential exponential(double x) {
  // Results beyond these are 0 and infinite in f32. 2^n is a normal number.
  x = clamped(x, -708, 709);
  const double shifted = fma(x, 1.0 / kLog2, kRounder);
  const double n = shifted - kRounder;
  const double r = fma(-n, kLog2, x);
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(shifted) + 1023;
  return {std::bit_cast<double>(exponent << 52),
          r * polynomial(r, 1.0, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040,
                         1.0 / 40320, 1.0 / 362880)};
}

inline double exp(double x) {
  const Exponential e = exponential(x);
  return fma(e.power, e.tail, e.power);
}
inline double expm1(double x) {
  const Exponential e = exponential(x);
  return with_sign(absolute(fma(e.power, e.tail, e.power - 1.0)), x);  // also of zero
}

// e^x in f32, within 1 ulp and twice as fast as in f64.
inline float exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  constexpr float kFloatRounder = 0x1.8p23f;
  const float shifted = __builtin_fmaf(x, 1.44269502f, kFloatRounder);
  const float n = shifted - kFloatRounder;
  // log(2) = 0.693359375 - 0.000212194440; the first has 10 bits, so its product is exact.
  const float r = __builtin_fmaf(n, 2.12194440e-4f, __builtin_fmaf(n, -0.693359375f, x));
  float tail = 1.0f / 5040;
  tail = __builtin_fmaf(tail, r, 1.0f / 720);
  tail = __builtin_fmaf(tail, r, 1.0f / 120);
  tail = __builtin_fmaf(tail, r, 1.0f / 24);
  tail = __builtin_fmaf(tail, r, 1.0f / 6);
  tail = __builtin_fmaf(tail, r, 0.5f);
  tail = __builtin_fmaf(tail * r, r, r);
  // 2^n in two steps, since it may be no normal number: |n| <= 151.
  const std::int32_t exponent =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kFloatRounder);
  const std::int32_t half = exponent >> 1;
  const float low = std::bit_cast<float>(static_cast<std::uint32_t>(half + 127) << 23);
  const float high = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - half + 127) << 23);
  return __builtin_fmaf(low, tail, low) * high;
}

// x = 2^n m with m in [sqrt(1/2), sqrt(2)), for normal positive x; log(m).
struct Logarithm {
  double n;
  double log_m;
};
inline Logarithm logarithm(double x) {
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcd;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  // 1024 + n, which stays positive.
  const std::uint64_t n = (bits - kRootHalf + (std::uint64_t{1024} << 52)) >> 52;
  const double m = std::bit_cast<double>(bits - ((n - 1024) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  // 2^52 + 1024 + n, without a conversion of integers.
  const double wide_n = std::bit_cast<double>(n | 0x4330000000000000u);
  return {wide_n - 0x1p52 - 1024.0,
          s * polynomial(z, 2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11)};
}
// The logarithm `value` of x, where x has one; else its limit or NaN.
inline double logarithm_or_limit(double x, double value) {
  value = x == 0 ? -kInfinity : value;
  value = x == kInfinity ? kInfinity : value;
  return x >= 0 ? value : kNan;
}

inline double log(double x) {
  const Logarithm l = logarithm(x);
  return logarithm_or_limit(x, fma(l.n, kLog2, l.log_m));
}
inline double log2(double x) {
  const Logarithm l = logarithm(x);
  return logarithm_or_limit(x, fma(l.log_m, 1.0 / kLog2, l.n));
}
inline double log10(double x) {
  const Logarithm l = logarithm(x);
  return logarithm_or_limit(x, fma(l.log_m, 0.43429448190325183, l.n * 0.30102999566398120));
}
// Of a value of f32, 1 + x has no rounding error that counts, unless x is small.
inline double log1p(double x) {
  const double u = 1.0 + x;
  // The lost part of x, relative to u.
  const double lost = x - (u - 1.0);
  const double value = log(u);
  const double corrected = value + lost / u;
  const double small = fma(x * x, fma(x, 1.0 / 3, -0.5), x);
  const double result = absolute(x) < 0x1p-20 ? small : corrected;
  return u > 0 && u < kInfinity ? with_sign(absolute(result), x) : value;
}

inline double tanh(double x) {
  const double e = expm1(2.0 * clamped(absolute(x), 0, 20));
  return with_sign(e / (e + 2.0), x);
}
inline double sinh(double x) {
  const double e = expm1(absolute(x));
  const double value = 0.5 * (e + e / (e + 1.0));
  return with_sign(absolute(x) > 700 ? kInfinity : value, x);
}
inline double cosh(double x) {
  const double e = exp(absolute(x));
  return 0.5 * (e + 1.0 / e);
}
inline double silu(double x) {
  const double value = x / (1.0 + exp(-x));
  return x == -kInfinity ? kNan : value;
}

// x P(X < x) by tanh: (1 + tanh u) / 2 is 1 / (1 + e^(-2 u)), which keeps small results accurate.
inline double gelu_tanh(double x) {
  const double u = 0.79788456080286535588 * fma(0.044715 * x * x, x, x);
  const double value = x / (1.0 + exp(-2.0 * u));
  return x == -kInfinity ? kNan : value;
}

// x^y with the limits of C's pow.
//
// log2 has more terms than above, because y enlarges its error.
inline double pow(double x, double y) {
  const double a = absolute(x);
  constexpr std::uint64_t kRootHalf = 0x3fe6a09e667f3bcd;
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(a);
  const std::uint64_t n = (bits - kRootHalf + (std::uint64_t{1024} << 52)) >> 52;
  const double m = std::bit_cast<double>(bits - ((n - 1024) << 52));
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  const double whole = std::bit_cast<double>(n | 0x4330000000000000u) - 0x1p52 - 1024.0;
  const double log_m = s * polynomial(z, 2.0, 2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11,
                                      2.0 / 13, 2.0 / 15, 2.0 / 17);
  double power = y * fma(whole, kLog2, log_m);
  power = a == 0 ? -y * kInfinity : power;
  power = a == kInfinity ? y * kInfinity : power;
  // Masks, because of a constant y compilers make branches otherwise. Large numbers are even.
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  const double size = clamped(absolute(y), 0, 0x1p52);
  const double half = 0.5 * size;
  const std::uint64_t odd_sign = (half + 0x1p52) - 0x1p52 == half ? 0 : kSign;
  const bool is_whole = (size + 0x1p52) - 0x1p52 == size;
  const std::uint64_t value = std::bit_cast<std::uint64_t>(exp(power));
  const std::uint64_t sign = std::bit_cast<std::uint64_t>(x) & (is_whole ? odd_sign : 0);
  const double odd = std::bit_cast<double>(value | sign);
  // Numbers between this bound and 0 have no power.
  const double bound = is_whole ? 0.0 : -kInfinity;
  double result = x < 0 ? (bound < x ? kNan : odd) : odd;
  result = a == 1 ? (absolute(y) == kInfinity ? 1.0 : result) : result;
  result = x == x ? result : kNan;
  result = x == 1 ? 1.0 : result;
  return y == 0 ? 1.0 : result;
}

// erfc(a) for a >= 0.
//
// Source of the form: t exp(-a^2) P(t), t = 1 / (1 + a / 2); Press et al., "Numerical Recipes",
// 6.2.2. P is fitted for a <= 15; beyond it erfc rounds to 0 in f32.
inline double erfc_positive(double a) {
  a = a > 15 ? 15 : a;
  const double t = 1.0 / fma(0.5, a, 1.0);
  return t * exp(-a * a) *
         polynomial(t, 0.282094693807194742, 0.282099329736382248, 0.246739131199890762,
                    0.177455012404045698, 0.0745236605278263593, 0.0472529482669551236,
                    -0.263679543042739355, 0.544977163088498889, -1.24419699156075821,
                    1.83888003155522527, -1.62099901904630283, 0.855679663930436396,
                    -0.253602034201033572, 0.0327759533556681325);
}
inline double erf(double x) {
  const double a = absolute(x);
  const double z = a * a;
  const double near =
      a * polynomial(z, 1.12837916709549382, -0.376126389028086136, 0.112837916585487128,
                     -0.0268661690505993239, 0.00522396719354389972, -0.000854793373651963316,
                     0.000120462612697797974, -1.47950314006620446e-5, 1.53063731636410843e-6,
                     -1.04691103321512084e-7);
  return with_sign(a < 1 ? near : 1.0 - erfc_positive(a), x);
}
// sin and cos for |x| < kTurns; beyond it the reduction of the argument loses digits.
inline constexpr double kTurns = 0x1p30;
struct Angle {
  double sine;  // of the rest of the angle, in [-pi/4, pi/4]
  double cosine;
  std::uint64_t quarter;  // right angles, in the two lowest bits
};
inline Angle angle(double x) {
  const double shifted = fma(x, 0.63661977236758134308, kRounder);
  const double n = shifted - kRounder;
  const double r = fma(-n, 6.123233995736766e-17, fma(-n, 1.5707963267948966, x));
  const double z = r * r;
  return {
      // r (1 + …) keeps the sign of zero.
      r * fma(z, polynomial(z, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800),
              1.0),
      fma(z,
          polynomial(z, -0.5, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600),
          1.0),
      std::bit_cast<std::uint64_t>(shifted)};
}
inline double turned(const Angle& at, std::uint64_t quarter) {
  const double value = (quarter & 1) != 0 ? at.cosine : at.sine;
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^ ((quarter & 2) << 62));
}
inline double sin(double x) {
  const Angle at = angle(x);
  return turned(at, at.quarter);
}
inline double cos(double x) {
  const Angle at = angle(x);
  return turned(at, at.quarter + 1);
}

}  // namespace gantry::kernels::wide
