// Scans, moments, products and bins of elements near the ends of their dtype.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/distributions.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/statistics.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr DType kFloats[] = {f16, bf16, f32, f64};

// The largest power of two of a dtype, times 1.5.
double large_of(DType dtype) {
  return std::ldexp(1.5, dtype == f16 ? 15 : dtype == f64 ? 1023 : 127);
}

class RangeEndsTest : public testing::PlacedTest {
 protected:
  Tensor made(const std::vector<double>& elements, DType dtype) const {
    return on(tensor(elements, f64).to(dtype));
  }
};

GANTRY_TEST_PLACES(RangeEndsTest);

TEST_P(RangeEndsTest, ProductsAfterAZeroAreZero) {
  for (const DType dtype : kFloats) {
    for (const double factor : {large_of(dtype), 1e4, 10.0, 2.0}) {
      for (const std::int64_t n : {2, 27, 40, 352, 4624, 5136, 20000}) {
        Tensor x = full({2, n}, factor, options(dtype));
        x.index({Slice(), 0}) = 0;
        EXPECT_THAT(x.cumprod(1).to_vector<double>(), Each(0)) << dtype << factor << " " << n;
        EXPECT_THAT(x.t().cumprod(0).to_vector<double>(), Each(0)) << dtype << factor << " " << n;
        EXPECT_THAT(x.prod(1).to_vector<double>(), Each(0)) << dtype << factor << " " << n;
        EXPECT_EQ(x.prod().item<double>(), 0) << dtype << factor << " " << n;
      }
    }
  }
}

TEST_P(RangeEndsTest, RunningSumsAreFiniteAcrossGroups) {
  for (const DType dtype : kFloats) {
    const double large = large_of(dtype);
    for (const std::size_t place : {15, 255, 4095, 16383}) {
      std::vector<double> elements(place, 0);
      std::vector<double> expected = elements;
      for (const double element : {-large, large, large, -large, 0.0}) {
        elements.push_back(element);
        expected.push_back(expected.back() + element);
      }
      const Tensor x = made(elements, dtype);
      EXPECT_EQ(x.cumsum(0).to_vector<double>(), expected) << dtype << place;
      EXPECT_EQ(x.sum().item<double>(), 0) << dtype << place;
      EXPECT_EQ(x.mean().item<double>(), 0) << dtype << place;
      EXPECT_EQ(nansum(x).item<double>(), 0) << dtype << place;
      EXPECT_EQ(nanmean(x).item<double>(), 0) << dtype << place;
      Tensor in_place = x.clone();
      cumsum_out(in_place, in_place, 0);
      EXPECT_EQ(in_place.to_vector<double>(), expected) << dtype << place;
    }
  }
}

// A row of many large elements, of which no running sum is large.
TEST_P(RangeEndsTest, SumsOfAlternatingElementsAreFinite) {
  for (const DType dtype : kFloats) {
    const double large = large_of(dtype);
    for (const std::int64_t n : {4, 256, 1000, 16384, 40000}) {
      const Tensor x = on(tensor({large, -large}, f64).to(dtype)).repeat({n / 2});
      EXPECT_EQ(x.sum().item<double>(), 0) << dtype << n;
      EXPECT_EQ(x.mean().item<double>(), 0) << dtype << n;
      EXPECT_EQ(x.unsqueeze(1).expand({n, 3}).sum(0).to_vector<double>(),
                std::vector<double>(3, 0.0));
      EXPECT_THAT(x.cumsum(0).slice(0, 1, n, 2).to_vector<double>(), Each(0));
    }
  }
}

// As in PyTorch, the sum is rounded to the accumulator before it is divided.
TEST_P(RangeEndsTest, SumsBeyondTheRangeAreInfinite) {
  EXPECT_EQ(full({3}, 3e38, options()).mean().item<double>(), HUGE_VAL);
  EXPECT_EQ(full({3}, 3e38, options()).sum().item<double>(), HUGE_VAL);
  EXPECT_EQ(full({3}, -1e308, options(f64)).sum().item<double>(), -HUGE_VAL);
  EXPECT_EQ(full({300}, 3e38, options()).cumsum(0)[299].item<double>(), HUGE_VAL);
  EXPECT_EQ(full({300}, 1e20, options()).cumprod(0)[299].item<double>(), HUGE_VAL);
  EXPECT_EQ(full({300}, 1e20, options()).prod().item<double>(), HUGE_VAL);
  EXPECT_EQ(full({2}, 3e20, options()).norm().item<double>(), HUGE_VAL);
}

