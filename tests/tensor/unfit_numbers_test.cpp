// Numbers that no element of the dtype can be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <gantry/core/error.hpp>
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/contractions.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/sorting.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class UnfitNumbersTest : public testing::PlacedTest {};

GANTRY_TEST_PLACES(UnfitNumbersTest);

TEST_P(UnfitNumbersTest, ALogicalOperationAsksOnlyWhetherTheyAreZero) {
  const Tensor bytes = on(tensor({0, 1}).to(u8));
  EXPECT_THAT(bytes.logical_or(256).to_vector<bool>(), ElementsAre(true, true));
  EXPECT_THAT(bytes.logical_and(256).to_vector<bool>(), ElementsAre(false, true));
  EXPECT_THAT(bytes.logical_xor(-512).to_vector<bool>(), ElementsAre(true, false));
  const Tensor halves = on(tensor({0.0F, 1.0F}).to(f16));
  EXPECT_THAT(halves.logical_and(1e-9F).to_vector<bool>(), ElementsAre(false, true));
  EXPECT_THAT(halves.logical_or(1e-300).to_vector<bool>(), ElementsAre(true, true));
  EXPECT_THAT(halves.logical_or(NAN).to_vector<bool>(), ElementsAre(true, true));
  EXPECT_THAT(halves.logical_or(0).to_vector<bool>(), ElementsAre(false, true));
}

TEST_P(UnfitNumbersTest, FactorsOfProductsMustFit) {
  const Tensor matrix = on(ones({2, 2}));
  const Tensor vector = on(ones({2}));
  for (const bool is_beta : {true, false}) {
    const double beta = is_beta ? 1e39 : 1;
    const double alpha = is_beta ? 1 : 1e39;
    EXPECT_ERROR(matrix.addmm(matrix, matrix, beta, alpha), InvalidArgument, "addmm: ");
    EXPECT_ERROR(vector.addmv(matrix, vector, beta, alpha), InvalidArgument, "addmv: ");
    EXPECT_ERROR(addr(matrix, vector, vector, beta, alpha), InvalidArgument, "addr: ");
  }
  const Tensor bytes = on(ones({2}).to(u8));
  EXPECT_ERROR(addr(on(ones({2, 2}).to(u8)), bytes, bytes, 300, 1), InvalidArgument, "addr: ");
}

TEST_P(UnfitNumbersTest, SearchesFindThePlaceOfNumbersBeyondTheRange) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor halves = on(tensor({-kInfinity, -1.0F, 1.0F, kInfinity}).to(f16));
  for (const bool right : {false, true}) {
    const auto place = [&](const Tensor& sequence, const Scalar& number) {
      return searchsorted(sequence, number, false, right).item<std::int64_t>();
    };
    EXPECT_EQ(place(halves, 1e5), 3);
    EXPECT_EQ(place(halves, -1e5), 1);
    const Tensor bytes = on(tensor({0, 1, 255}).to(u8));
    EXPECT_EQ(place(bytes, 300), 3);
    EXPECT_EQ(place(bytes, -1), 0);
  }
}

TEST_P(UnfitNumbersTest, NoElementIsOneOfThem) {
  const Tensor bytes = on(tensor({1, 44, 255}).to(u8));
  for (const int number : {300, -255, -1, 257}) {
    EXPECT_THAT(isin(bytes, number).to_vector<bool>(), ElementsAre(false, false, false)) << number;
    EXPECT_FALSE(isin(number, bytes).item<bool>());
    EXPECT_TRUE(isin(number, bytes, false, true).item<bool>());
  }
  EXPECT_TRUE(isin(44, bytes).item<bool>());
}

TEST_P(UnfitNumbersTest, RampsHaveTheirEndsOrAreRefused) {
  const TensorOptions bytes{.dtype = u8, .device = device_};
  EXPECT_ERROR(linspace(0, 300, 3, bytes), InvalidArgument, "linspace: value cannot be converted");
  EXPECT_ERROR(linspace(-1, 1, 3, bytes), InvalidArgument, "linspace: ");
  EXPECT_ERROR(linspace(0, NAN, 3, {.dtype = i32, .device = device_}), InvalidArgument,
               "linspace: ");
  EXPECT_ERROR(linspace(0, 1e39, 3, {.device = device_}), InvalidArgument, "linspace: ");
  EXPECT_ERROR(logspace(0, 3, 2, 10, bytes), InvalidArgument, "logspace: ");
  EXPECT_ERROR(arange(250, 260, 4, bytes), InvalidArgument, "arange: ");
  EXPECT_EQ(arange(0, 256, 1, bytes).select(0, 255).item<int>(), 255);
  EXPECT_THAT(arange(250, 258, 4, bytes).to_vector<int>(), ElementsAre(250, 254));
}

TEST_P(UnfitNumbersTest, AValueOfTheCpuIsANumberWhereverTheTensorIs) {
  EXPECT_ERROR(on(ones({2}).to(u8)).fill_(tensor(300)), InvalidArgument, "fill_: ");
  EXPECT_ERROR(on(ones({2}).to(f16)).fill_(tensor(1e6F)), InvalidArgument, "fill_: ");
}

}  // namespace
}  // namespace gantry
