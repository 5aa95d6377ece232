#include <gantry/tensor/cumulative.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class CumulativeTest : public testing::PlacedTest {};

GANTRY_TEST_PLACES(CumulativeTest);

std::vector<int> indices_of(const ValuesAndIndices& result) {
  return result.indices.to_vector<int>();
}

// As PyTorch 2.15 answers.
TEST_P(CumulativeTest, TheLastOfEqualElementsCounts) {
  const ValuesAndIndices up = cummax(on(tensor({1, 1, 3, 3, 2})), 0);
  EXPECT_THAT(up.values.to_vector<int>(), ElementsAre(1, 1, 3, 3, 3));
  EXPECT_THAT(indices_of(up), ElementsAre(0, 1, 2, 3, 3));
  const ValuesAndIndices down = cummin(on(tensor({1.0f, kNan, 0.0f, kNan})), 0);
  EXPECT_EQ(down.values[0].item<float>(), 1);
  for (const int i : {1, 2, 3}) EXPECT_TRUE(std::isnan(down.values[i].item<float>()));
  EXPECT_THAT(indices_of(down), ElementsAre(0, 1, 1, 3));
  EXPECT_THAT(indices_of(cummax(on(tensor({kNan, 1.0f, kNan, 2.0f})), 0)), ElementsAre(0, 0, 2, 2));
  EXPECT_THAT(cummax(on(tensor({true, false})), 0).values.to(i32).to_vector<int>(),
              ElementsAre(1, 1));
  EXPECT_EQ(cummax(scalar_tensor(3, options()), 0).values.sizes(), Shape{});
  EXPECT_EQ(cummin(scalar_tensor(3, options()), -1).indices.item<int>(), 0);
  EXPECT_EQ(cummax(zeros({0}, options()), 0).values.sizes(), Shape{0});
}

TEST_P(CumulativeTest, RunningExtremaOfEveryDTypeAndLayout) {
  for (const DType dtype : testing::computing_dtypes()) {
    for (const auto layout : {testing::Layout::contiguous, testing::Layout::transposed,
                              testing::Layout::sliced, testing::Layout::expanded}) {
      SCOPED_TRACE(::testing::Message() << dtype << " " << layout);
      const Tensor t = testing::patterned(layout, dtype, device_);
      for (const int dim : {0, 1, -1}) {
        const ValuesAndIndices up = cummax(t, dim);
        EXPECT_EQ(up.values.dtype(), dtype);
        EXPECT_TRUE(up.values.equal(t.gather(dim, up.indices)));
        for (std::int64_t k = 1; k <= t.size(dim); ++k) {
          const Tensor begin = t.narrow(dim, 0, k);
          EXPECT_TRUE(up.values.select(dim, k - 1).equal(begin.amax(dim)));
          EXPECT_TRUE(cummin(t, dim).values.select(dim, k - 1).equal(begin.amin(dim)));
        }
      }
    }
  }
}

// A GPU scans by threads, by warps or by tiles: short and long fibres, a few and many.
TEST_P(CumulativeTest, RunningExtremaOfFibresOfEveryLength) {
  const auto check = [&](const Tensor& t, int dim) {
    SCOPED_TRACE(::testing::Message() << t.dtype() << " " << t.sizes() << " dim " << dim);
    const ValuesAndIndices got = cummax(on(t), dim);
    const std::int64_t inner = dim == 0 ? t.size(1) : 1;
    const std::int64_t length = t.size(dim);
    const std::vector<double> x = t.to(f64).to_vector<double>();
    const std::vector<double> values = got.values.to(f64).to_vector<double>();
    const std::vector<std::int64_t> indices = got.indices.to_vector<std::int64_t>();
    for (std::int64_t fibre = 0; fibre < t.numel() / length; ++fibre) {
      const std::int64_t first = fibre / inner * inner * length + fibre % inner;
      std::int64_t best = 0;
      for (std::int64_t k = 0; k < length; ++k) {
        const auto at = static_cast<std::size_t>(first + k * inner);
        const double largest = x[static_cast<std::size_t>(first + best * inner)];
        if (std::isnan(x[at]) || x[at] >= largest) best = k;
        ASSERT_EQ(indices[at], best) << "fibre " << fibre << " at " << k;
        const double value = x[static_cast<std::size_t>(first + best * inner)];
        ASSERT_TRUE(values[at] == value || (std::isnan(value) && std::isnan(values[at])));
      }
    }
  };
  for (const DType dtype : {DType::i8, bf16, f32, i64}) {
    for (const std::int64_t length : {1, 16, 17, 31, 32, 33, 64, 65, 255, 256, 257, 1025, 2049}) {
      for (const std::int64_t rows : {3, 9}) {
        const Tensor x = arange(0, rows * length, {.dtype = f64});
        // Peaks that rise, with many equal elements.
        Tensor t = (((x * x) % 17 + floor(x / 50)) % 100).view({rows, length});
        t = t.to(dtype);
        if (dtype == f32 && length > 20) t[1][length - 9].fill_(kNan);
        check(t, 1);
        check(t.t().contiguous(), 0);
      }
    }
  }
  const Tensor many = (arange(0, 2100 * 1030, {.dtype = f64}) * 7 % 1009).to(f32);
  check(many.view({2100, 1030}), 1);
  check(many.view({515, 4200}), 0);
}

