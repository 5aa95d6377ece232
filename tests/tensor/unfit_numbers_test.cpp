// Numbers that no element of the dtype can be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST_P(UnfitNumbersTest, AValueOfTheCpuIsANumberWhereverTheTensorIs) {
  EXPECT_ERROR(on(ones({2}).to(u8)).fill_(tensor(300)), InvalidArgument, "fill_: ");
  EXPECT_ERROR(on(ones({2}).to(f16)).fill_(tensor(1e6F)), InvalidArgument, "fill_: ");
}

}  // namespace
}  // namespace gantry
