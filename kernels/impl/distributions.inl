// Functors of the distributions, and their dispatch to a Loop.
#pragma once

#include "kernels/impl/random.inl"
#include "kernels/math/portable_math.hpp"
#include "kernels/random/distributions.hpp"

namespace gantry::kernels {
namespace functors {

// A 53-bit number of a 64-bit draw, on (0, 1): the middle of its step.
GANTRY_HD inline double open_unit(std::uint64_t draw) {
  return (static_cast<double>(draw >> 11) + 0.5) * 1.1102230246251565e-16;
}

// A function of one 64-bit draw (Note [Draws]).
template <class Derived>
struct OfOneDraw : BlockFunctor<Derived, double, 2> {
  PhiloxStream stream;

  explicit OfOneDraw(RandomPosition position) : stream(position) {}

  GANTRY_HD Pack<double, 2> block(std::uint64_t index) const {
    const Philox4 words = stream.block(index);
    const auto& self = static_cast<const Derived&>(*this);
    return {{self.of(join(words.x, words.y)), self.of(join(words.z, words.w))}};
  }
};

struct Exponential : OfOneDraw<Exponential> {
  double rate;

  Exponential(RandomPosition at, double lambda) : OfOneDraw(at), rate(lambda) {}
  GANTRY_HD double of(std::uint64_t draw) const {
    return -kernels::detail::portable_log(open_unit(draw)) / rate;
  }
};

struct Cauchy : OfOneDraw<Cauchy> {
  double median;
  double width;

  Cauchy(RandomPosition at, double middle, double scale)
      : OfOneDraw(at), median(middle), width(scale) {}
  GANTRY_HD double of(std::uint64_t draw) const {
    return median + width * kernels::detail::portable_cauchy(draw >> 11);
  }
};

struct Geometric : OfOneDraw<Geometric> {
  double log_failure;

  Geometric(RandomPosition at, double probability)
      : OfOneDraw(at), log_failure(kernels::detail::portable_log1p(-probability)) {}
  GANTRY_HD double of(std::uint64_t draw) const {
    const double trials = math::ceil(kernels::detail::portable_log(open_unit(draw)) / log_failure);
    return trials < 1 ? 1 : trials;
  }
};

struct LogNormal : BlockFunctor<LogNormal, double, 2> {
  PhiloxStream stream;
  double mean;
  double deviation;

  LogNormal(RandomPosition at, double average, double standard_deviation)
      : stream(at), mean(average), deviation(standard_deviation) {}
  GANTRY_HD Pack<double, 2> block(std::uint64_t index) const {
    const Philox4 words = stream.block(index);
    const auto pair = box_muller(join(words.x, words.y), join(words.z, words.w));
    const double radius = pair.radius * deviation;
    return {{kernels::detail::portable_exp(math::fma(radius, pair.x, mean)),
             kernels::detail::portable_exp(math::fma(radius, pair.y, mean))}};
  }
};

// Note [Draws of Poisson numbers]
// For small rates, one uniform number is mapped through the inverse distribution function. Larger
// rates use Hörmann's transformed rejection (PTRS, 1993), which accepts about nine of ten pairs of
// uniform numbers. Attempt t of element i takes both numbers from Philox block i + t 2^48, which no
// other element has.
struct Poisson {
  static constexpr bool kSlow = true;
  PhiloxStream stream;

  explicit Poisson(RandomPosition at) : stream(at) {}

  template <class C>
  GANTRY_HD double operator()(C element, std::int64_t i) const {
    const auto rate = static_cast<double>(element);
    if (!(rate >= 0)) return (rate - rate) / (rate - rate);  // NaN
    if (rate > 9.0e15) return rate;  // its whole numbers are further apart than its deviation
    return rate < 10 ? small(rate, i) : large(rate, i);
  }

