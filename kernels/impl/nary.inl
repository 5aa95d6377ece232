// Arithmetic of n-ary elementwise operations, shared by the host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/convert.hpp"
#include "kernels/peers/nary_plan.hpp"

namespace gantry::kernels {

GANTRY_HD inline bool has_minus_sign(float value) {
  return (::gantry::detail::float_bits(value) >> 31) != 0;
}
GANTRY_HD inline bool has_minus_sign(double value) {
  std::uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits >> 63) != 0;
}

// Precondition: `value` is a positive normal number.
GANTRY_HD inline bool is_power_of_two(double value) {
  std::uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits << 12 == 0;
}

// `op` on elements of type T, accumulated in T's compute type.
template <class T, NaryOp op>
struct NaryFunctor {
  using Acc = ComputeType<T>;
  using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
  static constexpr bool kIsFloating = std::is_floating_point_v<Acc>;
  static constexpr bool kIsUnsigned = op == NaryOp::min_unsigned || op == NaryOp::max_unsigned;
  static constexpr bool kIsDefined =
      kIsUnsigned   ? std::is_signed_v<T> && !kIsFloating && sizeof(T) >= 2
      : kIsFloating ? op != NaryOp::band && op != NaryOp::bor && op != NaryOp::bxor
                    : true;

  GANTRY_HD static Acc load(Stored element) {
    if constexpr (std::is_same_v<T, bool>)
      return element != 0;
    else
      return static_cast<Acc>(element);
  }

  GANTRY_HD static Acc combine(Acc a, Acc b) {
    if constexpr (kIsFloating) {
      return combine_floats(a, b);
    } else {
      using Word = std::make_unsigned_t<Acc>;
      if constexpr (op == NaryOp::sum && !std::is_same_v<T, bool>) {
        return static_cast<Acc>(static_cast<Word>(a) + static_cast<Word>(b));
      } else if constexpr (op == NaryOp::prod && !std::is_same_v<T, bool>) {
        return static_cast<Acc>(static_cast<Word>(a) * static_cast<Word>(b));
      } else if constexpr (op == NaryOp::min) {
        return a < b ? a : b;
      } else if constexpr (op == NaryOp::max) {
        return a > b ? a : b;
      } else if constexpr (op == NaryOp::min_unsigned) {
        return static_cast<Word>(a) < static_cast<Word>(b) ? a : b;
      } else if constexpr (op == NaryOp::max_unsigned) {
        return static_cast<Word>(a) > static_cast<Word>(b) ? a : b;
      } else if constexpr (op == NaryOp::band || op == NaryOp::prod) {
        return a & b;
      } else if constexpr (op == NaryOp::bor || op == NaryOp::sum) {
        return a | b;
      } else {
        return a ^ b;
      }
    }
  }

  GANTRY_HD static Stored finish(Acc value, double divisor) {
    if constexpr (kIsFloating) {
      if (divisor != 1) value = value / static_cast<Acc>(divisor);
      return rounded(value);
    } else {
      return static_cast<Stored>(value);
    }
  }
  // Finishes the accumulators of a word. A divisor that is a power of two (or 1) is multiplied by
  // its inverse instead: the bits are the same, and division is slow.
  template <int V>
  GANTRY_HD static void finish(const Acc (&values)[V], double divisor, Stored (&elements)[V]) {
    if constexpr (kIsFloating) {
      if (is_power_of_two(divisor)) {
        const auto inverse = static_cast<Acc>(1 / divisor);
        for (int i = 0; i < V; ++i) elements[i] = rounded(values[i] * inverse);
        return;
      }
    }
    for (int i = 0; i < V; ++i) elements[i] = finish(values[i], divisor);
  }

 private:
  GANTRY_HD static T rounded(Acc value) {
    if constexpr (kIsNarrowFloat<T>) {
      return T(value);  // makes NaN canonical
    } else {
      return canonical(value);
    }
  }
  GANTRY_HD static Acc combine_floats(Acc a, Acc b) {
    if constexpr (op == NaryOp::sum) {
      return a + b;
    } else if constexpr (op == NaryOp::prod) {
      return a * b;
    } else if constexpr (op == NaryOp::min) {
      const bool first = a != a || a < b || (a == b && has_minus_sign(a));
      return first ? a : b;
    } else if constexpr (op == NaryOp::max) {
      const bool first = a != a || a > b || (a == b && !has_minus_sign(a));
      return first ? a : b;
    } else {
      return a;
    }
  }
};

// Calls run(TypeTag<NaryFunctor<T, op>>).
template <class T, class Run>
GANTRY_HD void with_nary_functor(NaryOp op, Run&& run) {
  switch (op) {
    case NaryOp::sum:
      return run(TypeTag<NaryFunctor<T, NaryOp::sum>>{});
    case NaryOp::prod:
      return run(TypeTag<NaryFunctor<T, NaryOp::prod>>{});
    case NaryOp::min:
      return run(TypeTag<NaryFunctor<T, NaryOp::min>>{});
    case NaryOp::max:
      return run(TypeTag<NaryFunctor<T, NaryOp::max>>{});
    case NaryOp::band:
      return run(TypeTag<NaryFunctor<T, NaryOp::band>>{});
    case NaryOp::bor:
      return run(TypeTag<NaryFunctor<T, NaryOp::bor>>{});
    case NaryOp::bxor:
      return run(TypeTag<NaryFunctor<T, NaryOp::bxor>>{});
    case NaryOp::min_unsigned:
      return run(TypeTag<NaryFunctor<T, NaryOp::min_unsigned>>{});
    case NaryOp::max_unsigned:
      return run(TypeTag<NaryFunctor<T, NaryOp::max_unsigned>>{});
  }
}

}  // namespace gantry::kernels