TEST_P(CumulativeTest, LogarithmsOfRunningSums) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // As PyTorch 2.15 answers.
  const auto special =
      logcumsumexp(on(tensor({-kInfinity, -kInfinity, 1.0f, kInfinity, 2.0f, kNan, 3.0f})), 0)
          .to_vector<float>();
  EXPECT_EQ(special[0], -kInfinity);
  EXPECT_EQ(special[1], -kInfinity);
  EXPECT_EQ(special[2], 1);
  EXPECT_EQ(special[3], kInfinity);
  EXPECT_EQ(special[4], kInfinity);
  EXPECT_TRUE(std::isnan(special[5]));
  EXPECT_TRUE(std::isnan(special[6]));
  EXPECT_FLOAT_EQ(logcumsumexp(on(tensor({1.0f, 2.0f})), 0)[1].item<float>(), 2.3132617f);
  EXPECT_EQ(logcumsumexp(scalar_tensor(3, options()), 0).item<float>(), 3);
  for (const DType dtype : {f16, bf16, f32, f64}) {
    SCOPED_TRACE(dtype);
    const double tolerance = dtype == f64 ? 1e-13 : dtype == f32 ? 1e-6 : 1e-2;
    // The largest element and the others differ by more than exp() can represent.
    const Tensor t = on(arange(-10000, 10000, {.dtype = f64}).sin().mul(900).to(dtype))
                         .view({2, 10000})
                         .transpose(0, 1);
    const std::vector<double> x = t.contiguous().to_vector<double>();
    const std::vector<double> got = logcumsumexp(t, 0).to_vector<double>();
    for (std::size_t column = 0; column < 2; ++column) {
      double running = -std::numeric_limits<double>::infinity();
      for (std::size_t i = column; i < x.size(); i += 2) {
        const double high = std::max(running, x[i]);
        running = high + std::log1p(std::exp(std::min(running, x[i]) - high));
        ASSERT_NEAR(got[i], running, tolerance * (1 + std::abs(running))) << i;
      }
    }
  }
}

// As PyTorch 2.15 answers.
TEST_P(CumulativeTest, DifferencesOfNeighbours) {
  const Tensor squares = on(tensor({1, 4, 9, 16}));
  EXPECT_THAT(diff(squares).to_vector<int>(), ElementsAre(3, 5, 7));
  EXPECT_THAT(diff(squares, 2).to_vector<int>(), ElementsAre(2, 2));
  EXPECT_EQ(diff(squares, 5).sizes(), Shape{0});
  EXPECT_TRUE(diff(squares, 0).equal(squares));
  EXPECT_FALSE(diff(squares, 0).is_view_of(squares));
  EXPECT_THAT(diff(on(tensor({true, false, false}))).to(i32).to_vector<int>(), ElementsAre(1, 0));
  const Tensor joined = diff(on(tensor({1, 4})), 1, -1, on(tensor({0.5f})), on(tensor({9})));
  EXPECT_EQ(joined.dtype(), f32);
  EXPECT_THAT(joined.to_vector<float>(), ElementsAre(0.5, 3, 5));
  const Tensor matrix = on(tensor({{1, 4}, {2, 3}}));
  EXPECT_THAT(diff(matrix, 1, 0).to_vector<int>(), ElementsAre(1, -1));
  EXPECT_EQ(diff(matrix, 1, 0).sizes(), Shape({1, 2}));
  EXPECT_THAT(diff(matrix, 1, 1, on(tensor({{0}, {0}}))).to_vector<int>(), ElementsAre(1, 3, 2, 1));
}

TEST_P(CumulativeTest, WritesToGivenTensors) {
  const Tensor t = on(tensor({{3, 1, 4}, {1, 5, 9}}));
  Tensor values = empty({3, 2}, options(i64)).t();
  Tensor indices = empty({2, 3}, options(i64));
  cummax_out(values, indices, t, 1);
  EXPECT_TRUE(values.equal(cummax(t, 1).values));
  EXPECT_TRUE(indices.equal(cummax(t, 1).indices));
  cummin_out(values, indices, t, 0);
  EXPECT_TRUE(values.equal(cummin(t, 0).values));
  Tensor logs = empty({3, 2}, options()).t();
  EXPECT_TRUE(logcumsumexp_out(logs, t.to(f32), 1).equal(logcumsumexp(t.to(f32), 1)));
  Tensor differences = empty({2, 2}, options(i64));
  EXPECT_TRUE(diff_out(differences, t).equal(diff(t)));
}

}  // namespace
}  // namespace gantry
