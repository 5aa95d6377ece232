// Functors of comparisons and logic, and their dispatch on a loop skeleton.
#pragma once

#include <type_traits>

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

namespace detail {

// A tensor of type T, or the number in T's compute type: an integer does not wrap, so no u8 equals
// -1; a floating number is rounded to T, so that an f16 of 0.1 equals 0.1.
template <class T>
Input<ElementSource<T>> compared_input(const Operand& operand) {
  if (!operand.is_number) return tensor_input<T>(operand.tensor);
  using C = ComputeType<T>;
  const Scalar& number = operand.number;
  using Rounded = std::conditional_t<std::is_floating_point_v<C>, T, C>;
  const Rounded rounded = number.category() == DTypeCategory::floating
                              ? convert<Rounded>(number.to<double>())
                              : convert<Rounded>(number.to<std::int64_t>());
  return number_input<T>(static_cast<C>(rounded));
}

}  // namespace detail

template <class Loop>
void run_compare(const Loop& loop, CompareOp op, const TensorRef& out, const Operand& a,
                 const Operand& b, DType compute) {
  dispatch(compute, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto left = detail::compared_input<T>(a);
    const auto right = detail::compared_input<T>(b);
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
