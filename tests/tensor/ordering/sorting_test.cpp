#include <gantry/tensor/sorting.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::int64_t> positions(const Tensor& indices) {
  EXPECT_EQ(indices.dtype(), i64);
  return indices.to_vector<std::int64_t>();
}

// The numbers, with the sign of zeros and NaN as text.
std::vector<std::string> texts(const Tensor& tensor) {
  std::vector<std::string> result;
  for (const double x : tensor.to_vector<double>()) {
    result.push_back(x != x            ? "nan"
                     : std::signbit(x) ? "-" + std::to_string(-x).substr(0, 3)
                                       : std::to_string(x).substr(0, 3));
  }
  return result;
}

class SortingTest : public testing::PlacedTest {
 protected:
  Tensor special() const { return on(tensor({kNan, 1.0f, -kNan, -0.0f, 0.0f, -kInfinity})); }
};

GANTRY_TEST_PLACES(SortingTest);

// As PyTorch 2.15 answers, stable=True.
TEST_P(SortingTest, NanIsLastAndZerosAreEqual) {
  const auto [values, indices] = sort(special());
  EXPECT_THAT(texts(values), ElementsAre("-inf", "-0.0", "0.0", "1.0", "nan", "nan"));
  EXPECT_THAT(positions(indices), ElementsAre(5, 3, 4, 1, 0, 2));
  const auto [down, down_indices] = sort(special(), -1, true);
  EXPECT_THAT(texts(down), ElementsAre("nan", "nan", "1.0", "-0.0", "0.0", "-inf"));
  EXPECT_THAT(positions(down_indices), ElementsAre(0, 2, 1, 3, 4, 5));
}

TEST_P(SortingTest, SortsAlongAnyDimOfAnyLayout) {
  for (const DType dtype : testing::computing_dtypes()) {
    for (const auto layout :
         {testing::Layout::contiguous, testing::Layout::transposed, testing::Layout::sliced,
          testing::Layout::offset, testing::Layout::expanded}) {
      SCOPED_TRACE(::testing::Message() << dtype << " " << layout);
      const Tensor t = testing::patterned(layout, dtype, device_);
      for (const int dim : {0, 1, 2, -1, -2, -3}) {
        const ValuesAndIndices sorted = sort(t, dim);
        EXPECT_EQ(sorted.values.dtype(), dtype);
        EXPECT_EQ(sorted.values.sizes(), t.sizes());
        EXPECT_TRUE(sorted.values.is_contiguous());
        EXPECT_TRUE(sorted.values.equal(t.gather(dim, sorted.indices)));
        EXPECT_TRUE(argsort(t, dim).equal(sorted.indices));
        const std::int64_t size = t.size(dim);
        EXPECT_TRUE(sorted.values.narrow(dim, 1, size - 1)
                        .ge(sorted.values.narrow(dim, 0, size - 1))
                        .all()
                        .item<bool>());
        const ValuesAndIndices best = topk(t, 2, dim);
        const ValuesAndIndices down = sort(t, dim, true);
        EXPECT_TRUE(best.values.equal(down.values.narrow(dim, 0, 2)));
        EXPECT_TRUE(best.indices.equal(down.indices.narrow(dim, 0, 2)));
        const ValuesAndIndices worst = topk(t, 2, dim, false);
        EXPECT_TRUE(worst.values.equal(sorted.values.narrow(dim, 0, 2)));
        const ValuesAndIndices third = kthvalue(t, 3, dim, true);
        EXPECT_TRUE(third.values.equal(sorted.values.narrow(dim, 2, 1)));
        EXPECT_TRUE(third.indices.equal(sorted.indices.narrow(dim, 2, 1)));
        EXPECT_TRUE(kthvalue(t, 3, dim).values.equal(sorted.values.select(dim, 2)));
        const ValuesAndIndices middle = median(t, dim);
        EXPECT_TRUE(middle.values.equal(sorted.values.select(dim, (size - 1) / 2)));
        EXPECT_TRUE(middle.indices.equal(sorted.indices.select(dim, (size - 1) / 2)));
        EXPECT_TRUE(nanmedian(t, dim).values.equal(middle.values));
      }
      EXPECT_TRUE(msort(t).equal(sort(t, 0).values));
    }
  }
}

