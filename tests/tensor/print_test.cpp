#include <gantry/tensor/print.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using ::testing::ThrowsMessage;

class PrintTest : public ::testing::Test {
 protected:
  void TearDown() override { set_print_options({}); }
};

TEST_F(PrintTest, WritesNestedBracketsAndAFooter) {
  EXPECT_EQ(arange(6).view({2, 3}).str(), "[[0, 1, 2],\n [3, 4, 5]]\n[2, 3] i64 cpu");
  EXPECT_EQ(tensor({1, -20}).str(), "[  1, -20]\n[2] i64 cpu");
  EXPECT_EQ(tensor({1.0, 2.0}).str(), "[1., 2.]\n[2] f32 cpu");
  EXPECT_EQ(tensor({1.5, -2.25}).str(), "[ 1.5000, -2.2500]\n[2] f32 cpu");
  EXPECT_EQ(tensor({true, false}).str(), "[ true, false]\n[2] bool cpu");
  EXPECT_EQ(scalar_tensor(2.5).str(), "2.5000\n[] f32 cpu");
  EXPECT_EQ(zeros({0, 3}).str(), "[]\n[0, 3] f32 cpu");
  EXPECT_EQ(Tensor().str(), "[undefined tensor]");
  EXPECT_EQ(arange(8).view({2, 2, 2}).str(),
            "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]\n[2, 2, 2] i64 cpu");
}

TEST_F(PrintTest, ChoosesTheNotationOfNumbers) {
  EXPECT_EQ(tensor({1.0, 20000.0}).str(), "[1.0000e+00, 2.0000e+04]\n[2] f32 cpu");
  EXPECT_EQ(tensor({0.00001, 0.00002}, {.dtype = f64}).str(),
            "[1.0000e-05, 2.0000e-05]\n[2] f64 cpu");
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(tensor({std::nan(""), inf, -inf, 1.0}).str(), "[ nan,  inf, -inf,   1.]\n[4] f32 cpu");
  EXPECT_EQ(tensor({(std::int64_t{1} << 53) + 1}).str(), "[9007199254740993]\n[1] i64 cpu");
  EXPECT_EQ(tensor({0.5}, {.dtype = bf16}).str(), "[0.5000]\n[1] bf16 cpu");
}

TEST_F(PrintTest, SummarizesLargeTensors) {
  EXPECT_EQ(arange(1001).str(), "[   0,    1,    2, ...,  998,  999, 1000]\n[1001] i64 cpu");
  set_print_options({.threshold = 10, .edge_items = 1});
  EXPECT_EQ(arange(12).view({3, 4}).str(),
            "[[ 0, ...,  3],\n ...,\n [ 8, ..., 11]]\n[3, 4] i64 cpu");
  EXPECT_EQ(arange(12).view({2, 6}).str(), "[[ 0, ...,  5],\n [ 6, ..., 11]]\n[2, 6] i64 cpu");
}

TEST_F(PrintTest, BreaksLongLines) {
  set_print_options({.line_width = 12});
  EXPECT_EQ(arange(6).str(), "[0, 1, 2, 3,\n 4, 5]\n[6] i64 cpu");
  set_print_options({.precision = 1});
  EXPECT_EQ(tensor({1.25}).str(), "[1.2]\n[1] f32 cpu");
}

TEST_F(PrintTest, WritesDeviceTensorsInAnyLayout) {
  for (const Device place : testing::all_places()) {
    std::ostringstream out;
    out << arange(6, {.device = place}).view({2, 3}).t();
    EXPECT_EQ(out.str(), "[[0, 3],\n [1, 4],\n [2, 5]]\n[3, 2] i64 " + place.str());
  }
}

TEST_F(PrintTest, RejectsInvalidOptions) {
  EXPECT_THAT([] { set_print_options({.edge_items = 0}); },
              ThrowsMessage<InvalidArgument>(
                  "set_print_options: expected edge_items of at least 1, but got 0"));
  EXPECT_EQ(print_options().edge_items, 3);
}

}  // namespace
}  // namespace gantry
