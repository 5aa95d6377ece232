#include <gantry/tensor/binning.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/sorting.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class BinningTest : public testing::PlacedTest {};

GANTRY_TEST_PLACES(BinningTest);

TEST_P(BinningTest, FindsThePlaceInASortedSequence) {
  std::mt19937 random(3);
  for (const DType dtype : testing::computing_dtypes()) {
    SCOPED_TRACE(dtype);
    const unsigned range = dtype == bool_ ? 2 : 60;
    std::vector<double> sequence(40);
    std::vector<double> values(300);
    for (double& x : sequence) x = random() % range;
    for (double& x : values) x = random() % range;
    std::sort(sequence.begin(), sequence.end());
    const Tensor s = on(tensor(sequence).to(dtype));
    const Tensor v = on(tensor(values).to(dtype)).view({20, 15}).transpose(0, 1);
    const std::vector<double> in_order = v.to_vector<double>();
    for (const bool right : {false, true}) {
      std::vector<std::int64_t> expected;
      for (const double x : in_order) {
        const auto at = right ? std::upper_bound(sequence.begin(), sequence.end(), x)
                              : std::lower_bound(sequence.begin(), sequence.end(), x);
        expected.push_back(at - sequence.begin());
      }
      const Tensor places = searchsorted(s, v, false, right);
      EXPECT_EQ(places.sizes(), v.sizes());
      EXPECT_EQ(places.to_vector<std::int64_t>(), expected);
      EXPECT_TRUE(bucketize(v, s, false, right).equal(places));
      const Tensor narrow = searchsorted(s, v, true, right);
      EXPECT_EQ(narrow.dtype(), i32);
      EXPECT_TRUE(narrow.to(i64).equal(places));
    }
  }
}

// As PyTorch 2.15 answers, except for NaN in a sequence.
TEST_P(BinningTest, RowsNumbersNanAndSorters) {
  const Tensor rows = on(tensor({{1, 3, 5}, {2, 4, 6}}));
  EXPECT_THAT(searchsorted(rows, on(tensor({{3, 6}, {3, 6}}))).to_vector<int>(),
              ElementsAre(1, 3, 1, 2));
  EXPECT_EQ(searchsorted(on(tensor({1.0f, 2.0f})), 2).item<int>(), 1);
  EXPECT_EQ(searchsorted(on(tensor({1.0f, 2.0f})), 2, false, true).item<int>(), 2);
  EXPECT_EQ(searchsorted(on(tensor({1.0f, 2.0f})), 2, false, false, "right").item<int>(), 2);
  EXPECT_EQ(searchsorted(on(tensor({1, 2})), 1.5).item<int>(), 1);
  EXPECT_THAT(
      searchsorted(on(tensor({1.0f, 2.0f})), on(tensor({kNan, 1.0f, 3.0f}))).to_vector<int>(),
      ElementsAre(2, 0, 2));
  EXPECT_THAT(searchsorted(on(tensor({1.0f, kNan})), on(tensor({0.5f, kNan}))).to_vector<int>(),
              ElementsAre(0, 1));
  EXPECT_THAT(searchsorted(zeros({2, 0}, options()), zeros({2, 3}, options())).to_vector<int>(),
              ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_EQ(searchsorted(on(tensor({1})), zeros({0, 3}, options(i64))).sizes(), Shape({0, 3}));
  const Tensor mixed = on(tensor({{5, 1, 3}, {2, 6, 4}}));
  const Tensor values = on(tensor({{3, 6}, {3, 6}}));
  EXPECT_TRUE(searchsorted(mixed, values, false, true, {}, argsort(mixed))
                  .equal(searchsorted(rows, values, false, true)));
  EXPECT_EQ(bucketize(2, on(tensor({1, 2}))).item<int>(), 1);
  EXPECT_THAT(message_of<IndexError>([&] {
                (void)searchsorted(on(tensor({1, 2, 3})), on(tensor({1})), false, false, {},
                                   on(tensor({0, 1, 5})));
                Device::cuda(0).is_cuda() && device_.is_cuda()
                    ? Stream::current(device_).synchronize()
                    : void();
              }),
              ::testing::HasSubstr("index 5 is out of bounds"));
}

TEST_P(BinningTest, CountsIntegers) {
  std::mt19937 random(4);
  for (const DType dtype : {bool_, u8, i8, i16, i32, i64}) {
    for (const unsigned range : {2u, 100u, 6000u}) {
      if (range == 6000 && (dtype == u8 || dtype == i8)) continue;
      if (range > 2 && dtype == bool_) continue;
      SCOPED_TRACE(::testing::Message() << dtype << " " << range);
      std::vector<std::int64_t> numbers(30000);
      std::vector<std::int64_t> expected(range);
      for (std::int64_t& x : numbers) ++expected[static_cast<std::size_t>(x = random() % range)];
      const Tensor t = on(tensor(numbers).to(dtype));
      EXPECT_EQ(bincount(t).to_vector<std::int64_t>(), expected);
      expected.resize(range + 5);
      EXPECT_EQ(bincount(t, {}, range + 5).to_vector<std::int64_t>(), expected);
    }
  }
  EXPECT_THAT(bincount(zeros({0}, options(i64)), {}, 3).to_vector<int>(), ElementsAre(0, 0, 0));
  EXPECT_EQ(bincount(zeros({0}, options(i64))).sizes(), Shape{0});
  EXPECT_THAT(bincount(on(tensor({5, 0, 1, 0, 1, 0})).slice(0, 1, 6, 2)).to_vector<int>(),
              ElementsAre(3));
}

TEST_P(BinningTest, RefusesTheLargestInteger) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  const Tensor t = on(tensor({kLargest, std::int64_t{0}}));
  const char* text = "bincount: expected integers below 2^63 - 1, but got 9223372036854775807";
  EXPECT_ERROR(bincount(t), InvalidArgument, text);
  EXPECT_ERROR(bincount(t, {}, 3), InvalidArgument, text);
  EXPECT_ERROR(bincount(t, on(ones({2})), 3), InvalidArgument, text);
}

