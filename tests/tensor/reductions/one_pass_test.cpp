// Reductions whose state is several numbers: right in every layout, without temporaries.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include <gantry/memory/stats.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/statistics.hpp>

#include "tests/tensor/placed_test.hpp"

namespace gantry::testing {
namespace {

class OnePassTest : public testing::PlacedTest {};

GANTRY_TEST_PLACES(OnePassTest);

constexpr DType kFloats[] = {f16, bf16, f32, f64};

double half_ulp_of(DType dtype) {
  return dtype == f16 ? 0x1p-11 : dtype == bf16 ? 0x1p-8 : dtype == f32 ? 0x1p-24 : 0x1p-53;
}

// The shapes around tiles, packs and chunks of kernels, each as outer x reduced x inner.
constexpr std::int64_t kShapes[][3] = {
    {1, 1, 1},     {3, 5, 1},    {2000, 7, 1}, {40, 129, 1},  {9, 1030, 1}, {3, 16384, 1},
    {2, 40001, 1}, {1, 3, 5000}, {1, 64, 900}, {1, 300, 136}, {2, 129, 33}, {1, 16390, 8},
    {50, 17, 3},   {4, 200, 6},  {3, 12, 64},  {1, 1100, 1},  {1100, 40, 1}};

// The elements of every output of a contiguous tensor that is reduced along the middle dim.
std::vector<std::vector<double>> members(const Tensor& x) {
  const std::vector<double> all = x.to_vector<double>();
  std::vector<std::vector<double>> result;
  for (std::int64_t o = 0; o < x.size(0); ++o) {
    for (std::int64_t i = 0; i < x.size(2); ++i) {
      result.emplace_back();
      for (std::int64_t k = 0; k < x.size(1); ++k) {
        result.back().push_back(all[static_cast<std::size_t>((o * x.size(1) + k) * x.size(2) + i)]);
      }
    }
  }
  return result;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double variance_of(const std::vector<double>& values, double correction) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return squares / std::max(0.0, static_cast<double>(values.size()) - correction);
}

double log_sum_exp_of(const std::vector<double>& values) {
  const double largest = *std::max_element(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

// Calls check(x, its outputs' elements) for random tensors of every dtype, shape and layout.
void for_tensors(
    const std::function<Tensor(const Tensor&)>& on, double spread, double shift,
    const std::function<void(const Tensor&, const std::vector<std::vector<double>>&)>& check) {
  manual_seed_all(7);
  for (const DType dtype : kFloats) {
    for (const auto& shape : kShapes) {
      const Tensor x = on(randn({shape[0], shape[1], shape[2]}).mul(spread).add(shift).to(dtype));
      const auto outputs = members(x);
      check(x, outputs);
      check(x.transpose(0, 2).contiguous().transpose(0, 2), outputs);
      Tensor wide =
          zeros({shape[0], shape[1], 2 * shape[2]}, {.dtype = dtype, .device = x.device()});
      const Tensor every_second = wide.slice(2, 1, 2 * shape[2], 2);
      Tensor(every_second).copy_(x);
      check(every_second, outputs);
    }
  }
}

TEST_P(OnePassTest, VariancesOfEveryLayout) {
  const auto check = [](const Tensor& x, const std::vector<std::vector<double>>& outputs) {
    for (const double correction : {0.0, 1.0}) {
      const VarianceOptions how{.dims = 1, .correction = correction};
      const auto variances = var(x, how).to_vector<double>();
      const auto deviations = gantry::std(x, how).to_vector<double>();
      const auto pair = var_mean(x, how);
      EXPECT_TRUE(std::isnan(variances[0]) || pair.var.equal(var(x, how)));
      EXPECT_TRUE(pair.mean.equal(mean(x, 1))) << x.dtype() << x.sizes();
      const double tolerance = 2e-6 * (x.dtype() == f64 ? 1e-8 : 1) + half_ulp_of(x.dtype());
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const double expected = variance_of(outputs[o], correction);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(variances[o]));
          continue;
        }
        ASSERT_NEAR(variances[o], expected, expected * tolerance)
            << x.dtype() << x.sizes() << x.strides() << o;
        ASSERT_NEAR(deviations[o], std::sqrt(expected), std::sqrt(expected) * tolerance);
      }
    }
  };
  for_tensors([this](const Tensor& t) { return on(t); }, 1, 0.5, check);
}

// A mean of a thousand deviations, whose square would leave nothing of the variance.
TEST_P(OnePassTest, VariancesFarFromZero) {
  for (const std::int64_t n : {50, 4096, 100003}) {
    const Tensor x = on(randn({2, n}).add(1000));
    const auto variances = var(x, 1).to_vector<double>();
    const std::vector<double> all = x.to_vector<double>();
    for (std::int64_t row = 0; row < 2; ++row) {
      const double expected = variance_of({all.begin() + row * n, all.begin() + (row + 1) * n}, 1);
      EXPECT_NEAR(variances[static_cast<std::size_t>(row)] / expected, 1, 1e-4) << n;
    }
    // The first element of each accumulator is far from all others.
    Tensor jumps = on(randn({1, n + 128}));
    jumps.narrow(1, 0, 128).fill_(1e4);
    const double expected = variance_of(jumps.to_vector<double>(), 1);
    EXPECT_NEAR(var(jumps, 1).item<double>() / expected, 1, 2e-5) << n;
    EXPECT_EQ(var(on(full({n}, 0.1))).item<double>(), 0) << n;
  }
}

TEST_P(OnePassTest, LogarithmsOfSumsOfEveryLayout) {
  const auto check = [](const Tensor& x, const std::vector<std::vector<double>>& outputs) {
    const auto values = logsumexp(x, 1).to_vector<double>();
    const double tolerance = 2e-6 * (x.dtype() == f64 ? 1e-8 : 1) + half_ulp_of(x.dtype());
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const double expected = log_sum_exp_of(outputs[o]);
      ASSERT_NEAR(values[o], expected, tolerance * std::max(1.0, std::abs(expected)))
          << x.dtype() << x.sizes() << x.strides() << o;
    }
  };
  for_tensors([this](const Tensor& t) { return on(t); }, 4, -20, check);
}

