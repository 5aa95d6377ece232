// Sums of bools: an or, in every operation that accumulates, and whatever the factor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/cumulative.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class BoolSumsTest : public testing::PlacedTest {
 protected:
  Tensor self() const { return on(tensor({true, false, false, false})); }
  Tensor index() const { return on(tensor({0, 1, 1, 2})); }
  Tensor source() const { return on(tensor({true, true, true, false})); }
  static std::vector<bool> values(const Tensor& t) {
    EXPECT_EQ(t.dtype(), bool_);
    return t.to_vector<bool>();
  }
};

GANTRY_TEST_PLACES(BoolSumsTest);

TEST_P(BoolSumsTest, FactorsOfIndexAdd) {
  for (const Scalar& alpha : std::vector<Scalar>{1, 2, 256, -1, -2, 1 << 20, true}) {
    SCOPED_TRACE(::testing::Message() << alpha);
    EXPECT_THAT(values(index_add(self(), 0, index(), source(), alpha)),
                ElementsAre(true, true, false, false));
    const Tensor written = self();
    written.index_add_(0, index(), source(), alpha);
    EXPECT_THAT(values(written), ElementsAre(true, true, false, false));
    EXPECT_THAT(values(add(self(), source(), alpha)), ElementsAre(true, true, true, false));
    EXPECT_THAT(values(self().add_(source(), alpha)), ElementsAre(true, true, true, false));
    EXPECT_THAT(values(addcmul(self(), source(), source(), alpha)),
                ElementsAre(true, true, true, false));
  }
  for (const Scalar& alpha : std::vector<Scalar>{0, false}) {
    EXPECT_THAT(values(index_add(self(), 0, index(), source(), alpha)),
                ElementsAre(true, false, false, false));
    EXPECT_THAT(values(add(self(), source(), alpha)), ElementsAre(true, false, false, false));
    EXPECT_THAT(values(addcmul(self(), source(), source(), alpha)),
                ElementsAre(true, false, false, false));
  }
  EXPECT_ERROR(index_add(self(), 0, index(), source(), 0.5), DTypeError,
               "must not be a floating point number");
  // Slices of more than one element, strided.
  const Tensor table = on(zeros({3, 2}, bool_)).t();
  const Tensor rows = on(ones({2, 2}, bool_)).t();
  EXPECT_THAT(values(index_add(table, 1, on(tensor({2, 2})), rows, 2)),
              ElementsAre(false, false, true, false, false, true));
}

TEST_P(BoolSumsTest, Writes) {
  EXPECT_THAT(values(scatter_add(self(), 0, index(), source())),
              ElementsAre(true, true, false, false));
  EXPECT_THAT(values(scatter(self(), 0, index(), source(), "add")),
              ElementsAre(true, true, false, false));
  EXPECT_THAT(values(scatter(self(), 0, index(), 2, "add")), ElementsAre(true, true, true, false));
  EXPECT_THAT(values(scatter(on(ones({4}, bool_)), 0, index(), source(), "multiply")),
              ElementsAre(true, true, false, true));
  EXPECT_THAT(values(scatter_reduce(self(), 0, index(), source(), "sum", false)),
              ElementsAre(true, true, false, false));
  EXPECT_THAT(values(index_reduce(on(ones({4}, bool_)), 0, index(), source(), "prod")),
              ElementsAre(true, true, false, true));
  EXPECT_THAT(values(put(self(), index(), source(), true)), ElementsAre(true, true, false, false));
  EXPECT_THAT(values(self().index_put_({index()}, source(), true)),
              ElementsAre(true, true, false, false));
}

TEST_P(BoolSumsTest, WritesOfNumbers) {
  for (const Scalar& number : std::vector<Scalar>{true, 1, 2, 256, -1}) {
    EXPECT_THAT(values(self().index_put_({index()}, number, true)),
                ElementsAre(true, true, true, false));
    EXPECT_THAT(values(self().index_put_({Slice(1, 3)}, number, true)),
                ElementsAre(true, true, true, false));
    EXPECT_THAT(values(self().index_put_({self()}, number, true)),
                ElementsAre(true, false, false, false));
  }
  EXPECT_THAT(values(self().index_put_({Slice(0, 2)}, 0, true)),
              ElementsAre(true, false, false, false));
}

TEST_P(BoolSumsTest, ReductionsCountOrTest) {
  EXPECT_EQ(source().sum().dtype(), i64);
  EXPECT_EQ(source().sum().item<int>(), 3);
  EXPECT_THAT(source().cumsum(0).to_vector<int>(), ElementsAre(1, 2, 3, 3));
  EXPECT_TRUE(source().sum(bool_).item<bool>());
  EXPECT_FALSE(source().prod(bool_).item<bool>());
  EXPECT_THAT(values(source().cumsum(0, bool_)), ElementsAre(true, true, true, true));
  // 256 of them: a sum of bytes would be 0.
  EXPECT_TRUE(on(ones({256}, bool_)).sum(bool_).item<bool>());
}

TEST_P(BoolSumsTest, ProductsAreRefused) {
  const Tensor square = on(ones({2, 2}, bool_));
  EXPECT_ERROR(mm(square, square), DTypeError, "");
  EXPECT_ERROR(addmm(square, square, square), DTypeError, "");
  EXPECT_ERROR(baddbmm(square, square.view({1, 2, 2}), square.view({1, 2, 2})), DTypeError, "");
  EXPECT_ERROR(sub(square, square), DTypeError, "two bool tensors");
}

}  // namespace
}  // namespace gantry
