#include <gantry/tensor/distributions.hpp>
#include <gantry/tensor/sorting.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/kernels/philox.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "kernels/math/portable_math.hpp"
#include "tensor/random/draws.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using detail::cauchy_;
using detail::exponential_;
using detail::geometric_;
using detail::log_normal_;

constexpr std::uint64_t kSeed = 17;

// The 64-bit draw of element i of the first draw of a generator.
std::uint64_t draw_of(std::int64_t i) {
  const Philox4 words = philox4x32_10(kSeed, static_cast<std::uint64_t>(i) / 2, 0);
  return i % 2 == 0 ? static_cast<std::uint64_t>(words.y) << 32 | words.x
                    : static_cast<std::uint64_t>(words.w) << 32 | words.z;
}
double unit_of(std::int64_t i) {
  return (static_cast<double>(draw_of(i) >> 11) + 0.5) * std::ldexp(1.0, -53);
}

struct Fill {
  std::string name;
  std::function<const Tensor&(const Tensor&, GeneratorRef)> fill;
};

std::vector<Fill> fills() {
  return {
      {"exponential",
       [](const Tensor& t, GeneratorRef g) -> const Tensor& { return exponential_(t, 1.5, g); }},
      {"cauchy",
       [](const Tensor& t, GeneratorRef g) -> const Tensor& { return cauchy_(t, 2, 0.5, g); }},
      {"log_normal",
       [](const Tensor& t, GeneratorRef g) -> const Tensor& {
         return log_normal_(t, 0.5, 0.75, g);
       }},
      {"geometric",
       [](const Tensor& t, GeneratorRef g) -> const Tensor& { return geometric_(t, 0.2, g); }}};
}

TEST(PortableMathTest, AgreesWithTheHostsLibrary) {
  using namespace kernels::detail;
  for (double x = -745; x < 709.5; x += 0.37) {
    EXPECT_NEAR(portable_exp(x) / std::exp(x), 1, x < -708 ? 0.3 : 4e-16) << x;
  }
  EXPECT_EQ(portable_exp(0), 1);
  EXPECT_EQ(portable_exp(-1e9), 0);
  EXPECT_EQ(portable_exp(1e9), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(portable_exp(std::nan(""))));
  for (double p = 1e-18; p < 1; p *= 1.7) {
    EXPECT_NEAR(portable_log1p(-p) / std::log1p(-p), 1, 4e-16) << p;
  }
  for (double k = 0; k < 1e12; k = std::floor(k * 1.3) + 1) {
    EXPECT_NEAR(portable_log_factorial(k), std::lgamma(k + 1), 1e-14 * std::lgamma(k + 1) + 1e-14);
  }
  for (const std::uint64_t draw : {std::uint64_t{0}, std::uint64_t{1} << 51, std::uint64_t{1} << 52,
                                   (std::uint64_t{1} << 53) - 1, std::uint64_t{12345678901234}}) {
    const long double turn = (static_cast<long double>(draw) + 0.5L) / (1LL << 53) - 0.5L;
    // Near a right angle, pi itself is not exact enough.
    const long double rest = 0.5L - std::abs(turn);
    const long double expected =
        rest < 0.25L ? std::copysign(1 / std::tan(std::numbers::pi_v<long double> * rest), turn)
                     : std::tan(std::numbers::pi_v<long double> * turn);
    EXPECT_NEAR(static_cast<double>(portable_cauchy(draw) / expected), 1, 1e-15) << draw;
  }
}

class DistributionsTest : public testing::PlacedTest {
 protected:
  Generator generator() const { return Generator(device_, kSeed); }
  Tensor filled(const Fill& row, const Shape& sizes, DType dtype) const {
    Generator source = generator();
    const Tensor result = empty(sizes, options(dtype));
    EXPECT_EQ(&row.fill(result, &source), &result);
    EXPECT_EQ(source.offset(), 1u);
    return result;
  }
};

GANTRY_TEST_PLACES(DistributionsTest);

