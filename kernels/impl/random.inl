// Functors of the random kernels: pure functions of (seed, offset, element index), with the same
// bits on every platform.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gantry/kernels/philox.hpp>

#include "kernels/impl/box_muller.hpp"
#include "kernels/impl/math.hpp"
#include "kernels/impl/raw.inl"
#include "kernels/random.hpp"

namespace gantry::kernels {
namespace functors {

// Note [Draws]
// The 32-bit draw of element i is word i % 4 of Philox block i / 4. The 64-bit draw of element i
// has the words 2 (i % 2), low, and 2 (i % 2) + 1, high, of Philox block i / 2. A functor's block()
// computes the kSize elements of one Philox block; operator() returns one of them.
template <class Derived, class C, int V>
struct BlockFunctor {
  static constexpr int kSize = V;
  using Value = C;

  GANTRY_HD C operator()(std::int64_t i) const {
    const Pack<C, V> all =
        static_cast<const Derived&>(*this).block(static_cast<std::uint64_t>(i) / V);
    C result = all.values[0];
    for (int k = 1; k < V; ++k) result = i % V == k ? all.values[k] : result;
    return result;
  }
};

GANTRY_HD inline std::uint64_t join(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

// The upper 64 bits of a 128-bit product.
GANTRY_HD inline std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xffffffffu, a_high = a >> 32;
  const std::uint64_t b_low = b & 0xffffffffu, b_high = b >> 32;
  const std::uint64_t middle = a_high * b_low + (a_low * b_low >> 32);
  const std::uint64_t carry = (middle & 0xffffffffu) + a_low * b_high;
  return a_high * b_high + (middle >> 32) + (carry >> 32);
}

// Random bits of a uniform number: as many as T represents on [0, 1), so that none rounds up to 1.
template <class T>
inline constexpr int kUniformBits = std::is_same_v<T, double>    ? 53
                                    : std::is_same_v<T, float>   ? 24
                                    : std::is_same_v<T, float16> ? 11
                                                                 : 8;

template <class T>
struct Uniform : BlockFunctor<Uniform<T>, ComputeType<T>, std::is_same_v<T, double> ? 2 : 4> {
  using C = ComputeType<T>;
  RandomPosition at;
  C low;
  C high;

  Uniform(RandomPosition position, double from, double to)
      : at(position), low(static_cast<C>(from)), high(static_cast<C>(to)) {}

  // A number that would round up to `high` becomes `low`.
  GANTRY_HD C scaled(C unit) const {
    const C value = low + unit * (high - low);
    return static_cast<C>(convert<T>(value)) < high ? value : low;
  }
  GANTRY_HD auto block(std::uint64_t index) const {
    const Philox4 words = philox4x32_10(at.seed, index, at.offset);
    if constexpr (std::is_same_v<T, double>) {
      const double step = 1.0 / 9007199254740992.0;  // 2^-53
      return Pack<C, 2>{{scaled(static_cast<double>(join(words.x, words.y) >> 11) * step),
                         scaled(static_cast<double>(join(words.z, words.w) >> 11) * step)}};
    } else {
      constexpr int kShift = 32 - kUniformBits<T>;
      const float step = 1.0f / static_cast<float>(1u << kUniformBits<T>);
      return Pack<C, 4>{{scaled(static_cast<float>(words.x >> kShift) * step),
                         scaled(static_cast<float>(words.y >> kShift) * step),
                         scaled(static_cast<float>(words.z >> kShift) * step),
                         scaled(static_cast<float>(words.w >> kShift) * step)}};
    }
  }
};

template <class C>
struct Normal : BlockFunctor<Normal<C>, C, std::is_same_v<C, double> ? 2 : 4> {
  RandomPosition at;
  C mean;
  C deviation;

  Normal(RandomPosition position, double average, double standard_deviation)
      : at(position),
        mean(static_cast<C>(average)),
        deviation(static_cast<C>(standard_deviation)) {}

