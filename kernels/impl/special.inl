// Functors of the special functions, and their dispatch to a Loop.
#pragma once

#include <math.h>

#include <type_traits>

#include "kernels/elementwise/special.hpp"
#include "kernels/impl/unary.inl"
#include "kernels/input.hpp"
#include "kernels/math/math.hpp"

namespace gantry::kernels {
namespace functors {

// A function of f64, rounded once (Note [Special functions]). The second expression is one of f32,
// for results of 16 bits on GPUs.
#define GANTRY_SPECIAL_FUNCTOR(Name, expression, brief_expression)    \
  struct Name {                                                       \
    static constexpr bool kSlow = true;                               \
    SpecialParameters p;                                              \
    template <class C>                                                \
    GANTRY_HD C operator()(C narrow) const {                          \
      const auto x = static_cast<double>(narrow);                     \
      return static_cast<C>(expression);                              \
    }                                                                 \
    GANTRY_HD float brief(float x) const { return brief_expression; } \
  };

GANTRY_SPECIAL_FUNCTOR(Asinh, ::asinh(x), ::asinhf(x))
GANTRY_SPECIAL_FUNCTOR(Acosh, ::acosh(x), ::acoshf(x))
GANTRY_SPECIAL_FUNCTOR(Atanh, ::atanh(x), ::atanhf(x))
GANTRY_SPECIAL_FUNCTOR(Erfc, ::erfc(x), ::erfcf(x))
GANTRY_SPECIAL_FUNCTOR(Exp2, ::exp2(x), ::exp2f(x))
// max(-x, 0) propagates no NaN, but the logarithm does.
GANTRY_SPECIAL_FUNCTOR(LogSigmoid, (x < 0 ? x : 0) - ::log1p(::exp(-::fabs(x))),
                       (x < 0 ? x : 0.0f) - ::log1pf(::expf(-::fabsf(x))))
GANTRY_SPECIAL_FUNCTOR(Softplus, x* p.a > p.b ? x : ::log1p(::exp(x * p.a)) / p.a,
                       math::brief_softplus(x, static_cast<float>(p.a), static_cast<float>(p.b)))
GANTRY_SPECIAL_FUNCTOR(Elu, x > 0 ? p.b * x : p.a * ::expm1(p.c * x),
                       x > 0 ? static_cast<float>(p.b) * x
                             : static_cast<float>(p.a) * ::expm1f(static_cast<float>(p.c) * x))
#undef GANTRY_SPECIAL_FUNCTOR

// In f64 for 16 bits, too: the argument of the sine is rounded, and may be near a multiple of pi.
struct Sinc {
  static constexpr bool kSlow = true;
  SpecialParameters p;
  template <class C>
  GANTRY_HD C operator()(C narrow) const {
    const double x = 3.14159265358979323846 * static_cast<double>(narrow);
    return static_cast<C>(x == 0 ? 1 : ::sin(x) / x);
  }
};

struct GeluTanh {
  static constexpr bool kSlow = true;
  static constexpr bool kWide = true;
  SpecialParameters p;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    return math::gelu_tanh(x);
  }
  GANTRY_HD static float brief(float x) { return math::brief_gelu_tanh(x); }
};

struct LeakyRelu {
  static constexpr bool kSlow = true;
  SpecialParameters p;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    return x > C(0) ? x : x * static_cast<C>(p.a);
  }
};

struct SignBit {
  static constexpr bool kSlow = true;
  template <class C>
  GANTRY_HD bool operator()(C x) const {
    return math::copysign(C(1), x) < C(0);
  }
};

struct Logaddexp {
  GANTRY_HD static double of(double a, double b) {
    if (a == b && a - b != 0) return a;  // two equal infinities
    return (a > b ? a : b) + ::log1p(::exp(-::fabs(a - b)));
  }
};
struct Logaddexp2 {
  GANTRY_HD static double of(double a, double b) {
    if (a == b) return a + 1;  // exact, also for two equal infinities
    return (a > b ? a : b) + 1.44269504088896340736 * ::log1p(::exp2(-::fabs(a - b)));
  }
};
struct Hypot {
  GANTRY_HD static double of(double a, double b) { return ::hypot(a, b); }
};
struct Xlogy {
  GANTRY_HD static double of(double a, double b) { return a == 0 && b == b ? 0 : a * ::log(b); }
};

// `Op::of` of two numbers, rounded once.
template <class Op>
struct Rounded {
  static constexpr bool kSlow = true;
  template <class C>
  GANTRY_HD C operator()(C a, C b) const {
    return static_cast<C>(Op::of(static_cast<double>(a), static_cast<double>(b)));
  }
};