TEST_P(BinningTest, AddsWeightsInOrder) {
  std::mt19937 random(6);
  std::vector<std::int64_t> numbers(20000);
  std::vector<float> weights(20000);
  std::vector<float> expected(7);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int64_t>(random() % 7);
    weights[i] = static_cast<float>(random() % 1000) / 3.0f;
    expected[static_cast<std::size_t>(numbers[i])] += weights[i];
  }
  const Tensor sums = bincount(on(tensor(numbers)), on(tensor(weights)));
  EXPECT_EQ(sums.dtype(), f32);
  EXPECT_EQ(sums.to_vector<float>(), expected);
  const Tensor integers = bincount(on(tensor({1, 2})), on(tensor({1, 2})));
  EXPECT_EQ(integers.dtype(), f64);
  EXPECT_THAT(integers.to_vector<double>(), ElementsAre(0, 1, 2));
  EXPECT_EQ(bincount(on(tensor({1})), on(tensor({1.0f}).to(f16))).dtype(), f64);
}

// As PyTorch 2.15 answers.
TEST_P(BinningTest, Histograms) {
  EXPECT_THAT(histc(on(tensor({1.0f, 2.0f, 3.0f})), 2).to_vector<float>(), ElementsAre(1, 2));
  EXPECT_THAT(histc(on(tensor({1.0f, 2.0f, kNan, kInfinity})), 2, 0, 3).to_vector<float>(),
              ElementsAre(1, 1));
  EXPECT_THAT(histc(on(tensor({1.0f, 1.0f})), 2).to_vector<float>(), ElementsAre(0, 2));
  EXPECT_THAT(histc(zeros({0}, options()), 2).to_vector<float>(), ElementsAre(0, 0));
  EXPECT_EQ(histc(zeros({3}, options())).sizes(), Shape{100});
  for (const DType dtype : {f16, bf16, f32, f64}) {
    const Tensor counts = histc(on(tensor({1.0f, 2.0f}).to(dtype)), 2);
    EXPECT_EQ(counts.dtype(), dtype);
    EXPECT_THAT(counts.to_vector<double>(), ElementsAre(1, 1));
  }
  std::mt19937 random(8);
  std::vector<float> numbers(40000);
  for (float& x : numbers) x = static_cast<float>(random() % 100000) / 997.0f;
  for (const std::int64_t bins : {10, 9000}) {
    std::vector<double> expected(static_cast<std::size_t>(bins));
    for (const float x : numbers) {
      if (x < 5.0f || x > 77.0f) continue;
      const auto bin = static_cast<std::int64_t>((x - 5.0f) * static_cast<float>(bins) / 72.0f);
      ++expected[static_cast<std::size_t>(std::min(bin, bins - 1))];
    }
    EXPECT_EQ(histc(on(tensor(numbers)), bins, 5, 77).to_vector<double>(), expected);
  }
}

