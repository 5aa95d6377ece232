// Functors of the unary ops and predicates, and their dispatch on a loop skeleton.
#pragma once

#include <type_traits>

#include "kernels/impl/math.hpp"
#include "kernels/input.hpp"

namespace gantry::kernels {
namespace functors {

// kFor: which compute types an op is defined for.
enum class Domain { all, floating, integral };

struct Neg {
  static constexpr Domain kFor = Domain::all;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    if constexpr (std::is_integral_v<C>)
      return math::sub(C(0), x);
    else
      return -x;
  }
};
struct Abs {
  static constexpr Domain kFor = Domain::all;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    if constexpr (std::is_integral_v<C>)
      return x < 0 ? math::sub(C(0), x) : x;
    else
      return math::fabs(x);
  }
};
struct Sign {
  static constexpr Domain kFor = Domain::all;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    return x != x ? x : static_cast<C>((C(0) < x) - (x < C(0)));
  }
};
struct Square {
  static constexpr Domain kFor = Domain::all;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    return math::mul(x, x);
  }
};
struct Relu {
  static constexpr Domain kFor = Domain::all;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    return x <= C(0) ? C(0) : x;
  }
};
struct BitwiseNot {
  static constexpr Domain kFor = Domain::integral;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    return ~x;
  }
};

#define GANTRY_UNARY_FUNCTOR(Name, slow, expression) \
  struct Name {                                      \
    static constexpr Domain kFor = Domain::floating; \
    static constexpr bool kSlow = slow;              \
    template <class C>                               \
    GANTRY_HD C operator()(C x) const {              \
      return expression;                             \
    }                                                \
  };

GANTRY_UNARY_FUNCTOR(Reciprocal, false, C(1) / x)
GANTRY_UNARY_FUNCTOR(Sqrt, false, math::sqrt(x))
GANTRY_UNARY_FUNCTOR(Rsqrt, false, C(1) / math::sqrt(x))
GANTRY_UNARY_FUNCTOR(Exp, false, math::exp(x))
GANTRY_UNARY_FUNCTOR(Expm1, true, math::expm1(x))
GANTRY_UNARY_FUNCTOR(Log, false, math::log(x))
GANTRY_UNARY_FUNCTOR(Log2, true, math::log2(x))
GANTRY_UNARY_FUNCTOR(Log10, true, math::log10(x))
GANTRY_UNARY_FUNCTOR(Log1p, true, math::log1p(x))
GANTRY_UNARY_FUNCTOR(Sin, true, math::sin(x))
GANTRY_UNARY_FUNCTOR(Cos, true, math::cos(x))
GANTRY_UNARY_FUNCTOR(Tan, true, math::tan(x))
GANTRY_UNARY_FUNCTOR(Asin, true, math::asin(x))
GANTRY_UNARY_FUNCTOR(Acos, true, math::acos(x))
GANTRY_UNARY_FUNCTOR(Atan, true, math::atan(x))
GANTRY_UNARY_FUNCTOR(Sinh, true, math::sinh(x))
GANTRY_UNARY_FUNCTOR(Cosh, true, math::cosh(x))
GANTRY_UNARY_FUNCTOR(Tanh, false, math::tanh(x))
GANTRY_UNARY_FUNCTOR(Sigmoid, false, C(1) / (C(1) + math::exp(-x)))
// The exact form x * P(X < x) of the normal distribution; erfc keeps the negative tail accurate.
GANTRY_UNARY_FUNCTOR(Gelu, false, C(0.5) * x * math::erfc(x * C(-0.70710678118654752440)))
GANTRY_UNARY_FUNCTOR(Silu, false, x / (C(1) + math::exp(-x)))
GANTRY_UNARY_FUNCTOR(Erf, true, math::erf(x))
GANTRY_UNARY_FUNCTOR(Floor, false, math::floor(x))
GANTRY_UNARY_FUNCTOR(Ceil, false, math::ceil(x))
GANTRY_UNARY_FUNCTOR(Round, false, math::rint(x))
GANTRY_UNARY_FUNCTOR(Trunc, false, math::trunc(x))
GANTRY_UNARY_FUNCTOR(Frac, false, x - math::trunc(x))
#undef GANTRY_UNARY_FUNCTOR