TEST_P(DistributionsTest, ElementsAreFunctionsOfTheirDraws) {
  const std::vector<Fill> rows = fills();
  constexpr std::int64_t kCount = 1001;
  const auto exponential = filled(rows[0], {kCount}, f64).to_vector<double>();
  const auto cauchy = filled(rows[1], {kCount}, f64).to_vector<double>();
  const auto geometric = filled(rows[3], {kCount}, i64).to_vector<std::int64_t>();
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const double u = unit_of(i);
    EXPECT_NEAR(exponential[k], -std::log(u) / 1.5, 1e-14);
    const double tangent = std::tan(std::numbers::pi * (u - 0.5));
    EXPECT_NEAR(cauchy[k], 2 + 0.5 * tangent, 1e-12 * (1 + tangent * tangent));
    EXPECT_EQ(geometric[k], std::max(1.0, std::ceil(std::log(u) / std::log1p(-0.2))));
  }
  Generator source = generator();
  const auto normals = on(empty({kCount}, f64)).normal_(0.5, 0.75, source).to_vector<double>();
  const auto log_normals = filled(rows[2], {kCount}, f64).to_vector<double>();
  for (std::size_t i = 0; i < normals.size(); ++i) {
    EXPECT_NEAR(log_normals[i] / std::exp(normals[i]), 1, 4e-16);
  }
}

TEST_P(DistributionsTest, TheNumbersDoNotDependOnTheLayoutOrTheDType) {
  for (const Fill& row : fills()) {
    SCOPED_TRACE(row.name);
    const Tensor wide = filled(row, {37, 5}, f64);
    for (const DType dtype : {f16, bf16, f32}) {
      EXPECT_TRUE(filled(row, {37, 5}, dtype).equal(wide.to(dtype)));
    }
    const Tensor columns = on(empty({5, 37}, f64)).t();
    Generator source = generator();
    row.fill(columns, &source);
    EXPECT_TRUE(columns.equal(wide));
    EXPECT_EQ(filled(row, {0, 3}, f32).numel(), 0);
  }
  const Tensor wide = filled(fills()[3], {1000}, i64);
  EXPECT_TRUE(filled(fills()[3], {1000}, u8).equal(wide.to(u8)));
  Generator source = generator();
  const Tensor rare = geometric_(on(empty({64}, i8)), 1e-9, &source);
  EXPECT_TRUE(rare.eq(127).all().item<bool>());  // saturated
}

// The largest distance between the distribution of the sample and `cdf`, times sqrt(n).
double kolmogorov(std::vector<double> sample, const std::function<double(double)>& cdf) {
  std::sort(sample.begin(), sample.end());
  const auto n = static_cast<double>(sample.size());
  double largest = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const double p = cdf(sample[i]);
    largest = std::max({largest, std::abs(p - static_cast<double>(i) / n),
                        std::abs(p - static_cast<double>(i + 1) / n)});
  }
  return largest * std::sqrt(n);
}

TEST_P(DistributionsTest, FollowTheirDistributions) {
  const std::vector<Fill> rows = fills();
  const Shape many{100000};
  EXPECT_LT(kolmogorov(filled(rows[0], many, f32).to_vector<double>(),
                       [](double x) { return 1 - std::exp(-1.5 * x); }),
            1.5);
  EXPECT_LT(kolmogorov(filled(rows[1], many, f32).to_vector<double>(),
                       [](double x) { return 0.5 + std::atan((x - 2) / 0.5) / std::numbers::pi; }),
            1.5);
  EXPECT_LT(kolmogorov(filled(rows[2], many, f32).to_vector<double>(),
                       [](double x) {
                         return 0.5 * std::erfc(-(std::log(x) - 0.5) / 0.75 / std::sqrt(2.0));
                       }),
            1.5);
}

// Pearson's statistic over the degrees of freedom, of counts whose expected number is at least 10.
double pearson(const std::vector<double>& sample, const std::function<double(double)>& pmf,
               double first) {
  std::vector<double> counts;
  for (const double x : sample) {
    const auto k = static_cast<std::size_t>(x - first);
    if (k >= counts.size()) counts.resize(k + 1, 0);
    ++counts[k];
  }
  double statistic = 0;
  int cells = 0;
  const auto n = static_cast<double>(sample.size());
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const double expected = n * pmf(first + static_cast<double>(k));
    if (expected < 10) continue;
    statistic += (counts[k] - expected) * (counts[k] - expected) / expected;
    ++cells;
  }
  return statistic / (cells - 1);
}

