// The definition of reductions, element by element.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gantry/collectives/reduce_op.hpp>
#include <gantry/core/dtype.hpp>

namespace gantry::testing {

using Bytes = std::vector<std::byte>;

inline constexpr ReduceOp kAllOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min,
                                       ReduceOp::max, ReduceOp::avg,  ReduceOp::band,
                                       ReduceOp::bor, ReduceOp::bxor};
inline constexpr DType kAllDTypes[] = {DType::bool_, DType::u8,     DType::i8,    DType::i16,
                                       DType::i32,   DType::i64,    DType::f16,   DType::bf16,
                                       DType::f32,   DType::f64,    DType::u16,   DType::u32,
                                       DType::u64,   DType::f8e4m3, DType::f8e5m2};

/// True if `op` is defined for `dtype`.
inline bool is_defined(ReduceOp op, DType dtype) {
  const bool bitwise = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  return is_floating_point(dtype) ? !bitwise : op != ReduceOp::avg;
}

template <class T>
using Accumulator = std::conditional_t<is_floating_point(dtype_of<T>) && sizeof(T) <= 2, float, T>;

template <class Acc>
Acc combine_floats(ReduceOp op, Acc a, Acc b) {
  const bool b_is_less = b < a || (b == a && std::signbit(b) && !std::signbit(a));
  if (op == ReduceOp::prod) return a * b;
  if (op == ReduceOp::sum || op == ReduceOp::avg) return a + b;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<Acc>::quiet_NaN();
  if (op == ReduceOp::min) return b_is_less ? b : a;
  return b_is_less ? a : b;
}

inline std::int64_t combine_integers(ReduceOp op, std::int64_t a, std::int64_t b) {
  const auto x = static_cast<std::uint64_t>(a);
  const auto y = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return static_cast<std::int64_t>(x + y);
    case ReduceOp::prod:
      return static_cast<std::int64_t>(x * y);
    case ReduceOp::min:
    case ReduceOp::max:
      break;  // they depend on the type
    case ReduceOp::band:
      return a & b;
    case ReduceOp::bor:
      return a | b;
    case ReduceOp::bxor:
      return a ^ b;
  }
  return 0;
}

/// Reduces one element of every rank, in rank order.
template <class T>
T reduce_one(ReduceOp op, const std::vector<T>& values, double scale) {
  if constexpr (is_floating_point(dtype_of<T>)) {
    using Acc = Accumulator<T>;
    const auto load = [&](T value) {
      const Acc wide = static_cast<Acc>(value);
      return scale == 1 ? wide : static_cast<Acc>(wide * static_cast<Acc>(scale));
    };
    Acc result = load(values[0]);
    for (std::size_t i = 1; i < values.size(); ++i) {
      result = combine_floats(op, result, load(values[i]));
    }
    if (op == ReduceOp::avg) result = result / static_cast<Acc>(values.size());
    if (std::isnan(result)) result = std::numeric_limits<Acc>::quiet_NaN();
    return static_cast<T>(result);
  } else if constexpr (std::is_same_v<T, bool>) {
    bool result = values[0];
    for (std::size_t i = 1; i < values.size(); ++i) {
      const bool value = values[i];
      if (op == ReduceOp::sum || op == ReduceOp::max || op == ReduceOp::bor) result |= value;
      if (op == ReduceOp::prod || op == ReduceOp::min || op == ReduceOp::band) result &= value;
      if (op == ReduceOp::bxor) result ^= value;
    }
    return result;
  } else {
    if (op == ReduceOp::min) return *std::min_element(values.begin(), values.end());
    if (op == ReduceOp::max) return *std::max_element(values.begin(), values.end());
    std::int64_t result = static_cast<std::int64_t>(values[0]);
    for (std::size_t i = 1; i < values.size(); ++i) {
      result = static_cast<std::int64_t>(
          static_cast<T>(combine_integers(op, result, static_cast<std::int64_t>(values[i]))));
    }
    return static_cast<T>(result);
  }
}

/// Elements [first, first + count) of the reduction of equally long arrays.
inline Bytes reduce_scalars(ReduceOp op, DType dtype, const std::vector<Bytes>& inputs,
                            std::size_t first, std::size_t count, double scale = 1) {
  Bytes result(count * element_size(dtype));
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<T> values(inputs.size());
      for (std::size_t r = 0; r < inputs.size(); ++r) {
        T value;
        std::memcpy(&value, inputs[r].data() + (first + i) * sizeof(T), sizeof(T));
        values[r] = value;
      }
      const T reduced = reduce_one<T>(op, values, scale);
      std::memcpy(result.data() + i * sizeof(T), &reduced, sizeof(T));
    }
  });
  return result;
}

/// Elements of any value; floats hold NaN, infinities, zeros of both signs and denormal numbers.
inline Bytes random_elements(DType dtype, std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes result(count * element_size(dtype));
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::size_t i = 0; i < count; ++i) {
      T value{};
      if constexpr (std::is_same_v<T, bool>) {
        value = (random() & 1) != 0;
      } else if constexpr (is_floating_point(dtype_of<T>)) {
        const float odd[] = {0.0f,
                             -0.0f,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             1e-7f,
                             6e-8f,
                             -1e-40f};
        const std::uint32_t pick = random() % 64;
        value = static_cast<T>(pick < 8 ? odd[pick]
                                        : std::ldexp(static_cast<float>(random() % 4001) - 2000,
                                                     static_cast<int>(random() % 24) - 16));
      } else {
        const std::uint64_t bits = (static_cast<std::uint64_t>(random()) << 32) | random();
        value = static_cast<T>(bits);
      }
      std::memcpy(result.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return result;
}

}  // namespace gantry::testing
