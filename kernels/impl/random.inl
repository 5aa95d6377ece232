// Functors of the random kernels: pure functions of (seed, offset, element index), with the same
// bits on every platform.
#pragma once

#include <cstdint>
#include <type_traits>

#include <gantry/kernels/philox.hpp>

#include "kernels/impl/raw.inl"
#include "kernels/math/box_muller.hpp"
#include "kernels/math/math.hpp"
#include "kernels/random/random.hpp"

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

// philox4x32_10 with the keys of its rounds at hand. They are the same for all elements, and a GPU
// reads them as operands of its instructions.
class PhiloxStream {
 public:
  GANTRY_HD explicit PhiloxStream(RandomPosition at) : offset_(at.offset), replay_(at.replay) {
    for (int round = 0; round < 10; ++round) {
      keys_[round][0] =
          static_cast<std::uint32_t>(at.seed) + static_cast<std::uint32_t>(round) * 0x9E3779B9u;
      keys_[round][1] = static_cast<std::uint32_t>(at.seed >> 32) +
                        static_cast<std::uint32_t>(round) * 0xBB67AE85u;
    }
  }

  // True for captured work, whose kernels use resolved() instead.
  [[nodiscard]] GANTRY_HD bool is_replayed() const { return replay_ != nullptr; }
  // The stream at the position that a replay has written.
  [[nodiscard]] GANTRY_HD PhiloxStream resolved() const {
    return PhiloxStream({replay_[0], replay_[1] + offset_});
  }

  GANTRY_HD Philox4 block(std::uint64_t index) const {
    Philox4 c{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
              static_cast<std::uint32_t>(offset_), static_cast<std::uint32_t>(offset_ >> 32)};
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t product0 = static_cast<std::uint64_t>(0xD2511F53u) * c.x;
      const std::uint64_t product1 = static_cast<std::uint64_t>(0xCD9E8D57u) * c.z;
      c = {static_cast<std::uint32_t>(product1 >> 32) ^ c.y ^ keys_[round][0],
           static_cast<std::uint32_t>(product1),
           static_cast<std::uint32_t>(product0 >> 32) ^ c.w ^ keys_[round][1],
           static_cast<std::uint32_t>(product0)};
    }
    return c;
  }

 private:
  std::uint64_t offset_;
  const std::uint64_t* replay_;  // as RandomPosition's
  std::uint32_t keys_[10][2];
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
  PhiloxStream stream;
  C low;
  C high;
  C scale;  // of a draw of kUniformBits<T> bits

  Uniform(RandomPosition position, double from, double to)
      : stream(position),
        low(static_cast<C>(from)),
        high(static_cast<C>(to)),
        scale((high - low) / static_cast<C>(std::uint64_t{1} << kUniformBits<T>)) {}

  // A number that would round up to `high` becomes `low`.
  template <class Draw>
  GANTRY_HD C scaled(Draw draw) const {
    const C value = math::fma(static_cast<C>(draw), scale, low);
    if constexpr (sizeof(T) == sizeof(C)) return value < high ? value : low;
    return static_cast<C>(convert<T>(value)) < high ? value : low;
  }
  GANTRY_HD auto block(std::uint64_t index) const {
    const Philox4 words = stream.block(index);
    if constexpr (std::is_same_v<T, double>) {
      return Pack<C, 2>{
          {scaled(join(words.x, words.y) >> 11), scaled(join(words.z, words.w) >> 11)}};
    } else {
      constexpr int kShift = 32 - kUniformBits<T>;
      return Pack<C, 4>{{scaled(words.x >> kShift), scaled(words.y >> kShift),
                         scaled(words.z >> kShift), scaled(words.w >> kShift)}};
    }
  }
};

template <class C>
struct Normal : BlockFunctor<Normal<C>, C, std::is_same_v<C, double> ? 2 : 4> {
  PhiloxStream stream;
  C mean;
  C deviation;

  Normal(RandomPosition position, double average, double standard_deviation)
      : stream(position),
        mean(static_cast<C>(average)),
        deviation(static_cast<C>(standard_deviation)) {}

  GANTRY_HD auto block(std::uint64_t index) const {
    const Philox4 words = stream.block(index);
    if constexpr (std::is_same_v<C, double>) {
      const auto pair = box_muller(join(words.x, words.y), join(words.z, words.w));
      const C radius = pair.radius * deviation;
      return Pack<C, 2>{{math::fma(radius, pair.x, mean), math::fma(radius, pair.y, mean)}};
    } else {
      const auto front = box_muller(words.x, words.y);
      const auto back = box_muller(words.z, words.w);
      const C near = front.radius * deviation;
      const C far = back.radius * deviation;
      return Pack<C, 4>{{math::fma(near, front.x, mean), math::fma(near, front.y, mean),
                         math::fma(far, back.x, mean), math::fma(far, back.y, mean)}};
    }
  }
};

struct UniformInteger : BlockFunctor<UniformInteger, std::int64_t, 2> {
  PhiloxStream stream;
  std::uint64_t low;
  std::uint64_t range;

  UniformInteger(RandomPosition position, std::int64_t from, std::int64_t to)
      : stream(position),
        low(static_cast<std::uint64_t>(from)),
        range(static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from)) {}

  GANTRY_HD std::int64_t scaled(std::uint64_t draw) const {
    return static_cast<std::int64_t>(low + multiply_high(draw, range));
  }
  GANTRY_HD Pack<std::int64_t, 2> block(std::uint64_t index) const {
    const Philox4 words = stream.block(index);
    return {{scaled(join(words.x, words.y)), scaled(join(words.z, words.w))}};
  }
};

// The 64-bit draws: the sort keys of a permutation.
struct SortKey : BlockFunctor<SortKey, std::uint64_t, 2> {
  PhiloxStream stream;

  explicit SortKey(RandomPosition position) : stream(position) {}

  GANTRY_HD Pack<std::uint64_t, 2> block(std::uint64_t index) const {
    const Philox4 words = stream.block(index);
    return {{join(words.x, words.y), join(words.z, words.w)}};
  }
};

// The word `one` with probability p, else 0. A block gives the draws of four elements.
template <class W>
struct Bernoulli {
  static constexpr bool kSlow = true;
  static constexpr int kSize = 4;
  PhiloxStream stream;
  W one;

  GANTRY_HD Pack<std::uint32_t, kSize> block(std::uint64_t index) const {
    const Philox4 words = stream.block(index);
    return {{words.x, words.y, words.z, words.w}};
  }
  template <class C>
  GANTRY_HD W result(std::uint32_t word, C p) const {
    const double unit = static_cast<double>(word) * (1.0 / 4294967296.0);
    return unit < static_cast<double>(p) ? one : W(0);
  }
  template <class C>
  GANTRY_HD W operator()(C p, std::int64_t i) const {
    const auto draws = block(static_cast<std::uint64_t>(i) / kSize);
    std::uint32_t word = draws.values[0];
    for (int k = 1; k < kSize; ++k) word = i % kSize == k ? draws.values[k] : word;
    return result(word, p);
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
    const functors::Bernoulli<W> draw{functors::PhiloxStream(at), number_word<W>(true, out.dtype)};
    dispatch_floating("bernoulli", probability.dtype, [&](auto probability_tag) {
      const auto p = tensor_input<typename decltype(probability_tag)::type>(probability);
      if (out.is_contiguous() && probability.is_contiguous()) {
        loop.template run_drawn<W>("bernoulli", draw, out, p.source);
      } else {
        loop.template run<W>("bernoulli", draw, out, p, index_input(out));
      }
    });
  });
}

}  // namespace gantry::kernels