TEST_P(DistributionsTest, GeometricCountsTrials) {
  const auto sample = filled(fills()[3], {100000}, i64).to_vector<double>();
  EXPECT_EQ(*std::min_element(sample.begin(), sample.end()), 1);
  EXPECT_LT(pearson(
                sample, [](double k) { return 0.2 * std::pow(0.8, k - 1); }, 1),
            1.7);
}

TEST_P(DistributionsTest, PoissonFollowsItsRates) {
  for (const double rate : {0.3, 4.0, 9.99, 10.0, 12.5, 47.0, 300.0}) {
    SCOPED_TRACE(rate);
    Generator source = generator();
    const Tensor drawn = poisson(on(full({60000}, rate, f64)), &source);
    const auto pmf = [rate](double k) {
      return std::exp(k * std::log(rate) - rate - std::lgamma(k + 1));
    };
    EXPECT_LT(pearson(drawn.to_vector<double>(), pmf, 0), 1.7);
  }
  Generator source = generator();
  const Tensor large = poisson(on(full({20000}, 1e6, f64)), &source);
  EXPECT_NEAR(large.mean().item<double>(), 1e6, 4 * 1000 / std::sqrt(20000.0));
  EXPECT_NEAR(large.var().item<double>() / 1e6, 1, 0.05);
  EXPECT_TRUE(large.eq(large.floor()).all().item<bool>());
}

TEST_P(DistributionsTest, PoissonTakesOneRatePerElement) {
  const Tensor rates = on(tensor({0.0, 5.0, 1e30, 3.0, 1000.0, 0.0})).view({2, 3});
  Generator source = generator();
  const Tensor drawn = poisson(rates, &source);
  EXPECT_EQ(drawn.dtype(), f32);
  EXPECT_EQ(drawn.sizes(), rates.sizes());
  EXPECT_EQ(drawn.index({0, 0}).item<float>(), 0);
  EXPECT_EQ(drawn.index({1, 2}).item<float>(), 0);
  EXPECT_EQ(drawn.index({0, 2}).item<float>(), 1e30f);
  // Element (1, 0) draws the same in a row of its own place.
  Generator again = generator();
  EXPECT_TRUE(poisson(rates.t().contiguous().t(), &again).equal(drawn));
  EXPECT_TRUE(std::isnan(poisson(on(tensor({NAN}))).item<float>()));
  EXPECT_ERROR(poisson(on(arange(3))), DTypeError, "poisson: expected a floating type");
  const Tensor negative = on(tensor({-1.0, 2.0}));
  if (device_.is_cpu()) {
    EXPECT_ERROR(poisson(negative), InvalidArgument, "invalid Poisson rate");
  } else {
    EXPECT_TRUE(std::isnan(poisson(negative)[0].item<float>()));
  }
}

TEST_P(DistributionsTest, MultinomialWithReplacementFollowsTheWeights) {
  const std::vector<double> weights{1, 0, 3, 0.5, 0, 5.5};
  Generator source = generator();
  const Tensor drawn = multinomial(on(tensor(weights, f32)), 50000, true, &source);
  EXPECT_EQ(drawn.dtype(), i64);
  EXPECT_LT(pearson(
                drawn.to_vector<double>(),
                [&](double k) { return weights[static_cast<std::size_t>(k)] / 10; }, 0),
            2.5);
  for (const std::int64_t index : drawn.to_vector<std::int64_t>()) {
    EXPECT_NE(weights[static_cast<std::size_t>(index)], 0);
  }
  // Each row has its own weights.
  const Tensor rows = on(eye(4, options(f16)));
  const Tensor picked = multinomial(rows, 9, true, &source);
  EXPECT_TRUE(picked.equal(on(arange(4)).unsqueeze(1).expand({4, 9})));
}

