// Functors of the ternary ops and of where, and their dispatch to a Loop.
#pragma once

#include "kernels/impl/raw.inl"
#include "kernels/impl/unary.inl"

namespace gantry::kernels {
namespace functors {

template <class C>
struct Lerp {
  GANTRY_HD C operator()(C a, C b, C c) const {
    const C distance = b - a;
    return c > C(-0.5) && c < C(0.5) ? a + c * distance : b - distance * (C(1) - c);
  }
};
template <class C>
struct Addcmul {
  C value;
  GANTRY_HD C operator()(C a, C b, C c) const { return a + value * b * c; }
};
template <class C>
struct Addcdiv {
  C value;
  GANTRY_HD C operator()(C a, C b, C c) const { return a + value * (b / c); }
};
template <class C>
struct Clamp {
  GANTRY_HD C operator()(C a, C low, C high) const {
    return math::minimum(math::maximum(a, low), high);
  }
};
// Clamp between numbers: one comparison each, in the form of the processor's instructions. NaN
// stays.
template <class C>
struct ClampToNumbers {
  C low;
  C high;
  GANTRY_HD C operator()(C x) const {
    x = low > x ? low : x;
    return high < x ? high : x;
  }
};
template <class C>
struct Where {
  GANTRY_HD C operator()(std::int32_t condition, C a, C b) const { return condition ? a : b; }
};

}  // namespace functors

namespace detail {

// False, without an effect, if a bound is a tensor or NaN.
template <class Loop>
bool run_clamp_to_numbers(const Loop& loop, const TensorRef& out, const Operand& a,
                          const Operand& b, const Operand& c) {
  if (!b.is_number || !c.is_number) return false;
  bool is_done = false;
  dispatch(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const C low = element_input<T>(b).source.load(0);
    const C high = element_input<T>(c).source.load(0);
    if (low != low || high != high) return;
    loop.template run<T>("ternary", functors::ClampToNumbers<C>{low, high}, out,
                         operand_input<T>(a));
    is_done = true;
  });
  return is_done;
}

}  // namespace detail

template <class Loop>
void run_ternary(const Loop& loop, TernaryOp op, const TensorRef& out, const Operand& a,
                 const Operand& b, const Operand& c, const Scalar& value) {
  if (op == TernaryOp::clamp && detail::run_clamp_to_numbers(loop, out, a, b, c)) return;
  dispatch(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = ComputeType<T>;
    const auto run = [&](auto functor) {
      loop.template run<T>("ternary", functor, out, operand_input<T>(a), operand_input<T>(b),
                           operand_input<T>(c));
    };
    if (op == TernaryOp::clamp) {
      return loop.template run<T>("ternary", functors::Clamp<C>{}, out, operand_input<T>(a),
                                  element_input<T>(b), element_input<T>(c));
    }
    if constexpr (std::is_floating_point_v<C>) {
      switch (op) {
        case TernaryOp::lerp:
          return run(functors::Lerp<C>{});
        case TernaryOp::addcmul:
          return run(functors::Addcmul<C>{number_as<T>(value)});
        case TernaryOp::addcdiv:
          return run(functors::Addcdiv<C>{number_as<T>(value)});
        case TernaryOp::clamp:
          return;
      }
    } else {
      detail::throw_undefined("ternary", static_cast<int>(op), out.dtype);
    }
  });
}

template <class Loop>
void run_where(const Loop& loop, const TensorRef& out, const TensorRef& condition, const Operand& a,
               const Operand& b) {
  dispatch_words(out.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    const auto input = [&](const Operand& operand) {
      return operand.is_number ? number_input<W>(number_word<W>(operand.number, out.dtype))
                               : tensor_input<W>(operand.tensor);
    };
    loop.template run<W>("where", functors::Where<ComputeType<W>>{}, out,
                         tensor_input<bool>(condition), input(a), input(b));
  });
}

}  // namespace gantry::kernels