TEST_P(OnePassTest, LogarithmsOfSumsOfSpecialElements) {
  constexpr double kInfinity = HUGE_VAL;
  for (const std::int64_t n : {3, 200, 20000}) {
    for (const DType dtype : kFloats) {
      Tensor x = full({5, n}, -kInfinity, options(dtype));
      x.narrow(0, 1, 1).fill_(kInfinity);
      x.narrow(0, 2, 1).narrow(1, n - 1, 1).fill_(3);
      x.narrow(0, 3, 1).narrow(1, n / 2, 1).fill_(std::nan(""));
      x.narrow(0, 4, 1).narrow(1, 0, 1).fill_(std::nan(""));
      for (const Tensor& layout : {x, x.t().contiguous().t()}) {
        const auto values = logsumexp(layout, 1).to_vector<double>();
        EXPECT_EQ(values[0], -kInfinity);
        EXPECT_EQ(values[1], kInfinity);
        EXPECT_EQ(values[2], 3);
        EXPECT_TRUE(std::isnan(values[3]));
        EXPECT_TRUE(std::isnan(values[4]));
      }
    }
  }
}

TEST_P(OnePassTest, SeveralDimsAndOutputs) {
  const Tensor x = on(randn({6, 40, 7, 90}));
  const Tensor flat = x.permute({0, 2, 1, 3}).contiguous().view({42, 3600});
  const VarianceOptions how{.dims = {1, 3}};
  EXPECT_TRUE(var(x, how).view({42}).equal(var(flat, 1)));
  EXPECT_TRUE(logsumexp(x, {1, 3}).view({42}).equal(logsumexp(flat, 1)));
  Tensor out = zeros({7, 6}, options()).t();
  EXPECT_TRUE(std_out(out, x, how).equal(gantry::std(x, how)));
  EXPECT_TRUE(logsumexp_out(out, x, {1, 3}).equal(logsumexp(x, {1, 3})));
}

// No reduction has a temporary of its input's size.
TEST_P(OnePassTest, AllocateNoTemporary) {
  if (!GetParam()) GTEST_SKIP() << "the memory of CPU tensors has no statistics";
  const std::size_t result_bytes = std::size_t{1} << 16;
  for (const DType dtype : kFloats) {
    const Tensor x = zeros({64, 128, 256}, options(dtype));
    for (const Axes& dims : {Axes(0), Axes(1), Axes(2), Axes({0, 2}), Axes()}) {
      const auto extra = [&](const auto& op) {
        const std::size_t before = memory::allocated(device_);
        memory::reset_peak_stats(device_);
        op();
        synchronize(device_);
        return memory::max_allocated(device_) - before;
      };
      const std::size_t limit = 8 * result_bytes;  // two results of at most 32768 elements of f64
      const VarianceOptions how{.dims = dims};
      EXPECT_LE(extra([&] { (void)var(x, how); }), limit) << dtype;
      EXPECT_LE(extra([&] { (void)gantry::std(x, how); }), limit) << dtype;
      EXPECT_LE(extra([&] { (void)var_mean(x, how); }), limit) << dtype;
      EXPECT_LE(extra([&] { (void)std_mean(x, how); }), limit) << dtype;
      EXPECT_LE(extra([&] { (void)logsumexp(x, dims); }), limit) << dtype;
      // A norm has no tensor for its sum of squares.
      EXPECT_LE(extra([&] { (void)x.norm(2, dims); }), extra([&] { (void)x.sum(dims); })) << dtype;
    }
  }
}

}  // namespace
}  // namespace gantry::testing