TEST_P(DistributionsTest, MultinomialWithoutReplacementDrawsEachIndexOnce) {
  const std::vector<double> weights{1, 2, 4, 3};
  Generator source = generator();
  const Tensor rows = on(tensor(weights, f32)).expand({30000, 4});
  const Tensor drawn = multinomial(rows, 3, false, &source);
  EXPECT_EQ(drawn.sizes(), (Shape{30000, 3}));
  const auto all = drawn.to_vector<std::int64_t>();
  std::vector<double> pairs(16, 0);
  for (std::size_t row = 0; row < 30000; ++row) {
    const std::set<std::int64_t> distinct(&all[3 * row], &all[3 * row] + 3);
    ASSERT_EQ(distinct.size(), 3u);
    ++pairs[static_cast<std::size_t>(4 * all[3 * row] + all[3 * row + 1])];
  }
  // The first two, one after the other.
  double statistic = 0;
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < 4; ++b) {
      if (a == b) continue;
      const double expected = 30000 * weights[a] / 10 * weights[b] / (10 - weights[a]);
      statistic += std::pow(pairs[4 * a + b] - expected, 2) / expected;
    }
  }
  EXPECT_LT(statistic, 31);  // 11 degrees of freedom
  const auto permutation = multinomial(on(ones({50})), 50).to_vector<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(permutation.begin(), permutation.end()).size(), 50u);
}

TEST_P(DistributionsTest, MultinomialRejectsBadArguments) {
  const Tensor weights = on(tensor({1.0, 0.0, 2.0}));
  EXPECT_ERROR(multinomial(weights, 0), InvalidArgument, "cannot sample n_sample <= 0 samples");
  EXPECT_ERROR(multinomial(weights, 4), InvalidArgument, "cannot sample n_sample > prob_dist.size");
  EXPECT_ERROR(multinomial(on(ones({1, 1, 1})), 1), ShapeError, "must be 1 or 2 dim, but got 3");
  EXPECT_ERROR(multinomial(on(arange(3)), 1), DTypeError, "multinomial: expected a floating type");
  EXPECT_ERROR(multinomial(on(zeros({0})), 1, true), InvalidArgument, "at least one weight");
  EXPECT_EQ(multinomial(on(zeros({0, 3})), 2, true).sizes(), (Shape{0, 2}));
  if (!device_.is_cpu()) return;
  EXPECT_ERROR(multinomial(tensor({1.0, -1.0}), 1), InvalidArgument, "probability tensor contains");
  EXPECT_ERROR(multinomial(tensor({1.0f, NAN}), 1), InvalidArgument, "probability tensor contains");
  EXPECT_ERROR(multinomial(zeros({3}), 1, true), InvalidArgument, "sum of probabilities <= 0");
  EXPECT_ERROR(multinomial(weights, 3), InvalidArgument, "not enough non-negative category");
}

TEST_P(DistributionsTest, ShardsArePartsOfOneTensor) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    SCOPED_TRACE(::testing::Message() << dtype);
    const Shape sizes{5, 7, 9};
    Generator whole = generator();
    const Tensor uniform = rand(sizes, options(dtype), &whole);
    const Tensor standard = randn(sizes, options(dtype), &whole);
    for (const Shard& shard : {Shard{0, 0, 5}, Shard{0, 2, 2}, Shard{1, 3, 4}, Shard{-1, 8, 1},
                               Shard{2, 1, 5}, Shard{1, 7, 0}}) {
      Generator own = generator();
      EXPECT_TRUE(rand_shard(sizes, shard, options(dtype), &own)
                      .equal(uniform.narrow(shard.dim, shard.start, shard.length)));
      EXPECT_TRUE(randn_shard(sizes, shard, options(dtype), &own)
                      .equal(standard.narrow(shard.dim, shard.start, shard.length)));
      EXPECT_EQ(own.offset(), 2u);
    }
  }
  Generator source = generator();
  EXPECT_ERROR(rand_shard({5}, {0, 3, 3}, options(), &source), IndexError,
               "rand_shard: start (3) + length (3) exceeds dimension size (5).");
  EXPECT_ERROR(randn_shard({5}, {0, -1, 3}, options(), &source), IndexError, "start (-1)");
  EXPECT_ERROR(rand_shard({5}, {1, 0, 3}, options(), &source), IndexError, "out of range");
  EXPECT_ERROR(rand_shard({}, {0, 0, 1}, options(), &source), ShapeError, "at least one dim");
  EXPECT_ERROR(rand_shard({5}, {0, 0, 1}, options(i32), &source), DTypeError, "a floating type");
  EXPECT_EQ(source.offset(), 0u);
}

