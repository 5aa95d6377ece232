#include "tools/bench/pattern.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>

namespace gantry::bench {

namespace {

template <class T>
constexpr bool kIsNarrow = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> ||
                           std::is_same_v<T, float8_e4m3> || std::is_same_v<T, float8_e5m2>;

// The type that a reduction computes with: f32 for floats of 8 and 16 bits, else the type itself.
template <class T>
using Accumulator = std::conditional_t<kIsNarrow<T>, float, T>;

template <class T>
T random_element(std::mt19937_64& random) {
  if constexpr (std::is_same_v<T, bool>) {
    return (random() & 1) != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random());
  } else {
    // Magnitudes of 2^-6 to 4 with all bits of the fraction in use: sums round, products last.
    const double magnitude = std::ldexp(1 + static_cast<double>(random() >> 12) * 0x1p-52,
                                        static_cast<int>(random() % 8) - 6);
    const double value = (random() & 1) != 0 ? magnitude : -magnitude;
    return T(static_cast<Accumulator<T>>(value));
  }
}

template <class A>
A combine(ReduceOp op, A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        return a + b;
      case ReduceOp::prod:
        return a * b;
      case ReduceOp::min:
        return b < a ? b : a;
      case ReduceOp::max:
        return b > a ? b : a;
      case ReduceOp::band:
      case ReduceOp::bor:
      case ReduceOp::bxor:
        return a;  // not defined; refused by the library
    }
  } else if constexpr (std::is_same_v<A, bool>) {
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
      case ReduceOp::max:
      case ReduceOp::bor:
        return a || b;
      case ReduceOp::prod:
      case ReduceOp::min:
      case ReduceOp::band:
        return a && b;
      case ReduceOp::bxor:
        return a != b;
    }
  } else {
    const auto wide_a = static_cast<std::uint64_t>(a);
    const auto wide_b = static_cast<std::uint64_t>(b);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        return static_cast<A>(wide_a + wide_b);
      case ReduceOp::prod:
        return static_cast<A>(wide_a * wide_b);
      case ReduceOp::min:
        return std::min(a, b);
      case ReduceOp::max:
        return std::max(a, b);
      case ReduceOp::band:
        return static_cast<A>(wide_a & wide_b);
      case ReduceOp::bor:
        return static_cast<A>(wide_a | wide_b);
      case ReduceOp::bxor:
        return static_cast<A>(wide_a ^ wide_b);
    }
  }
  __builtin_unreachable();
}

template <class T>
T element_at(const Pattern& pattern, std::int64_t i) {
  T element;
  std::memcpy(&element, pattern.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return element;
}

template <class T>
void put(Pattern& pattern, std::int64_t i, T element) {
  std::memcpy(pattern.data() + static_cast<std::size_t>(i) * sizeof(T), &element, sizeof(T));
}

// Calls run(position in the period, position in the message, elements) for runs inside one period.
template <class Run>
void for_each_run(std::int64_t first, std::int64_t count, Run run) {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = (first + done) % kPatternPeriod;
    const std::int64_t length = std::min(count - done, kPatternPeriod - at);
    run(static_cast<std::size_t>(at), static_cast<std::size_t>(done),
        static_cast<std::size_t>(length));
    done += length;
  }
}

}  // namespace

Pattern source_pattern(int rank, DType dtype) {
  Pattern pattern(static_cast<std::size_t>(kPatternPeriod) * element_size(dtype));
  std::mt19937_64 random(0x67616e747279 + static_cast<std::uint64_t>(rank));
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < kPatternPeriod; ++i) put(pattern, i, random_element<T>(random));
  });
  return pattern;
}

Pattern reduced_pattern(int ranks, DType dtype, ReduceOp op) {
  std::vector<Pattern> sources;
  for (int rank = 0; rank < ranks; ++rank) sources.push_back(source_pattern(rank, dtype));
  Pattern result = sources.front();
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    for (std::int64_t i = 0; i < kPatternPeriod; ++i) {
      auto value = static_cast<A>(element_at<T>(sources.front(), i));
      for (std::size_t rank = 1; rank < sources.size(); ++rank) {
        value = combine<A>(op, value, static_cast<A>(element_at<T>(sources[rank], i)));
      }
      if constexpr (std::is_floating_point_v<A>) {
        if (op == ReduceOp::avg) value = value / static_cast<A>(ranks);
      }
      put(result, i, static_cast<T>(value));
    }
  });
  return result;
}

void write_pattern(const Pattern& pattern, DType dtype, std::int64_t first, std::int64_t count,
                   std::byte* out) {
  const std::size_t element = element_size(dtype);
  for_each_run(first, count, [&](std::size_t at, std::size_t done, std::size_t length) {
    std::memcpy(out + done * element, pattern.data() + at * element, length * element);
  });
}

std::int64_t count_wrong(const Pattern& pattern, DType dtype, std::int64_t first,
                         std::int64_t count, const std::byte* got) {
  const std::size_t element = element_size(dtype);
  std::int64_t wrong = 0;
  for_each_run(first, count, [&](std::size_t at, std::size_t done, std::size_t length) {
    const std::byte* expected = pattern.data() + at * element;
    const std::byte* actual = got + done * element;
    if (std::memcmp(expected, actual, length * element) == 0) return;
    for (std::size_t i = 0; i < length; ++i) {
      wrong += std::memcmp(expected + i * element, actual + i * element, element) != 0 ? 1 : 0;
    }
  });
  return wrong;
}

std::int64_t count_far(const Pattern& pattern, DType dtype, std::int64_t first, std::int64_t count,
                       const std::byte* got, double tolerance) {
  std::int64_t far = 0;
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = Accumulator<T>;
    for (std::int64_t i = 0; i < count; ++i) {
      T actual;
      std::memcpy(&actual, got + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
      const T expected = element_at<T>(pattern, (first + i) % kPatternPeriod);
      const double difference = static_cast<double>(static_cast<A>(actual)) -
                                static_cast<double>(static_cast<A>(expected));
      if (!(std::abs(difference) <= tolerance)) ++far;
    }
  });
  return far;
}

double order_tolerance(int ranks, DType dtype, ReduceOp op) {
  const bool rounds = op == ReduceOp::sum || op == ReduceOp::prod || op == ReduceOp::avg;
  if (!rounds || !is_floating_point(dtype)) return 0;
  const int fraction_bits = dispatch_any(dtype, [](auto tag) {
    return std::numeric_limits<typename decltype(tag)::type>::digits - 1;
  });
  // Every partial result may be rounded once per rank; none is greater than these.
  const double greatest = op == ReduceOp::prod ? std::pow(4.0, ranks) : 4.0 * ranks;
  return ranks * greatest * std::ldexp(1.0, -fraction_bits - 1);
}

}  // namespace gantry::bench
