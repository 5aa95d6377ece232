// The elements of NCCL's types, and their reduction in the simplest form.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <gantry/core/float16.hpp>

#include "compat/nccl/types/api.hpp"

namespace gantry::testing {

/// An 8-bit float of the OCP specification: its bits. Values are read from a table.
template <int kExponentBits, int kMantissaBits>
struct SmallFloat {
  std::uint8_t bits = 0;

  friend bool operator==(SmallFloat, SmallFloat) = default;

  /// The largest finite pattern: e4m3 has no infinity and one NaN, e5m2 has both as IEEE formats.
  static constexpr int kLargest = kMantissaBits == 3 ? 0x7e : 0x7b;
  static const std::array<float, 256>& values() {
    static const std::array<float, 256> table = [] {
      std::array<float, 256> made{};
      constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
      for (int pattern = 0; pattern < 128; ++pattern) {
        const int exponent = pattern >> kMantissaBits;
        const int fraction = pattern & ((1 << kMantissaBits) - 1);
        const int whole = exponent == 0 ? fraction : fraction + (1 << kMantissaBits);
        float value =
            std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - kBias - kMantissaBits);
        if (pattern > kLargest) value = std::numeric_limits<float>::quiet_NaN();
        if (kMantissaBits == 2 && pattern == 0x7c) value = std::numeric_limits<float>::infinity();
        made[static_cast<std::size_t>(pattern)] = value;
        made[static_cast<std::size_t>(pattern + 128)] = -value;
      }
      return made;
    }();
    return table;
  }
  explicit operator float() const { return values()[bits]; }
  /// The nearest finite number, of two equally near ones the even pattern. Precondition: no NaN.
  static SmallFloat nearest(float value) {
    const float wanted = std::fabs(value);
    const auto end = values().begin() + kLargest + 1;
    const auto above = std::lower_bound(values().begin(), end, wanted);
    int best = static_cast<int>(above - values().begin());
    if (above == end) {
      best = kLargest;
    } else if (above != values().begin()) {
      const double up = static_cast<double>(*above) - static_cast<double>(wanted);
      const double down = static_cast<double>(wanted) - static_cast<double>(*std::prev(above));
      if (down < up || (down == up && best % 2 != 0)) --best;
    }
    return {static_cast<std::uint8_t>(best | (std::signbit(value) ? 0x80 : 0))};
  }
};
using E4m3 = SmallFloat<4, 3>;
using E5m2 = SmallFloat<5, 2>;

/// Calls `with` for each type of NCCL's: its number, its name, and a value of its elements' type.
template <class With>
void for_each_type(With with) {
  with(ncclInt8, "i8", std::int8_t{});
  with(ncclUint8, "u8", std::uint8_t{});
  with(ncclInt32, "i32", std::int32_t{});
  with(ncclUint32, "u32", std::uint32_t{});
  with(ncclInt64, "i64", std::int64_t{});
  with(ncclUint64, "u64", std::uint64_t{});
  with(ncclFloat16, "f16", float16{});
  with(ncclFloat32, "f32", float{});
  with(ncclFloat64, "f64", double{});
  with(ncclBfloat16, "bf16", bfloat16{});
  with(ncclFloat8e4m3, "f8e4m3", E4m3{});
  with(ncclFloat8e5m2, "f8e5m2", E5m2{});
}

/// The type in which elements of T are added: f32 for elements of 16 and 8 bits.
template <class T>
using Accumulator = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
T rounded(Accumulator<T> value) {
  if constexpr (std::is_same_v<T, E4m3> || std::is_same_v<T, E5m2>)
    return T::nearest(value);
  else
    return T(value);
}

/// Elements of rank `rank`: all bits for whole numbers, finite numbers of a size that all have.
template <class T>
std::vector<T> elements_of(int rank, std::size_t count) {
  std::mt19937_64 random(1000 + static_cast<std::uint64_t>(rank));
  std::vector<T> elements(count);
  for (T& element : elements) {
    const std::uint64_t bits = random();
    if constexpr (std::is_integral_v<T>) {
      element = static_cast<T>(bits);
    } else if constexpr (std::is_same_v<T, E4m3> || std::is_same_v<T, E5m2>) {
      element.bits = static_cast<std::uint8_t>(bits % (T::kLargest + 1) | (bits >> 32 & 0x80));
    } else if (bits >> 60 == 0) {
      element = static_cast<T>(bits % 2 == 0 ? 0.0f : -0.0f);
    } else {
      element = static_cast<T>((static_cast<float>(bits % 16'000'000) - 8e6f) / 1.7e6f);
    }
  }
  return elements;
}

/// True if min() takes `a`. -0 is less than 0.
template <class A>
bool is_less(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (a == b) return std::signbit(a) && !std::signbit(b);
  }
  return a < b;
}

/// One step of a reduction. Whole numbers wrap.
template <class A>
A combined(ncclRedOp_t op, A a, A b) {
  if (op == ncclMin) return is_less(b, a) ? b : a;
  if (op == ncclMax) return is_less(a, b) ? b : a;
  if constexpr (std::is_integral_v<A>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<A>(op == ncclProd ? x * y : x + y);
  } else {
    return op == ncclProd ? a * b : a + b;
  }
}

/// The definition: inputs are combined in rank order, and the result is rounded once.
template <class T>
std::vector<T> reduced(ncclRedOp_t op, const std::vector<std::vector<T>>& inputs) {
  using A = Accumulator<T>;
  std::vector<T> results(inputs.front().size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    auto sum = static_cast<A>(inputs[0][i]);
    for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
      sum = combined(op, sum, static_cast<A>(inputs[rank][i]));
    }
    if (op == ncclAvg) sum = static_cast<A>(sum / static_cast<A>(inputs.size()));
    results[i] = rounded<T>(sum);
  }
  return results;
}

/// Elements times a factor, each rounded.
template <class T>
std::vector<T> multiplied(std::vector<T> elements, T factor) {
  using A = Accumulator<T>;
  for (T& element : elements) {
    element = rounded<T>(combined(ncclProd, static_cast<A>(element), static_cast<A>(factor)));
  }
  return elements;
}

}  // namespace gantry::testing