// Parts of a tensor that no memory holds: each costs its own elements.
TEST_P(DistributionsTest, AShardCostsItsOwnElements) {
  const Shape sizes{std::int64_t{1} << 40, 3};
  for (const DType dtype : {f16, f32, f64}) {
    for (const auto kernel : {rand_shard, randn_shard}) {
      const auto part = [&](std::int64_t start, std::int64_t length) {
        Generator own = generator();
        return kernel(sizes, Shard{0, start, length}, options(dtype), &own);
      };
      const std::int64_t first = (std::int64_t{1} << 39) + 1;
      const Tensor whole = part(first, 700);
      for (const std::int64_t start : {0, 1, 2, 3, 5, 511}) {
        EXPECT_TRUE(part(first + start, 189).equal(whole.narrow(0, start, 189)));
        EXPECT_TRUE(part(first + start, 1).equal(whole.narrow(0, start, 1)));
      }
    }
  }
}

TEST_P(DistributionsTest, MultinomialTakesManyCategories) {
  // PyTorch's limit is 2^24.
  const std::int64_t n = (std::int64_t{1} << 24) + 3;
  Tensor weights = zeros({n}, options(f16));
  weights.narrow(0, n - 2, 2).fill_(1);
  Generator source = generator();
  const Tensor two = multinomial(weights, 2, false, &source).sort().values;
  EXPECT_EQ(two.to_vector<std::int64_t>(), (std::vector<std::int64_t>{n - 2, n - 1}));
  const auto many = multinomial(weights, 64, true, &source).to_vector<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(many.begin(), many.end()),
            (std::set<std::int64_t>{n - 2, n - 1}));
}

TEST_P(DistributionsTest, ManyOfManyCategoriesDiffer) {
  const std::int64_t n = 5000;
  Generator source = generator();
  const Tensor weights = on(arange(n, {.dtype = f32}).remainder(7));
  const Tensor drawn = multinomial(weights, 4000, false, &source);
  const auto indices = drawn.to_vector<std::int64_t>();
  EXPECT_EQ(std::set<std::int64_t>(indices.begin(), indices.end()).size(), 4000U);
  EXPECT_TRUE(weights.index_select(0, drawn).gt(0).all().item<bool>());
  // Large weights come first.
  const Tensor chosen = weights.index_select(0, drawn);
  EXPECT_GT(chosen.narrow(0, 0, 500).mean().item<float>(), 4);
  EXPECT_LT(chosen.narrow(0, 3500, 500).mean().item<float>(), 3.5);
}

TEST_P(DistributionsTest, NormalHasMeansAndDeviations) {
  Generator source = generator();
  const Tensor fixed = normal(3, 2, {1000}, options(), &source);
  Generator again = generator();
  EXPECT_TRUE(fixed.equal(on(empty({1000})).normal_(3, 2, again)));
  Generator third = generator();
  const Tensor standard = randn({2, 3}, options(), &third);
  const Tensor mean = on(tensor({10.0, 20.0, 30.0}));
  const Tensor deviation = on(tensor({0.5, 2.0})).unsqueeze(1);
  const auto from = [&](auto&&... arguments) {
    Generator own = generator();
    return normal(arguments..., &own);
  };
  EXPECT_TRUE(from(mean, deviation).equal(mean + standard * deviation));
  EXPECT_TRUE(from(on(zeros({2, 3})), 0.25).equal(standard * 0.25));
  EXPECT_TRUE(from(1.0, deviation.expand({2, 3})).equal(1 + standard * deviation));
  EXPECT_EQ(normal(on(zeros({2}, f64)), on(ones({2}, f32))).dtype(), f64);
  EXPECT_ERROR(normal(0, -1, {2}), InvalidArgument, "normal expects std >= 0.0, but found std -1");
  EXPECT_ERROR(normal(mean, -1), InvalidArgument, "normal expects std >= 0.0");
  EXPECT_ERROR(normal(on(arange(3)), 1), DTypeError, "normal: expected a floating type");
  EXPECT_ERROR(normal(mean, on(ones({2}))), ShapeError, "normal: The size of tensor a (3)");
  if (device_.is_cpu()) EXPECT_ERROR(normal(0, -mean), InvalidArgument, "all elements of std");
}

