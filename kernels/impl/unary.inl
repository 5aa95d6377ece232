// Functors of the unary ops and predicates, and their dispatch to a Loop.
#pragma once

#include <type_traits>

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/input.hpp"
#include "kernels/math/math.hpp"

namespace gantry::kernels {
namespace functors {

// The compute types that an op supports (kFor).
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
    return x < C(0) ? C(0) : x;
  }
};
struct BitwiseNot {
  static constexpr Domain kFor = Domain::integral;
  template <class C>
  GANTRY_HD C operator()(C x) const {
    return ~x;
  }
};

// The cost of a function. Expensive functions gain nothing from the dense loop. It is not compiled
// for slow ones, nor for hot ones in f64, which keeps build times short. Wide ones are slow, but
// for their f32 version: on the host it is vector code, on GPUs a function of CUDA. Few have the
// latter alone.
enum class Cost { cheap, hot, wide, wide_on_gpu, slow };

#define GANTRY_UNARY_FUNCTOR(Name, cost, expression)                    \
  struct Name {                                                         \
    static constexpr Domain kFor = Domain::floating;                    \
    static constexpr bool kSlow = Cost::cost >= Cost::wide;             \
    static constexpr bool kHot = Cost::cost == Cost::hot;               \
    static constexpr bool kWide = Cost::cost == Cost::wide;             \
    static constexpr bool kWideOnGpu = Cost::cost == Cost::wide_on_gpu; \
    template <class C>                                                  \
    GANTRY_HD C operator()(C x) const {                                 \
      return expression;                                                \
    }                                                                   \
  };

GANTRY_UNARY_FUNCTOR(Reciprocal, cheap, C(1) / x)
GANTRY_UNARY_FUNCTOR(Sqrt, cheap, math::sqrt(x))
GANTRY_UNARY_FUNCTOR(Rsqrt, cheap, C(1) / math::sqrt(x))
GANTRY_UNARY_FUNCTOR(Exp, hot, math::exp(x))
GANTRY_UNARY_FUNCTOR(Expm1, wide, math::expm1(x))
GANTRY_UNARY_FUNCTOR(Log, hot, math::log(x))
GANTRY_UNARY_FUNCTOR(Log2, wide, math::log2(x))
GANTRY_UNARY_FUNCTOR(Log10, wide, math::log10(x))
GANTRY_UNARY_FUNCTOR(Log1p, wide, math::log1p(x))
GANTRY_UNARY_FUNCTOR(Tan, slow, math::tan(x))
GANTRY_UNARY_FUNCTOR(Asin, wide_on_gpu, math::asin(x))
GANTRY_UNARY_FUNCTOR(Acos, wide_on_gpu, math::acos(x))
GANTRY_UNARY_FUNCTOR(Atan, wide_on_gpu, math::atan(x))
GANTRY_UNARY_FUNCTOR(Sinh, wide, math::sinh(x))
GANTRY_UNARY_FUNCTOR(Cosh, wide, math::cosh(x))
GANTRY_UNARY_FUNCTOR(Tanh, hot, math::tanh(x))
GANTRY_UNARY_FUNCTOR(Erf, wide, math::erf(x))
GANTRY_UNARY_FUNCTOR(Floor, cheap, math::floor(x))
GANTRY_UNARY_FUNCTOR(Ceil, cheap, math::ceil(x))
GANTRY_UNARY_FUNCTOR(Round, cheap, math::rint(x))
GANTRY_UNARY_FUNCTOR(Trunc, cheap, math::trunc(x))
GANTRY_UNARY_FUNCTOR(Frac, cheap, x - math::trunc(x))
#undef GANTRY_UNARY_FUNCTOR

