// Functors of the binary ops, and their dispatch to a Loop.
#pragma once

#include <type_traits>

#include "kernels/impl/power.inl"
#include "kernels/impl/unary.inl"

namespace gantry::kernels {
namespace functors {

template <class C>
struct Add {
  C alpha;
  GANTRY_HD C operator()(C a, C b) const { return math::add(a, math::mul(alpha, b)); }
};
template <class C>
struct Sub {
  C alpha;
  GANTRY_HD C operator()(C a, C b) const { return math::sub(a, math::mul(alpha, b)); }
};
template <class C>
struct Mul {
  GANTRY_HD C operator()(C a, C b) const { return math::mul(a, b); }
};
template <class C>
struct Div {
  GANTRY_HD C operator()(C a, C b) const { return a / b; }
};
template <class C>
struct DivTrunc {
  static constexpr bool kSlow = true;
  GANTRY_HD C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>)
      return math::quotient(a, b);
    else
      return math::trunc(a / b);
  }
};
template <class C>
struct DivFloor {
  static constexpr bool kSlow = true;
  GANTRY_HD C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      const C quotient = math::quotient(a, b);
      return math::rest(a, b) != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
    } else {
      // Python's float floor division. Exact multiples stay exact, unlike in floor(a / b).
      if (b == C(0)) return a / b;
      const C rest = math::fmod(a, b);
      C quotient = (a - rest) / b;
      if (rest != C(0) && (b < C(0)) != (rest < C(0))) quotient -= C(1);
      if (quotient == C(0)) return math::copysign(C(0), a / b);
      const C floored = math::floor(quotient);
      return quotient - floored > C(0.5) ? floored + C(1) : floored;
    }
  }
};
template <class C>
struct Remainder {
  static constexpr bool kSlow = true;
  GANTRY_HD C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>) {
      const C rest = math::rest(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    } else {
      const C rest = math::fmod(a, b);
      return rest != C(0) && (rest < C(0)) != (b < C(0)) ? rest + b : rest;
    }
  }
};
template <class C>
struct Fmod {
  static constexpr bool kSlow = true;
  GANTRY_HD C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>)
      return math::rest(a, b);
    else
      return math::fmod(a, b);
  }
};
template <class C>
struct Pow {
  static constexpr bool kSlow = true;
  static constexpr bool kWide = std::is_same_v<C, float>;
  GANTRY_HD C operator()(C a, C b) const {
    if constexpr (std::is_integral_v<C>)
      return math::integer_power(a, b);
    else
      return math::pow(a, b);
  }
};
template <class C>
struct Atan2 {
  static constexpr bool kSlow = true;
  GANTRY_HD C operator()(C a, C b) const { return math::atan2(a, b); }
};
template <class C>
struct Minimum {
  GANTRY_HD C operator()(C a, C b) const { return math::minimum(a, b); }
};
template <class C>
struct Maximum {
  GANTRY_HD C operator()(C a, C b) const { return math::maximum(a, b); }
};
template <class C>
struct BitwiseAnd {
  GANTRY_HD C operator()(C a, C b) const { return a & b; }
};
template <class C>
struct BitwiseOr {
  GANTRY_HD C operator()(C a, C b) const { return a | b; }
};
template <class C>
struct BitwiseXor {
  GANTRY_HD C operator()(C a, C b) const { return a ^ b; }
};
// A shift by a negative count, or by at least the width, shifts all bits out.
template <class C>
struct ShiftLeft {
  static constexpr bool kSlow = true;
  C width;
  GANTRY_HD C operator()(C a, C b) const {
    using U = std::make_unsigned_t<C>;
    return b < 0 || b >= width ? C(0) : static_cast<C>(static_cast<U>(a) << b);
  }
};
template <class C>
struct ShiftRight {
  static constexpr bool kSlow = true;
  C width;
  GANTRY_HD C operator()(C a, C b) const {
    return b < 0 || b >= width ? (a < 0 ? C(-1) : C(0)) : static_cast<C>(a >> b);
  }
};

}  // namespace functors

namespace detail {

// Calls f with the functor of `op` for elements of type T. Returns false if there is none.
template <class T, class F>
bool with_binary(BinaryOp op, const Scalar& alpha, const F& f) {
  using namespace functors;
  using C = ComputeType<T>;
  constexpr C kWidth = static_cast<C>(sizeof(T) * 8);
  const auto integral = [&](auto make) {
    if constexpr (std::is_integral_v<C>) f(make(kWidth));
    return std::is_integral_v<C>;
  };
  const auto floating = [&](auto functor_of) {
    if constexpr (std::is_floating_point_v<C>) f(functor_of);
    return std::is_floating_point_v<C>;
  };
  switch (op) {
    case BinaryOp::add:
      return f(Add<C>{number_as<T>(alpha)}), true;
    case BinaryOp::sub:
      return f(Sub<C>{number_as<T>(alpha)}), true;
    case BinaryOp::mul:
      return f(Mul<C>{}), true;
    case BinaryOp::div:
      return floating(Div<C>{});
    case BinaryOp::div_trunc:
      return f(DivTrunc<C>{}), true;
    case BinaryOp::div_floor:
      return f(DivFloor<C>{}), true;
    case BinaryOp::remainder:
      return f(Remainder<C>{}), true;
    case BinaryOp::fmod:
      return f(Fmod<C>{}), true;
    case BinaryOp::pow:
      return f(Pow<C>{}), true;
    case BinaryOp::atan2:
      return floating(Atan2<C>{});
    case BinaryOp::minimum:
      return f(Minimum<C>{}), true;
    case BinaryOp::maximum:
      return f(Maximum<C>{}), true;
    case BinaryOp::bitwise_and:
      return integral([](auto) { return BitwiseAnd<C>{}; });
    case BinaryOp::bitwise_or:
      return integral([](auto) { return BitwiseOr<C>{}; });
    case BinaryOp::bitwise_xor:
      return integral([](auto) { return BitwiseXor<C>{}; });
    case BinaryOp::shift_left:
      return integral([](auto width) { return ShiftLeft<C>{width}; });
    case BinaryOp::shift_right:
      return integral([](auto width) { return ShiftRight<C>{width}; });
  }
  return false;
}

}  // namespace detail

template <class Loop>
void run_binary(const Loop& loop, BinaryOp op, const TensorRef& out, const Operand& a,
                const Operand& b, const Scalar& alpha) {
  dispatch(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) {
      if (op == BinaryOp::pow && b.is_number && !b.is_element && !a.is_number &&
          detail::with_fixed_power(number_as<T>(b.number), [&](auto functor) {
            loop.template run<T>("binary", functor, out, tensor_input<T>(a.tensor));
          })) {
        return;
      }
    }
    const bool chooses = op == BinaryOp::minimum || op == BinaryOp::maximum;
    const auto left = chooses ? element_input<T>(a) : operand_input<T>(a);
    const auto right = chooses ? element_input<T>(b) : operand_input<T>(b);
    const bool defined = detail::with_binary<T>(op, alpha, [&](auto functor) {
      loop.template run<T>("binary", functor, out, left, right);
    });
    if (!defined) detail::throw_undefined("binary", static_cast<int>(op), out.dtype);
  });
}

}  // namespace gantry::kernels