TEST_P(SortingTest, LongAndShortFibresAgreeWithTheHost) {
  std::mt19937 random(5);
  for (const std::int64_t length : {100, 3000, 70000}) {
    std::vector<float> numbers(static_cast<std::size_t>(2 * length));
    for (float& x : numbers) x = static_cast<float>(static_cast<int>(random() % 5000)) / 7 - 300;
    const Tensor host = tensor(numbers).view({2, length});
    const Tensor t = on(host);
    EXPECT_TRUE(sort(t).indices.cpu().equal(sort(host).indices));
    EXPECT_TRUE(topk(t, 50).indices.cpu().equal(topk(host, 50).indices));
    EXPECT_TRUE(topk(t, length).values.cpu().equal(sort(host, -1, true).values));
    EXPECT_TRUE(median(t, 1).indices.cpu().equal(median(host, 1).indices));
    EXPECT_TRUE(mode(t).indices.cpu().equal(mode(host).indices));
    EXPECT_TRUE(unique(t).values.cpu().equal(unique(host).values));
  }
}

TEST_P(SortingTest, TensorsWithoutDimsOrElements) {
  const Tensor three = scalar_tensor(3, options());
  for (const ValuesAndIndices& result :
       {sort(three), topk(three, 1), kthvalue(three, 1), median(three, 0), mode(three, -1)}) {
    EXPECT_EQ(result.values.sizes(), Shape{});
    EXPECT_EQ(result.values.item<float>(), 3);
    EXPECT_EQ(result.indices.sizes(), Shape{});
    EXPECT_EQ(result.indices.item<std::int64_t>(), 0);
  }
  EXPECT_EQ(msort(three).sizes(), Shape{});
  EXPECT_EQ(topk(three, 0).values.sizes(), Shape{0});
  EXPECT_EQ(sort(zeros({0, 3}, options()), 0).values.sizes(), Shape({0, 3}));
  EXPECT_EQ(topk(zeros({2, 0}, options()), 0, 0).indices.sizes(), Shape({0, 0}));
  EXPECT_EQ(topk(zeros({2}, options()), 0).indices.sizes(), Shape{0});
  EXPECT_EQ(median(zeros({0, 2}, options()), 1).values.sizes(), Shape{0});
  EXPECT_EQ(mode(zeros({0, 2}, options()), 1, true).values.sizes(), Shape({0, 1}));
  EXPECT_TRUE(std::isnan(median(zeros({0}, options())).item<float>()));
  EXPECT_THAT(unique(zeros({0, 2}, options())).values.sizes(), Shape{0});
  const UniqueElements one = unique(three, true, true, true);
  EXPECT_EQ(one.values.sizes(), Shape{1});
  EXPECT_EQ(one.inverse.sizes(), Shape{});
}

// As PyTorch 2.15 answers where it promises an answer; it leaves the order of equal elements open.
TEST_P(SortingTest, TopkAndKthvalueOfNan) {
  const Tensor t = on(tensor({kNan, 1.0f, 5.0f, kNan}));
  EXPECT_THAT(texts(topk(t, 2).values), ElementsAre("nan", "nan"));
  EXPECT_THAT(positions(topk(t, 2).indices), ElementsAre(0, 3));
  EXPECT_THAT(topk(t, 2, -1, false).values.to_vector<float>(), ElementsAre(1, 5));
  EXPECT_THAT(positions(topk(t, 2, -1, false).indices), ElementsAre(1, 2));
  EXPECT_THAT(texts(kthvalue(t, 3).values), ElementsAre("nan"));
  EXPECT_THAT(positions(kthvalue(t, 3).indices), ElementsAre(0));
}

