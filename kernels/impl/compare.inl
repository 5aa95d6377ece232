// Functors of comparisons and logical ops, and their dispatch to a Loop.
#pragma once

#include "kernels/elementwise/elementwise.hpp"
#include "kernels/input.hpp"

namespace gantry::kernels {
namespace functors {

#define GANTRY_COMPARE_FUNCTOR(Name, expression) \
  struct Name {                                  \
    template <class C>                           \
    GANTRY_HD bool operator()(C a, C b) const {  \
      return expression;                         \
    }                                            \
  };

GANTRY_COMPARE_FUNCTOR(Equal, a == b)
GANTRY_COMPARE_FUNCTOR(NotEqual, a != b)
GANTRY_COMPARE_FUNCTOR(Less, a < b)
GANTRY_COMPARE_FUNCTOR(LessEqual, a <= b)
GANTRY_COMPARE_FUNCTOR(LogicalAnd, a != C(0) && b != C(0))
GANTRY_COMPARE_FUNCTOR(LogicalOr, a != C(0) || b != C(0))
GANTRY_COMPARE_FUNCTOR(LogicalXor, (a != C(0)) != (b != C(0)))
#undef GANTRY_COMPARE_FUNCTOR

}  // namespace functors

template <class Loop>
void run_compare(const Loop& loop, CompareOp op, const TensorRef& out, const Operand& a,
                 const Operand& b, DType compute) {
  dispatch(compute, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto left = element_input<T>(a);
    const auto right = element_input<T>(b);
    const auto run = [&](auto functor) {
      loop.template run<bool>("compare", functor, out, left, right);
    };
    const auto run_swapped = [&](auto functor) {
      loop.template run<bool>("compare", functor, out, right, left);
    };
    switch (op) {
      case CompareOp::eq:
        return run(functors::Equal{});
      case CompareOp::ne:
        return run(functors::NotEqual{});
      case CompareOp::lt:
        return run(functors::Less{});
      case CompareOp::le:
        return run(functors::LessEqual{});
      case CompareOp::gt:
        return run_swapped(functors::Less{});
      case CompareOp::ge:
        return run_swapped(functors::LessEqual{});
      case CompareOp::logical_and:
        return run(functors::LogicalAnd{});
      case CompareOp::logical_or:
        return run(functors::LogicalOr{});
      case CompareOp::logical_xor:
        return run(functors::LogicalXor{});
    }
  });
}

}  // namespace gantry::kernels
