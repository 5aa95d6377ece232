// Arithmetic of reductions, shared by the host and the GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/reductions/accumulator.hpp"
#include "kernels/reductions/reduce_plan.hpp"

namespace gantry::kernels {

// `op` on elements and on accumulators of type Acc (float, double or int64_t).
//
// combine(neutral(), x) gives the bits of x; for a sum, neutral() is therefore -0, not +0. An
// accumulator that holds neutral() counts as absent in Note [Reduction order].
template <Reduction op, class Acc>
struct Reducer {
  static constexpr Reduction kOp = op;
  static constexpr bool kIsFloating = !std::is_same_v<Acc, std::int64_t>;
  // True if Note [Overflowing chunks] holds for results.
  static constexpr bool kIsRepeated =
      kIsFloating && (op == Reduction::sum || op == Reduction::prod);

  // True if `op` is defined for elements of type In with this accumulator.
  template <class In>
  GANTRY_HD static constexpr bool supports() {
    constexpr bool counts =
        op == Reduction::any || op == Reduction::all || op == Reduction::count_nonzero;
    if constexpr (counts) return !kIsFloating;
    constexpr bool in_is_floating = is_floating_point(dtype_of<In>);
    if constexpr (op == Reduction::norm2 || op == Reduction::sum_abs) {
      return in_is_floating && kIsFloating;
    }
    return in_is_floating == kIsFloating;
  }

  GANTRY_HD static Acc neutral() {
    if constexpr (op == Reduction::prod || op == Reduction::all) {
      return Acc(1);
    } else if constexpr (op == Reduction::min) {
      if constexpr (kIsFloating)
        return static_cast<Acc>(HUGE_VAL);
      else
        return INT64_MAX;
    } else if constexpr (op == Reduction::max) {
      if constexpr (kIsFloating)
        return static_cast<Acc>(-HUGE_VAL);
      else
        return INT64_MIN;
    } else {
      if constexpr (kIsFloating)
        return Acc(-0.0);
      else
        return 0;
    }
  }

  template <class In>
  GANTRY_HD static Acc load(In element) {
    if constexpr (op == Reduction::any || op == Reduction::all || op == Reduction::count_nonzero) {
      if constexpr (is_floating_point(dtype_of<In>)) {
        return static_cast<AccumulatorType<In>>(element) != 0;
      } else {
        return element != In(0);
      }
    } else {
      const Acc value = static_cast<Acc>(element);
      if constexpr (op == Reduction::norm2)
        return value * value;
      else if constexpr (op == Reduction::sum_abs)
        return value <= 0 ? Acc(0) - value : value;
      else
        return value;
    }
  }

  GANTRY_HD static Acc combine(Acc a, Acc b) {
    if constexpr (op == Reduction::prod) {
      return wrapping_multiply(a, b);
    } else if constexpr (op == Reduction::min || op == Reduction::all) {
      if constexpr (kIsFloating)
        return ((a < b) | (a != a)) ? a : b;  // no branch, for vector code
      else
        return a < b ? a : b;
    } else if constexpr (op == Reduction::max || op == Reduction::any) {
      if constexpr (kIsFloating)
        return ((a > b) | (a != a)) ? a : b;
      else
        return a > b ? a : b;
    } else {
      return wrapping_add(a, b);
    }
  }
};

// An operation as a compile-time constant.
template <Reduction op>
struct ReductionTag {
  static constexpr Reduction value = op;
};

// Calls run(ReductionTag) for `op`. The switch stays outside of loops.
template <class Run>
GANTRY_HD void with_reduction(Reduction op, Run&& run) {
  switch (op) {
    case Reduction::sum:
      return run(ReductionTag<Reduction::sum>{});
    case Reduction::prod:
      return run(ReductionTag<Reduction::prod>{});
    case Reduction::min:
      return run(ReductionTag<Reduction::min>{});
    case Reduction::max:
      return run(ReductionTag<Reduction::max>{});
    case Reduction::any:
      return run(ReductionTag<Reduction::any>{});
    case Reduction::all:
      return run(ReductionTag<Reduction::all>{});
    case Reduction::norm2:
      return run(ReductionTag<Reduction::norm2>{});
    case Reduction::sum_abs:
      return run(ReductionTag<Reduction::sum_abs>{});
    case Reduction::count_nonzero:
      return run(ReductionTag<Reduction::count_nonzero>{});
    case Reduction::variance:
    case Reduction::deviation:
    case Reduction::log_sum_exp:
    case Reduction::argmax:
    case Reduction::argmin:
      return;  // no Reducer, whose state is one number
  }
}

// Stores `value`, if Acc and T are both integers (or T is bool) or both floating; else does
// nothing.
template <class T, class Acc>
GANTRY_HD void store_as(void* out, std::int64_t at, Acc value) {
  if constexpr (std::is_same_v<T, bool> ||
                is_floating_point(dtype_of<T>) == is_floating_point(dtype_of<Acc>)) {
    static_cast<T*>(out)[at] = from_accumulator<T>(value);
  }
}

// Divides a floating `value` by `divisor`, rounds it once and stores it.
template <class Acc>
GANTRY_HD void store_reduced(void* out, std::int64_t at, DType dtype, Acc value, double divisor) {
  if constexpr (!std::is_same_v<Acc, std::int64_t>) {
    if (divisor != 1) value = value / static_cast<Acc>(divisor);
  } else {
    (void)divisor;
  }
  switch (dtype) {
    case DType::bool_:
      return store_as<bool>(out, at, value);
    case DType::u8:
      return store_as<std::uint8_t>(out, at, value);
    case DType::i8:
      return store_as<std::int8_t>(out, at, value);
    case DType::i16:
      return store_as<std::int16_t>(out, at, value);
    case DType::i32:
      return store_as<std::int32_t>(out, at, value);
    case DType::i64:
      return store_as<std::int64_t>(out, at, value);
    case DType::f16:
      return store_as<float16>(out, at, value);
    case DType::bf16:
      return store_as<bfloat16>(out, at, value);
    case DType::f32:
      return store_as<float>(out, at, value);
    case DType::f64:
      return store_as<double>(out, at, value);
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::f8e4m3:
    case DType::f8e5m2:
      break;
  }
}

}  // namespace gantry::kernels