TEST_P(BinningTest, HistogramsOfIntegersAreExact) {
  const auto counted = [](const Tensor& t) { return t.to_vector<std::int64_t>(); };
  const Tensor t = on(tensor({1, 2, 3, 4, 4, 7}));
  EXPECT_THAT(counted(histc(t, 3)), ElementsAre(2, 3, 1));
  EXPECT_THAT(counted(histc(t, 2, 2, 4)), ElementsAre(1, 3));
  EXPECT_THAT(counted(histc(t, 4, -1.0, 7)), ElementsAre(0, 2, 3, 1));
  EXPECT_THAT(counted(histc(on(tensor({5, 5})), 2)), ElementsAre(0, 2));
  EXPECT_THAT(counted(histc(zeros({0}, options(i64)), 2)), ElementsAre(0, 0));
  for (const DType dtype : {u8, i8, i16, i32, i64}) {
    const Tensor counts = histc(t.to(dtype), 3);
    EXPECT_EQ(counts.dtype(), i64);
    EXPECT_THAT(counted(counts), ElementsAre(2, 3, 1));
    EXPECT_THAT(counted(histc(ones({700}, options(dtype)), 1, 0, 1)), ElementsAre(700));
  }
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHigh = std::numeric_limits<std::int64_t>::max();
  const Tensor far = on(tensor(std::vector<std::int64_t>{kLow, -1, 0, kHigh - 1, kHigh}));
  EXPECT_THAT(counted(histc(far, 4)), ElementsAre(1, 1, 1, 2));
  EXPECT_THAT(counted(histc(far, 2, kHigh - 1, kHigh)), ElementsAre(1, 1));
  EXPECT_THAT(counted(histc(on(tensor(std::vector<std::int64_t>{kHigh})), 2)), ElementsAre(0, 1));
  EXPECT_THAT(counted(histc(on(tensor(std::vector<std::int64_t>{kLow})), 2)), ElementsAre(1, 0));
  std::mt19937_64 random(8);
  std::vector<std::int64_t> numbers(20000);
  for (std::int64_t& x : numbers) x = static_cast<std::int64_t>(random() % 100000) - 50000;
  for (const std::int64_t bins : {7, 5000}) {
    std::vector<std::int64_t> expected(static_cast<std::size_t>(bins));
    for (const std::int64_t x : numbers) {
      if (x < -40000 || x > 41001) continue;
      ++expected[static_cast<std::size_t>(std::min((x + 40000) * bins / 81001, bins - 1))];
    }
    EXPECT_EQ(counted(histc(on(tensor(numbers)), bins, -40000, 41001)), expected);
  }
  EXPECT_ERROR(histc(t, 2, 0.5, 3), InvalidArgument,
               "histc: expected a whole number for argument 'min' with a tensor of Long, but got "
               "0.5");
  EXPECT_ERROR(histc(t, 2, 0, 1e30), InvalidArgument, "for argument 'max'");
  EXPECT_ERROR(histc(t, 2, 3, 1), InvalidArgument, "max must be larger than min, but got [3, 1]");
  EXPECT_ERROR(histc(t.gt(2), 2), DTypeError, "histc: expected a tensor of numbers, but got Bool");
  Tensor out = full({3}, 9, options(i32));
  EXPECT_ERROR(histc_out(out, t.to(i32), 3), DTypeError, "histc");
  EXPECT_THAT(out.to_vector<int>(), ElementsAre(9, 9, 9));
}

TEST_P(BinningTest, WritesToGivenTensors) {
  const Tensor s = on(tensor({1, 3, 5}));
  const Tensor v = on(tensor({{0, 3}, {4, 9}}));
  Tensor out = empty({2, 2}, options(i64)).t();
  EXPECT_TRUE(searchsorted_out(out, s, v).equal(searchsorted(s, v)));
  EXPECT_TRUE(bucketize_out(out, v, s, false, true).equal(bucketize(v, s, false, true)));
  Tensor counts = empty({8}, options()).slice(0, 0, 8, 2);
  EXPECT_TRUE(histc_out(counts, v.to(f32), 4, 0, 8).equal(histc(v.to(f32), 4, 0, 8)));
}

}  // namespace
}  // namespace gantry