struct LogicalNot {
  template <class C>
  GANTRY_HD bool operator()(C x) const {
    return x == C(0);
  }
};
struct IsNan {
  template <class C>
  GANTRY_HD bool operator()(C x) const {
    return x != x;
  }
};
// x - x is NaN for infinities and NaN, 0 otherwise; an integer is neither.
struct IsInf {
  template <class C>
  GANTRY_HD bool operator()(C x) const {
    if constexpr (std::is_integral_v<C>)
      return false;
    else
      return x == x && !(x - x == C(0));
  }
};
struct IsFinite {
  template <class C>
  GANTRY_HD bool operator()(C x) const {
    if constexpr (std::is_integral_v<C>)
      return true;
    else
      return x - x == C(0);
  }
};

}  // namespace functors

namespace detail {

// Calls f with the functor of `op`.
template <class F>
void with_unary(UnaryOp op, const F& f) {
  using namespace functors;
  switch (op) {
    case UnaryOp::neg:
      return f(Neg{});
    case UnaryOp::abs:
      return f(Abs{});
    case UnaryOp::sign:
      return f(Sign{});
    case UnaryOp::square:
      return f(Square{});
    case UnaryOp::reciprocal:
      return f(Reciprocal{});
    case UnaryOp::sqrt:
      return f(Sqrt{});
    case UnaryOp::rsqrt:
      return f(Rsqrt{});
    case UnaryOp::exp:
      return f(Exp{});
    case UnaryOp::expm1:
      return f(Expm1{});
    case UnaryOp::log:
      return f(Log{});
    case UnaryOp::log2:
      return f(Log2{});
    case UnaryOp::log10:
      return f(Log10{});
    case UnaryOp::log1p:
      return f(Log1p{});
    case UnaryOp::sin:
      return f(Sin{});
    case UnaryOp::cos:
      return f(Cos{});
    case UnaryOp::tan:
      return f(Tan{});
    case UnaryOp::asin:
      return f(Asin{});
    case UnaryOp::acos:
      return f(Acos{});
    case UnaryOp::atan:
      return f(Atan{});
    case UnaryOp::sinh:
      return f(Sinh{});
    case UnaryOp::cosh:
      return f(Cosh{});
    case UnaryOp::tanh:
      return f(Tanh{});
    case UnaryOp::sigmoid:
      return f(Sigmoid{});
    case UnaryOp::relu:
      return f(Relu{});
    case UnaryOp::gelu:
      return f(Gelu{});
    case UnaryOp::silu:
      return f(Silu{});
    case UnaryOp::erf:
      return f(Erf{});
    case UnaryOp::floor:
      return f(Floor{});
    case UnaryOp::ceil:
      return f(Ceil{});
    case UnaryOp::round:
      return f(Round{});
    case UnaryOp::trunc:
      return f(Trunc{});
    case UnaryOp::frac:
      return f(Frac{});
    case UnaryOp::bitwise_not:
      return f(BitwiseNot{});
  }
}

template <class C>
constexpr bool is_in(functors::Domain domain) {
  return domain == functors::Domain::all ||
         (domain == functors::Domain::floating) == std::is_floating_point_v<C>;
}

}  // namespace detail

namespace detail {

// A function of its own: g++ 12 cannot see the type of an outer generic lambda from an inner one.
template <class T, class Loop>
void run_unary_as(const Loop& loop, UnaryOp op, const TensorRef& out, const TensorRef& in) {
  with_unary(op, [&](auto functor) {
    if constexpr (is_in<ComputeType<T>>(decltype(functor)::kFor)) {
      loop.template run<T>("unary", functor, out, tensor_input<T>(in));
    } else {
      throw_undefined("unary", static_cast<int>(op), in.dtype);
    }
  });
}

}  // namespace detail

template <class Loop>
void run_unary(const Loop& loop, UnaryOp op, const TensorRef& out, const TensorRef& in) {
  if (op == UnaryOp::bitwise_not && in.dtype == DType::bool_) {
    loop.template run<bool>("unary", functors::LogicalNot{}, out, tensor_input<bool>(in));
    return;
  }
  dispatch(in.dtype, [&](auto tag) {
    detail::run_unary_as<typename decltype(tag)::type>(loop, op, out, in);
  });
}

template <class Loop>
void run_predicate(const Loop& loop, PredicateOp op, const TensorRef& out, const TensorRef& in) {
  dispatch(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto run = [&](auto functor) {
      loop.template run<bool>("predicate", functor, out, tensor_input<T>(in));
    };
    switch (op) {
      case PredicateOp::logical_not:
        return run(functors::LogicalNot{});
      case PredicateOp::is_nan:
        return run(functors::IsNan{});
      case PredicateOp::is_inf:
        return run(functors::IsInf{});
      case PredicateOp::is_finite:
        return run(functors::IsFinite{});
    }
  });
}

}  // namespace gantry::kernels
