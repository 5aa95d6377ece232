// Means of many elements at one place, whose sum or number the dtype does not hold.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

class IndexMeansTest : public testing::PlacedTest {
 protected:
  // `first` and `second` in turn.
  Tensor alternating(std::int64_t count, std::int64_t first, std::int64_t second, DType dtype) {
    const Tensor pair = tensor({first, second}).to(dtype);
    return pair.repeat({(count + 1) / 2}).slice(0, 0, count).to(device_);
  }
  // The mean of such elements and, if it counts, of `start`, as f32 has it for 16 bits.
  static double expected(std::int64_t count, std::int64_t first, std::int64_t second,
                         std::int64_t start, bool include_self, DType dtype) {
    const std::int64_t sum =
        first * ((count + 1) / 2) + second * (count / 2) + (include_self ? start : 0);
    const std::int64_t number = count + (include_self ? 1 : 0);
    if (!is_floating_point(dtype)) {
      return std::floor(static_cast<double>(sum) / static_cast<double>(number));
    }
    const Tensor mean = tensor({static_cast<double>(sum) / static_cast<double>(number)}, f64);
    return (dtype == f64 ? mean : mean.to(f32).to(dtype)).item<double>();
  }
  void expect_means(std::int64_t count, std::int64_t first, std::int64_t second, DType dtype) {
    const std::int64_t start = first;
    const Tensor source = alternating(count, first, second, dtype);
    const Tensor self = full({3}, start, dtype).to(device_);
    const Tensor index = ones({count}, i64).to(device_);
    for (const bool include_self : {true, false}) {
      SCOPED_TRACE(::testing::Message() << count << " of " << dtype << ", " << include_self);
      const std::vector<double> means = {static_cast<double>(start),
                                         expected(count, first, second, start, include_self, dtype),
                                         static_cast<double>(start)};
      EXPECT_EQ(scatter_reduce(self, 0, index, source, "mean", include_self).to_vector<double>(),
                means);
      EXPECT_EQ(index_reduce(self, 0, index, source, "mean", include_self).to_vector<double>(),
                means);
      const Tensor written = self.clone();
      written.index_reduce_(0, index, source, "mean", include_self);
      EXPECT_EQ(written.to_vector<double>(), means);
      EXPECT_EQ(written.dtype(), dtype);
    }
  }
};

GANTRY_TEST_PLACES(IndexMeansTest);

TEST_P(IndexMeansTest, SumsBeyondTheDigitsOfTheDtype) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    for (const std::int64_t count : {1, 2, 256, 512, 2049, 5120}) expect_means(count, 0, 1, dtype);
  }
}

TEST_P(IndexMeansTest, NumbersBeyondTheRangeOfTheDtype) {
  for (const DType dtype : {f16, bf16, i8, u8, i16}) expect_means(70000, 1, 3, dtype);
}

TEST_P(IndexMeansTest, SumsBeyondTheRangeOfTheDtype) {
  expect_means(2, 200, 251, u8);
  expect_means(3, -128, -126, i8);
  expect_means(4, 32767, 32765, i16);
  expect_means(3, std::numeric_limits<std::int32_t>::min(),
               std::numeric_limits<std::int32_t>::min() + 2, i32);
  expect_means(8, 60000, 60032, f16);
}

}  // namespace
}  // namespace gantry