// Functions with a version for results of 16 bits. In f32 they take longer than a thread's loads.
#define GANTRY_UNARY_FUNCTOR(Name, name)                                    \
  struct Name {                                                             \
    static constexpr Domain kFor = Domain::floating;                        \
    static constexpr bool kHot = true;                                      \
    static constexpr bool kLong = true;                                     \
    template <class C>                                                      \
    GANTRY_HD C operator()(C x) const {                                     \
      return math::name(x);                                                 \
    }                                                                       \
    GANTRY_HD static float brief(float x) { return math::brief_##name(x); } \
  };

GANTRY_UNARY_FUNCTOR(Sigmoid, sigmoid)
GANTRY_UNARY_FUNCTOR(Gelu, gelu)
GANTRY_UNARY_FUNCTOR(Silu, silu)
#undef GANTRY_UNARY_FUNCTOR

// The brief version of an op, for results of 16 bits.
template <class Op>
struct Brief : Op {
  static constexpr bool kSlow = false;
  static constexpr bool kLong = false;
  GANTRY_HD float operator()(float x) const { return Op::brief(x); }
};

#define GANTRY_UNARY_FUNCTOR(Name, name)             \
  struct Name {                                      \
    static constexpr Domain kFor = Domain::floating; \
    static constexpr bool kSlow = true;              \
    static constexpr bool kWide = true;              \
    template <class C>                               \
    GANTRY_HD C operator()(C x) const {              \
      return math::name(x);                          \
    }                                                \
    template <class C>                               \
    bool is_rare(C x) const {                        \
      return math::is_far(x);                        \
    }                                                \
    template <class C>                               \
    C common(C x) const {                            \
      return math::near_##name(x);                   \
    }                                                \
  };
GANTRY_UNARY_FUNCTOR(Sin, sin)
GANTRY_UNARY_FUNCTOR(Cos, cos)
#undef GANTRY_UNARY_FUNCTOR

template <class Op>
struct Slow : Op {
  static constexpr bool kSlow = true;
};

// x - x is NaN for infinities and NaN, else 0.
struct IsInf {
  template <class C>
  GANTRY_HD bool operator()(C x) const {
    return x == x && !(x - x == C(0));
  }
};
struct IsFinite {
  template <class C>
  GANTRY_HD bool operator()(C x) const {
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

template <class Op>
concept IsHot = Op::kHot;

// True if a Loop takes the brief version of an op for elements of type T.
template <class Loop, class Op, class T>
concept IsBrief = Loop::kIsBrief && kIsNarrowFloat<T> && requires(const Op& op) {
  op.brief(1.0f);
};

// A separate function, because g++ 12 cannot use an outer generic lambda's type in an inner lambda.
template <class T, class Loop>
void run_unary_as(const Loop& loop, UnaryOp op, const TensorRef& out, const TensorRef& in) {
  with_unary(op, [&](auto functor) {
    using Op = decltype(functor);
    if constexpr (!is_in<ComputeType<T>>(Op::kFor)) {
      throw_undefined("unary", static_cast<int>(op), in.dtype);
    } else if constexpr (std::is_same_v<T, double> && IsHot<Op>) {
      loop.template run<T>("unary", functors::Slow<Op>{}, out, tensor_input<T>(in));
    } else if constexpr (IsBrief<Loop, Op, T>) {
      loop.template run<T>("unary", functors::Brief<Op>{}, out, tensor_input<T>(in));
    } else {
      loop.template run<T>("unary", functor, out, tensor_input<T>(in));
    }
  });
}

}  // namespace detail

// Precondition: `in` is not bool.
template <class Loop>
void run_unary(const Loop& loop, UnaryOp op, const TensorRef& out, const TensorRef& in) {
  dispatch(in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) detail::run_unary_as<T>(loop, op, out, in);
  });
}

// Precondition: `in` is floating; op is is_inf or is_finite.
template <class Loop>
void run_predicate(const Loop& loop, PredicateOp op, const TensorRef& out, const TensorRef& in) {
  dispatch_floating("predicate", in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (op == PredicateOp::is_inf) {
      loop.template run<bool>("predicate", functors::IsInf{}, out, tensor_input<T>(in));
    } else {
      loop.template run<bool>("predicate", functors::IsFinite{}, out, tensor_input<T>(in));
    }
  });
}

}  // namespace gantry::kernels