// The reference is Welford's recurrence, of elements over `unit`.
double deviation_of(const std::vector<double>& elements, double unit, double correction) {
  long double mean = 0;
  long double squares = 0;
  long double count = 0;
  for (const double element : elements) {
    const long double x = static_cast<long double>(element) / unit;
    const long double distance = x - mean;
    mean += distance / ++count;
    squares += distance * (x - mean);
  }
  return static_cast<double>(std::sqrt(squares / (count - correction)) * unit);
}

TEST_P(RangeEndsTest, DeviationsOfLargeElements) {
  EXPECT_EQ(gantry::std(made({1e20, 3e20, 2e20}, f32)).item<float>(), 1e20F);
  EXPECT_EQ(gantry::std(made({1e200, 3e200, 2e200}, f64)).item<double>(), 1e200);
  std::mt19937 random(1);
  for (const DType dtype : kFloats) {
    const double unit = large_of(dtype) / 2;
    const double tolerance = dtype == f64   ? 1e-13
                             : dtype == f32 ? 1e-6
                             : dtype == f16 ? 1e-3
                                            : 8e-3;
    for (const std::int64_t n : {2, 3, 17, 128, 129, 1000, 16385, 33000}) {
      std::vector<double> numbers;
      for (std::int64_t i = 0; i < 3 * n; ++i) {
        numbers.push_back((static_cast<double>(random()) / 2147483648.0 - 1) * unit);
      }
      const Tensor rows = made(numbers, dtype).view({3, n});
      const std::vector<double> rounded = rows.to_vector<double>();
      for (const double correction : {0.0, 1.0}) {
        const VarianceOptions how{.dims = 1, .correction = correction};
        std::vector<double> expected;
        for (std::int64_t row = 0; row < 3; ++row) {
          expected.push_back(deviation_of(
              {rounded.begin() + row * n, rounded.begin() + (row + 1) * n}, unit, correction));
        }
        const auto check = [&](const Tensor& got) {
          const std::vector<double> values = got.to_vector<double>();
          for (std::size_t row = 0; row < 3; ++row) {
            EXPECT_NEAR(values[row] / expected[row], 1, tolerance) << dtype << " " << n;
          }
        };
        check(gantry::std(rows, how));
        check(std_mean(rows, how).std);
        check(gantry::std(rows.t().contiguous(), {.dims = 0, .correction = correction}));
        check(gantry::std(rows.t(), {.dims = 0, .correction = correction, .keepdim = true}));
        Tensor out = empty({3}, options(dtype));
        check(std_out(out, rows, how));
        EXPECT_THAT(var_mean(rows, how).var.to_vector<double>(), Each(HUGE_VAL));
      }
    }
  }
}

// The sum of the elements exceeds the range, their variance does not.
TEST_P(RangeEndsTest, VariancesOfElementsWithALargeMean) {
  for (const DType dtype : {bf16, f32, f64}) {
    const double large = large_of(dtype);
    for (const std::int64_t n : {2, 3, 16, 1000, 20000}) {
      const Tensor x = full({2, n}, large, options(dtype));
      EXPECT_THAT(var(x, {.dims = 1}).to_vector<double>(), ElementsAre(0, 0)) << dtype << n;
      EXPECT_THAT(gantry::std(x, {.dims = 1}).to_vector<double>(), ElementsAre(0, 0));
      EXPECT_EQ(var_mean(x).var.item<double>(), 0);
      EXPECT_EQ(std_mean(x).std.item<double>(), 0);
    }
  }
}