TEST_P(DistributionsTest, BadArgumentsDrawNothing) {
  Generator source = generator();
  Tensor reals = on(zeros({3}));
  const Tensor ints = on(zeros({3}, i64));
  EXPECT_ERROR(exponential_(reals, 0, &source), InvalidArgument, "expects lambda > 0.0, but found");
  EXPECT_ERROR(cauchy_(reals, 0, -1, &source), InvalidArgument, "cauchy_ expects sigma > 0.0");
  EXPECT_ERROR(log_normal_(reals, 0, NAN, &source), InvalidArgument, "log_normal_ expects std > 0");
  EXPECT_ERROR(geometric_(reals, 1, &source), InvalidArgument, "expects p to be in (0, 1)");
  EXPECT_ERROR(exponential_(ints, 1, &source), DTypeError, "exponential_: expected a floating");
  EXPECT_ERROR(cauchy_(ints, 0, 1, &source), DTypeError, "cauchy_: expected a floating type");
  EXPECT_ERROR(log_normal_(ints, 0, 1, &source), DTypeError, "log_normal_: expected a floating");
  EXPECT_ERROR(geometric_(ints > 0, 0.5, &source), DTypeError, "geometric_: expected a tensor of");
  EXPECT_ERROR(exponential_(on(zeros({1})).expand({3}), 1, &source), InvalidArgument,
               "more than one element of the written-to tensor");
  EXPECT_ERROR(exponential_(Tensor(), 1, {}), InvalidArgument, "exponential_: expected a defined");
  EXPECT_EQ(source.offset(), 0u);
  EXPECT_EQ(reals.count_nonzero().item<int>(), 0);
}

class DistributionsDeviceTest : public testing::DeviceTest {};

TEST_F(DistributionsDeviceTest, HaveTheBitsOfTheCpu) {
  const Device there = Device::cuda(0);
  const auto both = [&](const std::function<Tensor(Device, GeneratorRef)>& draw) {
    Generator on_cpu(Device::cpu(), kSeed);
    Generator on_device(there, kSeed);
    const Tensor expected = draw(Device::cpu(), &on_cpu).contiguous().view(u8);
    EXPECT_TRUE(draw(there, &on_device).cpu().contiguous().view(u8).equal(expected));
  };
  for (const Fill& row : fills()) {
    SCOPED_TRACE(row.name);
    for (const DType dtype : {f16, bf16, f32, f64}) {
      both([&](Device device, GeneratorRef generator) {
        return row.fill(empty({100003}, {.dtype = dtype, .device = device}), generator);
      });
    }
  }
  const Tensor rates = rand({50021}, f64, Generator(Device::cpu(), 4)).mul(60);
  both([&](Device device, GeneratorRef g) { return poisson(rates.to(device), g); });
  both([&](Device device, GeneratorRef g) { return poisson(rates.to(device, f32), g); });
  const Tensor weights = rand({7, 301}, f32, Generator(Device::cpu(), 5));
  both([&](Device device, GeneratorRef g) { return multinomial(weights.to(device), 99, true, g); });
  both(
      [&](Device device, GeneratorRef g) { return multinomial(weights.to(device), 20, false, g); });
  both([&](Device device, GeneratorRef g) { return normal(weights.to(device), 0.5, g); });
}

TEST_F(DistributionsDeviceTest, ReplaysDrawWhatTheEagerProgramDraws) {
  const Device device = Device::cuda(0);
  const Tensor rates = full({100}, 20, {.dtype = f32, .device = device});
  const auto draw = [&](const std::vector<Tensor>& tensors, GeneratorRef generator) {
    std::size_t i = 0;
    for (const Fill& row : fills()) row.fill(tensors[i++], generator);
    tensors[i].copy_(poisson(rates, generator));
  };
  std::vector<Tensor> replayed;
  std::vector<Tensor> eager;
  for (int i = 0; i < 5; ++i) {
    replayed.push_back(zeros({100}, device));
    eager.push_back(zeros({100}, device));
  }
  Generator captured(device, kSeed);
  Generator direct(device, kSeed);
  Graph graph;
  {
    const GraphCapture capture(graph);
    draw(replayed, &captured);
  }
  for (int round = 0; round < 2; ++round) {
    graph.replay();
    draw(eager, &direct);
    for (std::size_t i = 0; i < eager.size(); ++i) {
      EXPECT_TRUE(replayed[i].equal(eager[i])) << i << " in round " << round;
    }
  }
}

}  // namespace
}  // namespace gantry
