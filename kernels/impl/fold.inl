// Arithmetic of folds, shared by the host and the GPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/convert.hpp"
#include "kernels/fold_plan.hpp"

namespace gantry::kernels {

GANTRY_HD inline bool has_minus_sign(float value) {
  return (::gantry::detail::float_bits(value) >> 31) != 0;
}
GANTRY_HD inline bool has_minus_sign(double value) {
  std::uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits >> 63) != 0;
}

// For positive normal numbers.
GANTRY_HD inline bool is_power_of_two(double value) {
  std::uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits << 12 == 0;
}

// One fold of elements of type T in an accumulator of its compute type.
template <class T, FoldOp op>
struct Folder {
  using Acc = ComputeType<T>;
  using Stored = std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>;
  static constexpr bool kIsFloating = std::is_floating_point_v<Acc>;
  static constexpr bool kIsDefined =
      !kIsFloating || (op != FoldOp::band && op != FoldOp::bor && op != FoldOp::bxor);

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
      if constexpr (op == FoldOp::sum && !std::is_same_v<T, bool>) {
        return static_cast<Acc>(static_cast<Word>(a) + static_cast<Word>(b));
      } else if constexpr (op == FoldOp::prod && !std::is_same_v<T, bool>) {
        return static_cast<Acc>(static_cast<Word>(a) * static_cast<Word>(b));
      } else if constexpr (op == FoldOp::min) {
        return a < b ? a : b;
      } else if constexpr (op == FoldOp::max) {
        return a > b ? a : b;
      } else if constexpr (op == FoldOp::band || op == FoldOp::prod) {
        return a & b;
      } else if constexpr (op == FoldOp::bor || op == FoldOp::sum) {
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
  // The same for the accumulators of a word. To divide by a power of two, as for an average of so
  // many, or by 1, is to multiply by its inverse: the same bits for a fraction of the time.
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
    if constexpr (sizeof(T) == 2) {
      return T(value);  // of any NaN, the canonical one
    } else {
      return canonical(value);
    }
  }
  GANTRY_HD static Acc combine_floats(Acc a, Acc b) {
    if constexpr (op == FoldOp::sum) {
      return a + b;
    } else if constexpr (op == FoldOp::prod) {
      return a * b;
    } else if constexpr (op == FoldOp::min) {
      const bool first = a != a || a < b || (a == b && has_minus_sign(a));
      return first ? a : b;
    } else if constexpr (op == FoldOp::max) {
      const bool first = a != a || a > b || (a == b && !has_minus_sign(a));
      return first ? a : b;
    } else {
      return a;
    }
  }
};

// Calls run(TypeTag<Folder>) for `op`.
template <class T, class Run>
GANTRY_HD void with_fold(FoldOp op, Run&& run) {
  switch (op) {
    case FoldOp::sum:
      return run(TypeTag<Folder<T, FoldOp::sum>>{});
    case FoldOp::prod:
      return run(TypeTag<Folder<T, FoldOp::prod>>{});
    case FoldOp::min:
      return run(TypeTag<Folder<T, FoldOp::min>>{});
    case FoldOp::max:
      return run(TypeTag<Folder<T, FoldOp::max>>{});
    case FoldOp::band:
      return run(TypeTag<Folder<T, FoldOp::band>>{});
    case FoldOp::bor:
      return run(TypeTag<Folder<T, FoldOp::bor>>{});
    case FoldOp::bxor:
      return run(TypeTag<Folder<T, FoldOp::bxor>>{});
  }
}

}  // namespace gantry::kernels