TEST_P(SortingTest, MediansAreTheLowerOnes) {
  EXPECT_EQ(median(on(tensor({3.0f, 1.0f, 1.0f, 4.0f}))).item<float>(), 1);
  EXPECT_EQ(median(on(tensor({3, 1, 2, 4}))).item<int>(), 2);
  const Tensor t = on(tensor({kNan, 1.0f, kNan, 3.0f}));
  EXPECT_TRUE(std::isnan(median(t).item<float>()));
  EXPECT_EQ(nanmedian(t).item<float>(), 1);
  EXPECT_THAT(positions(median(t, 0).indices), ElementsAre(0));
  EXPECT_THAT(positions(nanmedian(t, 0).indices), ElementsAre(1));
  const ValuesAndIndices none = nanmedian(on(tensor({kNan, kNan})), 0);
  EXPECT_TRUE(std::isnan(none.values.item<float>()));
  EXPECT_EQ(none.indices.item<std::int64_t>(), 0);
  EXPECT_EQ(median(on(tensor({1, 2})), 0, true).values.sizes(), Shape{1});
  const Tensor matrix = on(tensor({{kNan, 2.0f, 1.0f}, {4.0f, 6.0f, 5.0f}}));
  EXPECT_THAT(texts(median(matrix, 1).values), ElementsAre("nan", "5.0"));
  EXPECT_THAT(positions(median(matrix, 1).indices), ElementsAre(0, 2));
  EXPECT_THAT(nanmedian(matrix, 1).values.to_vector<float>(), ElementsAre(1, 5));
}

TEST_P(SortingTest, ModeIsTheSmallestOfTheMostFrequent) {
  const ValuesAndIndices m = mode(on(tensor({3, 1, 1, 3, 2})));
  EXPECT_EQ(m.values.item<int>(), 1);
  EXPECT_EQ(m.indices.item<std::int64_t>(), 2);
  const ValuesAndIndices rows = mode(on(tensor({{1, 2, 2, 1, 5}, {0, 0, 0, 1, 1}})));
  EXPECT_THAT(rows.values.to_vector<int>(), ElementsAre(1, 0));
  EXPECT_THAT(positions(rows.indices), ElementsAre(3, 2));
  EXPECT_EQ(mode(on(tensor({true, false}))).values.item<bool>(), false);
  EXPECT_EQ(mode(on(tensor({kNan, 2.0f, kNan}))).values.item<float>(), 2);
  EXPECT_EQ(mode(on(tensor({{1, 2, 2, 1, 5}, {1, 0, 0, 1, 1}})), 0, true).values.sizes(),
            Shape({1, 5}));
}

TEST_P(SortingTest, UniqueElementsTheirPlacesAndCounts) {
  const auto [values, inverse, counts] =
      unique(on(tensor({{3, 1, 3}, {1, 1, 7}})), true, true, true);
  EXPECT_THAT(values.to_vector<int>(), ElementsAre(1, 3, 7));
  EXPECT_THAT(positions(inverse), ElementsAre(1, 0, 1, 0, 0, 2));
  EXPECT_EQ(inverse.sizes(), Shape({2, 3}));
  EXPECT_THAT(positions(counts), ElementsAre(3, 2, 1));
  const UniqueElements plain = unique(on(tensor({2, 2})));
  EXPECT_FALSE(plain.inverse.defined());
  EXPECT_FALSE(plain.counts.defined());
  // As PyTorch 2.15 answers.
  const auto odd = unique(on(tensor({kNan, 1.0f, kNan, -0.0f, 0.0f})), true, true, true);
  EXPECT_THAT(texts(odd.values), ElementsAre("-0.0", "1.0", "nan", "nan"));
  EXPECT_THAT(positions(odd.inverse), ElementsAre(2, 1, 3, 0, 0));
  EXPECT_THAT(positions(odd.counts), ElementsAre(2, 1, 1, 1));
}

// Also of more elements than a block sorts, and without the inverse.
TEST_P(SortingTest, UniqueTakesTheFirstZero) {
  for (const DType dtype : {f32, f64, f16, bf16}) {
    for (const std::int64_t length : {2, 100, 2049, 40000}) {
      for (const double first : {0.0, -0.0}) {
        for (const std::int64_t place : {std::int64_t{0}, length / 3, length - 2}) {
          Tensor t = full({length}, 3, options()).to(dtype);
          t.narrow(0, place, 1).fill_(first);
          t.narrow(0, place + 1, 1).fill_(-first);
          const Tensor values = unique(t).values;
          ASSERT_EQ(values[0].item<double>(), 0);
          ASSERT_EQ(std::signbit(values[0].item<double>()), std::signbit(first))
              << dtype << " " << length << " " << place;
          ASSERT_EQ(values.size(0), length == 2 ? 1 : 2);
          ASSERT_EQ(std::signbit(unique(t, true, true).values[0].item<double>()),
                    std::signbit(first));
        }
      }
    }
  }
}