  GANTRY_HD C scaled(C standard) const { return mean + deviation * standard; }
  GANTRY_HD auto block(std::uint64_t index) const {
    const Philox4 words = philox4x32_10(at.seed, index, at.offset);
    if constexpr (std::is_same_v<C, double>) {
      const auto pair = box_muller(join(words.x, words.y), join(words.z, words.w));
      return Pack<C, 2>{{scaled(pair.first), scaled(pair.second)}};
    } else {
      const auto front = box_muller(words.x, words.y);
      const auto back = box_muller(words.z, words.w);
      return Pack<C, 4>{
          {scaled(front.first), scaled(front.second), scaled(back.first), scaled(back.second)}};
    }
  }
};

struct UniformInteger : BlockFunctor<UniformInteger, std::int64_t, 2> {
  RandomPosition at;
  std::uint64_t low;
  std::uint64_t range;

  UniformInteger(RandomPosition position, std::int64_t from, std::int64_t to)
      : at(position),
        low(static_cast<std::uint64_t>(from)),
        range(static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from)) {}

  GANTRY_HD std::int64_t scaled(std::uint64_t draw) const {
    return static_cast<std::int64_t>(low + multiply_high(draw, range));
  }
  GANTRY_HD Pack<std::int64_t, 2> block(std::uint64_t index) const {
    const Philox4 words = philox4x32_10(at.seed, index, at.offset);
    return {{scaled(join(words.x, words.y)), scaled(join(words.z, words.w))}};
  }
};

// The 64-bit draws: the sort keys of a permutation.
struct SortKey : BlockFunctor<SortKey, std::uint64_t, 2> {
  RandomPosition at;

  explicit SortKey(RandomPosition position) : at(position) {}

  GANTRY_HD Pack<std::uint64_t, 2> block(std::uint64_t index) const {
    const Philox4 words = philox4x32_10(at.seed, index, at.offset);
    return {{join(words.x, words.y), join(words.z, words.w)}};
  }
};

// The word `one` with probability p, else 0.
template <class W>
struct Bernoulli {
  static constexpr bool kSlow = true;
  RandomPosition at;
  W one;

  template <class C>
  GANTRY_HD W operator()(C p, std::int64_t i) const {
    const Philox4 words = philox4x32_10(at.seed, static_cast<std::uint64_t>(i) / 4, at.offset);
    const int k = static_cast<int>(i % 4);
    const std::uint32_t word = k == 0 ? words.x : k == 1 ? words.y : k == 2 ? words.z : words.w;
    const double unit = static_cast<double>(word) * (1.0 / 4294967296.0);
    return unit < static_cast<double>(p) ? one : W(0);
  }
};

}  // namespace functors

template <class Loop>
void run_uniform(const Loop& loop, const TensorRef& out, RandomPosition at, double low,
                 double high) {
  dispatch_floating("uniform", out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    loop.template run_blocks<T>("uniform", functors::Uniform<T>(at, low, high), out);
  });
}

template <class Loop>
void run_normal(const Loop& loop, const TensorRef& out, RandomPosition at, double mean,
                double standard_deviation) {
  dispatch_floating("normal", out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    loop.template run_blocks<T>(
        "normal", functors::Normal<ComputeType<T>>(at, mean, standard_deviation), out);
  });
}

template <class Loop>
void run_randint(const Loop& loop, const TensorRef& out, RandomPosition at, std::int64_t low,
                 std::int64_t high) {
  dispatch(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    loop.template run_blocks<T>("randint", functors::UniformInteger(at, low, high), out);
  });
}

template <class Loop>
void run_bernoulli(const Loop& loop, const TensorRef& out, const TensorRef& probability,
                   RandomPosition at) {
  dispatch_words(out.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    const functors::Bernoulli<W> draw{at, number_word<W>(true, out.dtype)};
    dispatch_floating("bernoulli", probability.dtype, [&](auto probability_tag) {
      loop.template run<W>("bernoulli", draw, out,
                           tensor_input<typename decltype(probability_tag)::type>(probability),
                           index_input(out));
    });
  });
}

}  // namespace gantry::kernels
