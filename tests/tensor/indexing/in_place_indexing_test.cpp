// The in-place operations of indexing: which memory they write and refuse.
#include "tensor/indexing/in_place_indexing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include <gantry/core/error.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::elements;
using ::testing::ElementsAre;

// One in-place operation with an index tensor of two elements and a source of self's shape, which
// is [2, 3].
struct InPlace {
  std::string name;
  std::function<void(const Tensor& self, const Tensor& index, const Tensor& source)> run;
};

const std::vector<InPlace>& operations() {
  static const std::vector<InPlace> kAll = {
      {"index_add", [](const Tensor& t, const Tensor& i,
                       const Tensor& s) { detail::index_add_(t, 0, i, s, 1); }},
      {"index_copy",
       [](const Tensor& t, const Tensor& i, const Tensor& s) { detail::index_copy_(t, 0, i, s); }},
      {"index_reduce", [](const Tensor& t, const Tensor& i,
                          const Tensor& s) { detail::index_reduce_(t, 0, i, s, "amax", true); }},
      {"put_", [](const Tensor& t, const Tensor& i,
                  const Tensor& s) { detail::put_(t, i, s.slice(1, 0, 1), false); }},
      {"scatter",
       [](const Tensor& t, const Tensor& i, const Tensor& s) {
         detail::scatter_(t, 1, i.view({2, 1}), s);
       }},
      {"scatter",
       [](const Tensor& t, const Tensor& i, const Tensor& s) {
         detail::scatter_(t, 1, i.view({2, 1}), s, "multiply");
       }},
      {"scatter_add",
       [](const Tensor& t, const Tensor& i, const Tensor& s) {
         detail::scatter_add_(t, 1, i.view({2, 1}), s);
       }},
      {"scatter_reduce",
       [](const Tensor& t, const Tensor& i, const Tensor& s) {
         detail::scatter_reduce_(t, 1, i.view({2, 1}), s, "mean", false);
       }},
  };
  return kAll;
}

class InPlaceIndexingTest : public testing::PlacedTest {
 protected:
  Tensor matrix() const { return arange(6, options()).view({2, 3}); }
};

GANTRY_TEST_PLACES(InPlaceIndexingTest);

TEST_P(InPlaceIndexingTest, RefuseMemoryThatOverlaps) {
  const Tensor index = on(tensor({0, 1}));
  for (const InPlace& op : operations()) {
    SCOPED_TRACE(op.name);
    const Tensor t = matrix();
    const Tensor repeated = ones({1, 3}, options()).expand({2, 3});
    EXPECT_ERROR(op.run(repeated, index, t), InvalidArgument,
                 op.name + ": unsupported operation: more than one element of the written-to");
    EXPECT_ERROR(op.run(t, index, t), InvalidArgument,
                 op.name + ": unsupported operation: some elements of the input tensor");
    const Tensor integers = arange(6, options(i64)).view({2, 3});
    const Tensor inside = integers.slice(1, 0, 1).view({2});
    EXPECT_ERROR(op.run(integers, inside, zeros_like(integers)), InvalidArgument,
                 op.name + ": unsupported operation: some elements of the input tensor");
    EXPECT_THAT(elements(t), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(elements(integers), ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

TEST_P(InPlaceIndexingTest, AnIndexOutOfRangeChangesNothingOnTheCpu) {
  for (const InPlace& op : operations()) {
    SCOPED_TRACE(op.name);
    const Tensor t = matrix();
    EXPECT_THROW(
        {
          op.run(t, on(tensor({0, 7})), ones_like(t));
          (void)elements(t);
        },
        IndexError);
    if (!device_.is_cpu()) continue;
    EXPECT_THAT(elements(t), ElementsAre(0, 1, 2, 3, 4, 5));
  }
}

TEST_P(InPlaceIndexingTest, WriteThroughViews) {
  const Tensor base = zeros({3, 4}, options());
  const Tensor view = base.t().slice(0, 0, 3, 2);  // columns 0 and 2
  const Tensor source = on(tensor({{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}}));
  detail::index_add_(view, 0, on(tensor({1, 0})), source, 10);
  EXPECT_THAT(elements(base), ElementsAre(40, 0, 10, 0, 50, 0, 20, 0, 60, 0, 30, 0));
  detail::put_(view, on(tensor({1, -1})), on(tensor({7.0f, 8.0f})), false);
  EXPECT_THAT(elements(base), ElementsAre(40, 0, 10, 0, 7, 0, 20, 0, 60, 0, 8, 0));
  detail::masked_scatter_(view, on(tensor({true, false, true})), on(tensor({1.f, 2.f, 3.f, 4.f})));
  EXPECT_THAT(elements(base), ElementsAre(1, 0, 3, 0, 7, 0, 20, 0, 2, 0, 4, 0));
  detail::index_fill_(view, 1, on(tensor({-1})), on(tensor(9)));
  EXPECT_THAT(elements(base), ElementsAre(1, 0, 3, 0, 7, 0, 20, 0, 9, 0, 9, 0));
}

}  // namespace
}  // namespace gantry