// NaNs of both signs are last, each by itself. A result has at most twice the memory it needs.
TEST_P(SortingTest, UniqueElementsOfManyKeepNansApart) {
  for (const DType dtype : {f32, f64, f16, bf16}) {
    for (const std::int64_t length : {10, 1000, 40000}) {
      const Tensor numbers = arange(length, options()).remainder(100).to(dtype);
      const Tensor nan = full({2}, kNan, options()).to(dtype);
      const Tensor values = unique(cat({nan.neg(), numbers, nan, nan.neg()})).values;
      const std::int64_t different = std::min<std::int64_t>(length, 100);
      ASSERT_EQ(values.size(0), different + 6) << dtype << " " << length;
      EXPECT_TRUE(values.narrow(0, 0, different).equal(numbers.narrow(0, 0, different)));
      EXPECT_EQ(values.isnan().sum().item<std::int64_t>(), 6);
      EXPECT_LE(values.storage().bytes(), 2 * values.nbytes());
      const Tensor runs = unique_consecutive(cat({nan, numbers, nan.neg()})).values;
      ASSERT_EQ(runs.size(0), length + 4) << dtype << " " << length;
      EXPECT_TRUE(runs.narrow(0, 2, length).equal(numbers));
    }
  }
}

TEST_P(SortingTest, UniqueOfEveryDTypeAgreesWithASet) {
  std::mt19937 random(9);
  for (const DType dtype : testing::computing_dtypes()) {
    SCOPED_TRACE(dtype);
    std::vector<double> numbers(5000);
    for (double& x : numbers) x = dtype == bool_ ? random() % 2 : random() % 90;
    const Tensor t = on(tensor(numbers).to(dtype)).view({50, 100}).transpose(0, 1);
    const auto [values, inverse, counts] = unique(t, true, true, true);
    const std::set<double> different(numbers.begin(), numbers.end());
    EXPECT_EQ(values.to_vector<double>(), std::vector<double>(different.begin(), different.end()));
    EXPECT_TRUE(values.index_select(0, inverse.reshape({-1})).view(t.sizes()).equal(t));
    EXPECT_EQ(counts.sum().item<std::int64_t>(), 5000);
    EXPECT_EQ(counts[3 % counts.size(0)].item<std::int64_t>(),
              t.eq(values[3 % counts.size(0)]).sum().item<std::int64_t>());
  }
}