// Only results that are not finite are computed again, and what has no finite result keeps it.
TEST_P(RangeEndsTest, VariancesOfRowsOfEachKind) {
  const double nan = std::nan("");
  const Tensor rows =
      made({1, 2, 3, 1e20, 3e20, 2e20, nan, 1, 2, HUGE_VAL, 1, 2, -3e38, 3e38, 0}, f32)
          .view({5, 3});
  const auto deviations = gantry::std(rows, 1).to_vector<double>();
  EXPECT_EQ(deviations[0], 1);
  EXPECT_EQ(deviations[1], static_cast<double>(1e20F));
  EXPECT_TRUE(std::isnan(deviations[2]));
  EXPECT_TRUE(std::isnan(deviations[3]));
  EXPECT_NEAR(deviations[4], 3e38, 1e32);
  const auto variances = var(rows, 1).to_vector<double>();
  EXPECT_EQ(variances[0], 1);
  EXPECT_EQ(variances[1], HUGE_VAL);
  EXPECT_TRUE(std::isnan(variances[2]));
  EXPECT_TRUE(std::isnan(var(full({1}, 3e38, options())).item<double>()));
  EXPECT_EQ(var(full({1}, 3e38, options()), {.correction = 0}).item<double>(), 0);
  EXPECT_TRUE(std::isnan(gantry::std(zeros({0}, options())).item<double>()));
  EXPECT_EQ(var(scalar_tensor(3e38, options()), {.correction = 0}).item<double>(), 0);
}

TEST_P(RangeEndsTest, OtherScansAndReductionsHoldTheWholeRange) {
  for (const DType dtype : kFloats) {
    const double large = dtype == f16 ? 65504 : large_of(dtype);
    const Tensor x = made({-large, large, large, -large}, dtype).repeat({40});
    EXPECT_EQ(cummax(x, 0).values[159].item<double>(), large);
    EXPECT_EQ(cummin(x, 0).values[159].item<double>(), -large);
    EXPECT_EQ(logcumsumexp(x, 0)[0].item<double>(), -large);
    EXPECT_EQ(logcumsumexp(x, 0)[159].item<double>(), large);
    EXPECT_EQ(logsumexp(x, 0).item<double>(), large);
    EXPECT_EQ(x.softmax(0).sum().item<double>(), 1);
    EXPECT_EQ(x.norm(HUGE_VAL).item<double>(), large);
    EXPECT_EQ(aminmax(x).min.item<double>(), -large);
  }
}

TEST_P(RangeEndsTest, BinsDivideTheWholeRange) {
  EXPECT_THAT(histc(made({-3e38, 0, 3e38}, f32), 3, -3e38, 3e38).to_vector<double>(),
              ElementsAre(1, 1, 1));
  for (const DType dtype : kFloats) {
    const double large = dtype == f16 ? 65504 : large_of(dtype);
    for (const std::int64_t bins : {1, 2, 3, 7, 100, 5000}) {
      std::vector<double> elements{-large, large};
      std::vector<double> expected(static_cast<std::size_t>(bins), 0);
      expected.front() += 1;
      expected.back() += 1;
      // The middle of each bin.
      for (std::int64_t i = 0; i < bins; ++i) {
        elements.push_back((2 * (static_cast<double>(i) + 0.5) / static_cast<double>(bins) - 1) *
                           large);
      }
      const Tensor x = made(elements, dtype);
      const auto rounded = x.to_vector<double>();
      for (std::size_t i = 2; i < rounded.size(); ++i) {
        const double place = (rounded[i] / large + 1) / 2 * static_cast<double>(bins);
        ++expected[std::min(static_cast<std::size_t>(place), expected.size() - 1)];
      }
      EXPECT_EQ(histc(x, bins, -large, large).to_vector<double>(), expected) << dtype << bins;
      EXPECT_EQ(histc(x, bins).to_vector<double>(), expected) << dtype << bins;
      Tensor out = empty({bins}, options(dtype));
      EXPECT_EQ(histc_out(out, x, bins, -large, large).to_vector<double>(), expected);
    }
  }
  // Half of the range, whose products with the bins exceed it.
  EXPECT_THAT(histc(made({0, 1e38, 3e38}, f32), 4, 0, 3.2e38).to_vector<double>(),
              ElementsAre(1, 1, 0, 1));
}

TEST_P(RangeEndsTest, BinsOfEqualElements) {
  for (const DType dtype : {bf16, f32, f64}) {
    for (const double number : {1e20, -1e20, 4.0}) {
      EXPECT_THAT(histc(full({4}, number, options(dtype)), 3).to_vector<double>(),
                  ElementsAre(0, 4, 0))
          << dtype << number;
    }
    const double most = dtype == f64 ? std::numeric_limits<double>::max()
                                     : static_cast<double>(std::numeric_limits<float>::max());
    EXPECT_EQ(histc(full({4}, most, options(dtype == bf16 ? f32 : dtype)), 3).sum().item<double>(),
              4);
  }
  EXPECT_ERROR(histc(ones({3}, options()), 3, 0, 1e39), InvalidArgument, "is not finite");
  EXPECT_THAT(histc(ones({3}, options(f64)), 2, 0, 1e39).to_vector<double>(), ElementsAre(3, 0));
}

