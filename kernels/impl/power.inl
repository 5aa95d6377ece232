// Powers by small numbers, which need no logarithm. Shared by the host and the GPU.
#pragma once

#include <type_traits>

#include "kernels/convert.hpp"
#include "kernels/math/math.hpp"

namespace gantry::kernels {
namespace functors {

// The power of every element. An f32 result is rounded once, from f64, as in math::pow.
template <int kExponent>
struct FixedPower {
  template <class C>
  GANTRY_HD C operator()(C x) const {
    if constexpr (std::is_integral_v<C>) {
      static_assert(kExponent > 0);
      C result = x;
      for (int n = 1; n < kExponent; ++n) result = math::mul(result, x);
      return result;
    } else {
      return static_cast<C>(wide(static_cast<double>(x)));
    }
  }

 private:
  GANTRY_HD static double wide(double x) {
    if constexpr (kExponent == -2) {
      const double inverse = 1.0 / x;  // the square of x has a smaller range
      return inverse * inverse;
    } else if constexpr (kExponent == 3) {
      return x * x * x;
    } else {
      static_assert(kExponent == 4);
      return (x * x) * (x * x);
    }
  }
};

}  // namespace functors

namespace detail {

// Calls f with the functor of the power by `exponent`, a number in the compute type C. Returns
// false if there is none. kernels::binary() does the exponents of unary operations.
template <class C, class F>
bool with_fixed_power(C exponent, const F& f) {
  using functors::FixedPower;
  if constexpr (std::is_integral_v<C>) {
    if (exponent == 2) return f(FixedPower<2>{}), true;
  } else {
    if (exponent == -2) return f(FixedPower<-2>{}), true;
  }
  if (exponent == 3) return f(FixedPower<3>{}), true;
  if (exponent == 4) return f(FixedPower<4>{}), true;
  return false;
}

}  // namespace detail

}  // namespace gantry::kernels