 private:
  GANTRY_HD Philox4 attempt(std::int64_t i, std::uint64_t t) const {
    return stream.block(static_cast<std::uint64_t>(i) + (t << 48));
  }
  GANTRY_HD double small(double rate, std::int64_t i) const {
    const Philox4 words = attempt(i, 0);
    const double unit = open_unit(join(words.x, words.y));
    double term = kernels::detail::portable_exp(-rate);
    double sum = term;
    double k = 0;
    // The sum reaches all but 1e-16 before 100 terms.
    while (unit > sum && k < 100) {
      k += 1;
      term *= rate / k;
      sum += term;
    }
    return k;
  }
  GANTRY_HD double large(double rate, std::int64_t i) const {
    const double root = math::sqrt(rate);
    const double b = 0.931 + 2.53 * root;
    const double a = -0.059 + 0.02483 * b;
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    const double sure = 0.9277 - 3.6224 / (b - 2);
    const double log_rate = kernels::detail::portable_log(rate);
    for (std::uint64_t t = 0; t < 1000; ++t) {
      const Philox4 words = attempt(i, t);
      const double u = open_unit(join(words.x, words.y)) - 0.5;
      const double v = open_unit(join(words.z, words.w));
      const double us = 0.5 - math::fabs(u);
      const double k = math::floor((2 * a / us + b) * u + rate + 0.43);
      if (us >= 0.07 && v <= sure) return k;
      if (k < 0 || (us < 0.013 && v > us)) continue;
      const double left = kernels::detail::portable_log(v * inverse_alpha / (a / (us * us) + b));
      if (left <= k * log_rate - rate - kernels::detail::portable_log_factorial(k)) return k;
    }
    return math::floor(rate);  // after 1000 rejections, which never happens
  }
};

// The first index whose running sum is above a uniform part of the row's total. An index of
// probability 0 has the sum of its predecessor, so it is never the first.
struct Categorical {
  static constexpr bool kSlow = true;
  PhiloxStream stream;
  const double* sums;
  std::int64_t length;   // of a row of sums
  std::int64_t samples;  // of a row of the result

  GANTRY_HD std::int64_t operator()(std::int64_t i) const {
    const Philox4 words = stream.block(static_cast<std::uint64_t>(i) / 2);
    const double unit = open_unit(i % 2 == 0 ? join(words.x, words.y) : join(words.z, words.w));
    const double* row = sums + i / samples * length;
    const double total = row[length - 1];
    const double wanted = unit * total;
    // The product may round up to the total.
    const bool beyond = !(wanted < total);
    std::int64_t first = 0;
    std::int64_t last = length - 1;
    while (first < last) {
      const std::int64_t middle = first + (last - first) / 2;
      if (beyond ? row[middle] >= total : row[middle] > wanted) {
        last = middle;
      } else {
        first = middle + 1;
      }
    }
    return first;
  }
};

}  // namespace functors

// `loop.run<T>(name, functor, out, place)` runs the functor's blocks over the runs of a shard.
template <class Loop>
void run_uniform_shard(const Loop& loop, const TensorRef& out, RandomPosition at,
                       const ShardPlace& place) {
  dispatch_floating("uniform", out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    loop.template run<T>("uniform", functors::Uniform<T>(at, 0, 1), out, place);
  });
}

template <class Loop>
void run_normal_shard(const Loop& loop, const TensorRef& out, RandomPosition at,
                      const ShardPlace& place) {
  dispatch_floating("normal", out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    loop.template run<T>("normal", functors::Normal<ComputeType<T>>(at, 0, 1), out, place);
  });
}

template <class Loop, class Functor>
void run_distribution(const Loop& loop, const char* name, const TensorRef& out,
                      const Functor& functor) {
  dispatch_floating(name, out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    loop.template run_blocks<T>(name, functor, out);
  });
}

template <class Loop>
void run_geometric(const Loop& loop, const TensorRef& out, RandomPosition at, double probability) {
  dispatch(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    loop.template run_blocks<T>("geometric", functors::Geometric(at, probability), out);
  });
}

template <class Loop>
void run_poisson(const Loop& loop, const TensorRef& out, const TensorRef& rates,
                 RandomPosition at) {
  dispatch_floating("poisson", out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    loop.template run<T>("poisson", functors::Poisson(at), out, tensor_input<T>(rates),
                         index_input(out));
  });
}

template <class Loop>
void run_categorical(const Loop& loop, const TensorRef& out, const TensorRef& sums,
                     RandomPosition at) {
  const functors::Categorical functor{functors::PhiloxStream(at),
                                      static_cast<const double*>(sums.data), sums.sizes[1],
                                      out.sizes[1]};
  loop.template run<std::int64_t>("multinomial", functor, out, index_input(out));
}

}  // namespace gantry::kernels
