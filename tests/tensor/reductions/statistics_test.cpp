#include <gantry/tensor/statistics.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class StatisticsTest : public testing::PlacedTest {};

GANTRY_TEST_PLACES(StatisticsTest);

TEST_P(StatisticsTest, PairsAreTheirParts) {
  manual_seed_all(3);
  const Tensor x = on(randn({5, 7, 3}));
  for (const VarianceOptions& options :
       {VarianceOptions{}, VarianceOptions{.dims = {0, 2}, .correction = 0},
        VarianceOptions{.dims = 1, .keepdim = true}}) {
    const auto [deviation, mean_of_std] = std_mean(x, options);
    EXPECT_TRUE(deviation.equal(gantry::std(x, options)));
    EXPECT_TRUE(mean_of_std.equal(mean(x, options.dims, options.keepdim)));
    const auto [variance, mean_of_var] = var_mean(x, options);
    EXPECT_TRUE(variance.equal(var(x, options)));
    EXPECT_TRUE(mean_of_var.equal(mean_of_std));
  }
  const auto [low, high] = aminmax(x, 1, true);
  EXPECT_TRUE(low.equal(amin(x, 1, true)));
  EXPECT_TRUE(high.equal(amax(x, 1, true)));
  EXPECT_EQ(aminmax(x).max.dim(), 0);
  EXPECT_ERROR(aminmax(on(zeros({0}))), ShapeError, "amin");
  EXPECT_ERROR(std_mean(on(arange(3))), DTypeError, "std: expected a floating type");
}

TEST_P(StatisticsTest, NanCountsAsNothing) {
  const Tensor x = on(tensor({1.0f, kNan, 3.0f, kNan, kNan, kNan})).view({2, 3});
  EXPECT_EQ(nansum(x).item<float>(), 4);
  EXPECT_THAT(nansum(x, 1).to_vector<float>(), ElementsAre(4, 0));
  EXPECT_EQ(nansum(x, 0, true).sizes(), (Shape{1, 3}));
  EXPECT_EQ(nansum(x, {}, false, f64).dtype(), f64);
  EXPECT_EQ(nansum(on(tensor({1, 2}).to(i8))).dtype(), i64);
  const std::vector<float> means = nanmean(x, 1).to_vector<float>();
  EXPECT_EQ(means[0], 2);
  EXPECT_TRUE(std::isnan(means[1]));
  // Neither the sum nor the count fits f16.
  const Tensor halves = on(full({70000}, 2, f16));
  halves[1] = kNan;
  EXPECT_EQ(nanmean(halves).item<float>(), 2);
  EXPECT_EQ(nanmean(halves).dtype(), f16);
  EXPECT_EQ(nanmean(halves, {}, true, f64).dtype(), f64);
  EXPECT_ERROR(nanmean(on(arange(2))), DTypeError, "nanmean: expected a tensor and a dtype");
  EXPECT_ERROR(nanmean(x, {}, false, i32), DTypeError, "but got Int");
  EXPECT_ERROR(nansum(x, 2), IndexError, "nansum: Dimension out of range");
}

TEST_P(StatisticsTest, DistIsTheNormOfTheDifference) {
  const Tensor a = on(tensor({1.0, 2.0, 3.0}));
  const Tensor b = on(tensor({1.0, -2.0, 6.0}));
  EXPECT_EQ(dist(a, b).item<float>(), 5);
  EXPECT_EQ(dist(a, b, 1).item<float>(), 7);
  EXPECT_EQ(dist(a, b, 0).item<float>(), 2);
  EXPECT_EQ(dist(a, b, std::numeric_limits<double>::infinity()).item<float>(), 4);
  EXPECT_EQ(dist(a.unsqueeze(1), b).dim(), 0);
  EXPECT_ERROR(dist(on(arange(2)), on(arange(2))), DTypeError, "norm");
}

TEST_P(StatisticsTest, TraceSumsTheDiagonal) {
  const Tensor m = on(arange(12)).view({3, 4});
  EXPECT_EQ(m.trace().item<int>(), 0 + 5 + 10);
  EXPECT_EQ(m.t().to(i8).trace().dtype(), i64);
  EXPECT_EQ(m.to(f16).trace().dtype(), f16);
  EXPECT_EQ(on(zeros({0, 3})).trace().item<float>(), 0);
  EXPECT_ERROR(m[0].trace(), ShapeError, "trace: expected a matrix, but got a tensor with dim 1");
}

}  // namespace
}  // namespace gantry