TEST_P(RangeEndsTest, SearchesAndCountsAtTheEnds) {
  for (const DType dtype : kFloats) {
    const double large = large_of(dtype);
    const Tensor sorted = made({-large, 0, large}, dtype);
    EXPECT_THAT(
        searchsorted(sorted, made({-large, large, -HUGE_VAL, HUGE_VAL}, dtype)).to_vector<int>(),
        ElementsAre(0, 2, 0, 3));
    EXPECT_THAT(bucketize(made({-large, large}, dtype), sorted, false, true).to_vector<int>(),
                ElementsAre(1, 3));
  }
  // Weights are added in the order of their positions.
  const Tensor bins = on(tensor({0, 1, 0, 0, 0, 1}));
  EXPECT_THAT(bincount(bins, made({-3e38, 1, 3e38, 3e38, -3e38, 2}, f32)).to_vector<double>(),
              ElementsAre(0, 3));
  EXPECT_THAT(bincount(bins, made({-1e308, 1, 1e308, 1e308, -1e308, 2}, f64)).to_vector<double>(),
              ElementsAre(0, 3));
}

TEST_P(RangeEndsTest, RampsOverTheWholeRange) {
  for (const DType dtype : kFloats) {
    const double large = dtype == f16 ? 65504 : large_of(dtype);
    for (const std::int64_t steps : {2, 3, 4, 5, 101}) {
      const auto ramp = linspace(-large, large, steps, options(dtype)).to_vector<double>();
      EXPECT_EQ(ramp.front(), -large);
      EXPECT_EQ(ramp.back(), large);
      for (std::size_t i = 0; i < ramp.size(); ++i) {
        const double place = static_cast<double>(i) / static_cast<double>(steps - 1);
        EXPECT_NEAR(ramp[i] / large, 2 * place - 1, 1e-2) << dtype << steps;
        EXPECT_EQ(ramp[i], -ramp[ramp.size() - 1 - i]) << dtype << steps;
      }
    }
  }
  EXPECT_THAT(
      arange(-1.5e308, 1.6e308, 1e308, options(f64)).to_vector<double>(),
      ElementsAre(-1.5e308, ::testing::DoubleNear(-5e307, 1e293),
                  ::testing::DoubleNear(5e307, 1e293), ::testing::DoubleNear(1.5e308, 1e294)));
  EXPECT_THAT(arange(1.5e308, -1.6e308, -1e308, options(f64)).sizes(), Shape({4}));
  // Powers on a GPU are within 2 ulp.
  EXPECT_THAT(
      logspace(-300, 300, 3, 10, options(f64)).to_vector<double>(),
      ElementsAre(::testing::DoubleNear(1e-300, 1e-315), 1, ::testing::DoubleNear(1e300, 1e285)));
}

TEST_P(RangeEndsTest, DrawsByLargeWeights) {
  Generator source(device_);
  source.manual_seed(4);
  for (const DType dtype : kFloats) {
    const double large = large_of(dtype);
    std::vector<double> weights(40, large);
    weights[3] = 0;
    const Tensor w = made(weights, dtype);
    const auto drawn = multinomial(w, 4000, true, &source).to_vector<std::int64_t>();
    std::vector<int> counts(40, 0);
    for (const std::int64_t index : drawn) ++counts[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(counts[i], i == 3 ? 0 : 4000 / 39.0, 60) << dtype << i;
    }
    // Without replacement, the first of the drawn indices has the same distribution.
    const auto firsts =
        multinomial(w.expand({4000, 40}), 2, false, &source).select(1, 0).to_vector<std::int64_t>();
    std::fill(counts.begin(), counts.end(), 0);
    for (const std::int64_t index : firsts) ++counts[static_cast<std::size_t>(index)];
    for (std::size_t i = 0; i < 40; ++i) {
      EXPECT_NEAR(counts[i], i == 3 ? 0 : 4000 / 39.0, 60) << dtype << i;
    }
  }
}

}  // namespace
}  // namespace gantry