TEST_P(SortingTest, RunsOfEqualElements) {
  const auto [values, inverse, counts] =
      unique_consecutive(on(tensor({1, 1, 2, 2, 1})), true, true);
  EXPECT_THAT(values.to_vector<int>(), ElementsAre(1, 2, 1));
  EXPECT_THAT(positions(inverse), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT(positions(counts), ElementsAre(2, 2, 1));
}

// As PyTorch 2.15 answers.
TEST_P(SortingTest, UniqueSlices) {
  const Tensor rows = on(tensor({{1, 2}, {1, 2}, {0, 3}}));
  const auto [values, inverse, counts] = unique(rows, true, true, true, 0);
  EXPECT_TRUE(values.equal(on(tensor({{0, 3}, {1, 2}}))));
  EXPECT_THAT(positions(inverse), ElementsAre(1, 1, 0));
  EXPECT_THAT(positions(counts), ElementsAre(1, 2));
  const UniqueElements columns = unique(rows, true, true, false, -1);
  EXPECT_TRUE(columns.values.equal(rows));
  EXPECT_THAT(positions(columns.inverse), ElementsAre(0, 1));
  EXPECT_FALSE(columns.counts.defined());
  // -0 equals 0, and NaN nothing.
  const auto odd = unique(on(tensor({{1.0f, kNan}, {1.0f, kNan}, {0.0f, 3.0f}, {-0.0f, 3.0f}})),
                          true, true, true, 0);
  EXPECT_THAT(texts(odd.values.reshape({-1})),
              ElementsAre("0.0", "3.0", "1.0", "nan", "1.0", "nan"));
  EXPECT_THAT(positions(odd.inverse), ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(positions(odd.counts), ElementsAre(2, 1, 1));
  const auto runs = unique_consecutive(on(tensor({{1, 2}, {1, 2}, {0, 3}, {1, 2}})), true, true, 0);
  EXPECT_TRUE(runs.values.equal(on(tensor({{1, 2}, {0, 3}, {1, 2}}))));
  EXPECT_THAT(positions(runs.inverse), ElementsAre(0, 0, 1, 2));
  EXPECT_THAT(positions(runs.counts), ElementsAre(2, 1, 1));
  // Without elements.
  const auto none = unique(zeros({0, 3}, options()), true, true, true, 0);
  EXPECT_EQ(none.values.sizes(), Shape({0, 3}));
  EXPECT_EQ(none.inverse.sizes(), Shape{0});
  EXPECT_EQ(none.counts.sizes(), Shape{0});
  EXPECT_EQ(unique_consecutive(zeros({3, 0}, options()), true, true, 1).values.sizes(),
            Shape({3, 0}));
  EXPECT_ERROR(unique(zeros({3, 0}, options()), true, true, true, 0), ShapeError,
               "unique: There are 0 sized dimensions, and they aren't selected, so unique cannot "
               "be applied");
  EXPECT_ERROR(unique(zeros({}, options()), true, false, false, 0), IndexError,
               "unique: Dimension specified as 0 but tensor has no dimensions");
  EXPECT_ERROR(
      unique_consecutive(zeros({2}, options()), false, false, 1), IndexError,
      "unique_consecutive: Dimension out of range (expected to be in range of [-1, 0], but "
      "got 1)");
}

TEST_P(SortingTest, UniqueSlicesOfEveryShapeAgreeWithASet) {
  std::mt19937 random(10);
  for (const DType dtype : testing::computing_dtypes()) {
    for (const Shape& sizes : {Shape{40, 3}, Shape{300, 1}, Shape{5, 7, 30}, Shape{64}, Shape{1, 9},
                               Shape{9, 1}, Shape{6, 2, 5}}) {
      std::vector<double> numbers(static_cast<std::size_t>(sizes.product()));
      for (double& x : numbers) x = random() % 2;
      const Tensor t = on(tensor(numbers).to(dtype)).view(sizes);
      for (int dim = 0; dim < t.dim(); ++dim) {
        SCOPED_TRACE(::testing::Message() << dtype << ' ' << sizes << ' ' << dim);
        const auto [values, inverse, counts] = unique(t, true, true, true, dim);
        std::map<std::vector<double>, std::vector<std::int64_t>> slices;
        for (std::int64_t i = 0; i < t.size(dim); ++i) {
          slices[t.select(dim, i).to_vector<double>()].push_back(i);
        }
        ASSERT_EQ(values.size(dim), static_cast<std::int64_t>(slices.size()));
        std::vector<std::int64_t> wanted(static_cast<std::size_t>(t.size(dim)));
        std::int64_t k = 0;
        for (const auto& [slice, places] : slices) {
          EXPECT_EQ(values.select(dim, k).to_vector<double>(), slice);
          EXPECT_EQ(counts[k].item<std::int64_t>(), static_cast<std::int64_t>(places.size()));
          for (const std::int64_t place : places) wanted[static_cast<std::size_t>(place)] = k;
          ++k;
        }
        EXPECT_EQ(inverse.to_vector<std::int64_t>(), wanted);
        // All runs of equal slices, in place.
        const auto runs = unique_consecutive(t, true, true, dim);
        EXPECT_TRUE(runs.values.index_select(dim, runs.inverse).equal(t));
        EXPECT_EQ(runs.counts.sum().item<std::int64_t>(), t.size(dim));
        for (std::int64_t i = 1; i < runs.values.size(dim); ++i) {
          EXPECT_FALSE(runs.values.select(dim, i).equal(runs.values.select(dim, i - 1)));
        }
      }
    }
  }
}

// As PyTorch 2.15 answers.
TEST_P(SortingTest, MembersOfASet) {
  const Tensor t = on(tensor({1, 2, 3}));
  const auto bools = [](const Tensor& x) { return x.to_vector<std::uint8_t>(); };
  EXPECT_THAT(bools(isin(t, on(tensor({2, 5}))).to(u8)), ElementsAre(0, 1, 0));
  EXPECT_THAT(bools(isin(t, on(tensor({2, 5})), false, true).to(u8)), ElementsAre(1, 0, 1));
  EXPECT_THAT(bools(isin(t, 2).to(u8)), ElementsAre(0, 1, 0));
  EXPECT_TRUE(isin(2, on(tensor({2}))).item<bool>());
  EXPECT_EQ(isin(2, on(tensor({2}))).sizes(), Shape{});
  EXPECT_THAT(bools(isin(on(tensor({kNan, 1.0f})), on(tensor({kNan}))).to(u8)), ElementsAre(0, 0));
  EXPECT_THAT(bools(isin(on(tensor({1, 2})), on(tensor({2.5f, 2.0f}))).to(u8)), ElementsAre(0, 1));
  EXPECT_THAT(bools(isin(on(tensor({-0.0f})), on(tensor({0.0f}))).to(u8)), ElementsAre(1));
  const Tensor none = isin(on(tensor({{1, 2}})), zeros({0}, options(i64)), false, true);
  EXPECT_EQ(none.sizes(), Shape({1, 2}));
  EXPECT_THAT(bools(none.to(u8)), ElementsAre(1, 1));
}

TEST_P(SortingTest, TooLongForAGpuIsRefused) {
  if (device_.is_cpu() || platform() == Platform::simulated) GTEST_SKIP() << "needs a GPU";
  const Tensor t = zeros({1}, options(u8)).expand({std::int64_t{1} << 32});
  EXPECT_THROW((void)topk(t, 1), NotSupported);
  EXPECT_THROW((void)kthvalue(t, 1), NotSupported);
  EXPECT_THROW((void)argsort(t), NotSupported);
}

TEST_P(SortingTest, WritesToGivenTensorsInAnyLayout) {
  const Tensor t = on(tensor({{3, 1, 2}, {5, 9, 7}}));
  const ValuesAndIndices expected = sort(t, 1, true);
  Tensor values = empty({3, 2}, options(i64)).t();
  Tensor indices = empty({2, 6}, options(i64)).slice(1, 0, 6, 2);
  values.fill_(-1);
  const auto [a, b] = sort_out(values, indices, t, 1, true);
  EXPECT_EQ(&a, &values);
  EXPECT_EQ(&b, &indices);
  EXPECT_TRUE(values.equal(expected.values));
  EXPECT_TRUE(indices.equal(expected.indices));
  EXPECT_TRUE(argsort_out(indices, t).equal(argsort(t)));
  EXPECT_TRUE(msort_out(values, t).equal(msort(t)));
  Tensor row = empty({2}, options(i64));
  Tensor places = empty({2}, options(i64));
  kthvalue_out(row, places, t, 2);
  EXPECT_TRUE(row.equal(kthvalue(t, 2).values));
  median_out(row, places, t, 1);
  EXPECT_TRUE(places.equal(median(t, 1).indices));
  nanmedian_out(row, places, t, -1);
  EXPECT_TRUE(row.equal(median(t, 1).values));
  mode_out(row, places, t);
  EXPECT_TRUE(row.equal(mode(t).values));
  EXPECT_TRUE(places.equal(mode(t).indices));
  topk_out(row = empty({2, 1}, options(i64)), places = empty({2, 1}, options(i64)), t, 1);
  EXPECT_TRUE(row.equal(topk(t, 1).values));
  Tensor is_in = empty({2, 3}, options(bool_));
  EXPECT_TRUE(isin_out(is_in, t, 9).equal(t.eq(9)));
}

}  // namespace
}  // namespace gantry