struct Copysign {
  static constexpr bool kSlow = true;
  template <class C>
  GANTRY_HD C operator()(C a, C b) const {
    return math::copysign(a, b);
  }
};
// a * 2^b.
struct Ldexp {
  GANTRY_HD static double of(double a, double b) { return a * ::exp2(b); }
};
template <class T>
struct Nextafter {
  static constexpr bool kSlow = true;
  GANTRY_HD float operator()(float a, float b) const {
    if constexpr (std::is_same_v<T, float>) {
      return ::nextafterf(a, b);
    } else {
      if (a != a || b != b) return a + b;
      if (a == b) return b;
      const float toward = b > a ? 1.0f : -1.0f;
      std::uint16_t bits = T(a == 0 ? toward : a).bits;
      if (a == 0) {
        bits = (bits & 0x8000) | 1;  // the smallest number of that sign
      } else {
        bits = static_cast<std::uint16_t>((b > a) == (a > 0) ? bits + 1 : bits - 1);
      }
      return static_cast<float>(T::from_bits(bits));
    }
  }
  GANTRY_HD double operator()(double a, double b) const { return ::nextafter(a, b); }
};
struct Heaviside {
  static constexpr bool kSlow = true;
  template <class C>
  GANTRY_HD C operator()(C a, C b) const {
    return a == C(0) ? b : static_cast<C>(a > C(0));
  }
};

}  // namespace functors

namespace detail {

// Calls f with the functor of `op`, except sign_bit.
template <class F>
void with_special(SpecialOp op, const SpecialParameters& p, const F& f) {
  using namespace functors;
  switch (op) {
    case SpecialOp::asinh:
      return f(Asinh{p});
    case SpecialOp::acosh:
      return f(Acosh{p});
    case SpecialOp::atanh:
      return f(Atanh{p});
    case SpecialOp::erfc:
      return f(Erfc{p});
    case SpecialOp::exp2:
      return f(Exp2{p});
    case SpecialOp::sinc:
      return f(Sinc{p});
    case SpecialOp::log_sigmoid:
      return f(LogSigmoid{p});
    case SpecialOp::softplus:
      return f(Softplus{p});
    case SpecialOp::leaky_relu:
      return f(LeakyRelu{p});
    case SpecialOp::elu:
      return f(Elu{p});
    case SpecialOp::gelu_tanh:
      return f(GeluTanh{p});
    case SpecialOp::sign_bit:
      return;
  }
}

// Calls f with the functor of `op`, except nextafter and heaviside.
template <class F>
void with_special(SpecialBinaryOp op, const F& f) {
  using namespace functors;
  switch (op) {
    case SpecialBinaryOp::logaddexp:
      return f(Rounded<Logaddexp>{});
    case SpecialBinaryOp::logaddexp2:
      return f(Rounded<Logaddexp2>{});
    case SpecialBinaryOp::hypot:
      return f(Rounded<Hypot>{});
    case SpecialBinaryOp::xlogy:
      return f(Rounded<Xlogy>{});
    case SpecialBinaryOp::ldexp:
      return f(Rounded<Ldexp>{});
    case SpecialBinaryOp::copysign:
      return f(Copysign{});
    case SpecialBinaryOp::nextafter:
    case SpecialBinaryOp::heaviside:
      return;
  }
}

// A separate function, because g++ 12 cannot use an outer generic lambda's type in an inner lambda.
template <class T, class Loop>
void run_special_as(const Loop& loop, SpecialOp op, const TensorRef& out, const TensorRef& in,
                    const SpecialParameters& parameters) {
  with_special(op, parameters, [&](auto functor) {
    using Op = decltype(functor);
    if constexpr (IsBrief<Loop, Op, T>) {
      loop.template run<T>("special", functors::Brief<Op>{functor}, out, tensor_input<T>(in));
    } else {
      loop.template run<T>("special", functor, out, tensor_input<T>(in));
    }
  });
}

}  // namespace detail

// Precondition: `in` is floating.
template <class Loop>
void run_special(const Loop& loop, SpecialOp op, const TensorRef& out, const TensorRef& in,
                 const SpecialParameters& parameters) {
  dispatch_floating("special", in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op == SpecialOp::sign_bit) {
      return loop.template run<bool>("special", functors::SignBit{}, out, tensor_input<T>(in));
    }
    detail::run_special_as<T>(loop, op, out, in, parameters);
  });
}

template <class Loop>
void run_special(const Loop& loop, SpecialBinaryOp op, const TensorRef& out, const Operand& a,
                 const Operand& b) {
  if (op == SpecialBinaryOp::heaviside) {
    return dispatch(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      loop.template run<T>("special", functors::Heaviside{}, out, element_input<T>(a),
                           element_input<T>(b));
    });
  }
  dispatch_floating("special", out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op == SpecialBinaryOp::nextafter) {
      return loop.template run<T>("special", functors::Nextafter<T>{}, out, element_input<T>(a),
                                  element_input<T>(b));
    }
    detail::with_special(op, [&](auto functor) {
      loop.template run<T>("special", functor, out, operand_input<T>(a), operand_input<T>(b));
    });
  });
}

}  // namespace gantry::kernels
