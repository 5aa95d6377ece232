// The differences from PyTorch that docs/reference/tensors.md lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <gantry/core/error.hpp>
#include <gantry/tensor/binning.hpp>
#include <gantry/tensor/contractions.hpp>
#include <gantry/tensor/distributions.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/indexing.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/outputs.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>
#include <gantry/tensor/sorting.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/placed_test.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;

class PytorchDifferencesTest : public testing::PlacedTest {
 protected:
  Tensor mask() const { return on(tensor({true, false})); }
  Tensor ints() const { return on(tensor({3, -7}).to(i32)); }
};

GANTRY_TEST_PLACES(PytorchDifferencesTest);

TEST_P(PytorchDifferencesTest, AnyAndAllOfBytesAreBool) {
  const Tensor bytes = on(tensor({255, 0}).to(u8));
  EXPECT_EQ(any(bytes).dtype(), bool_);
  EXPECT_EQ(all(bytes, 0).dtype(), bool_);
  EXPECT_TRUE(any(bytes).item<bool>());
  EXPECT_FALSE(all(bytes, 0).item<bool>());
}

TEST_P(PytorchDifferencesTest, SignOfNanIsNan) {
  for (const DType dtype : {f16, bf16, f32, f64}) {
    EXPECT_TRUE(std::isnan(sign(on(tensor({NAN}).to(dtype))).item<float>())) << dtype;
  }
}

TEST_P(PytorchDifferencesTest, LinspaceTruncatesNumbersNotEnds) {
  EXPECT_THAT(linspace(2.25, 3.6, 7, {.dtype = i32, .device = device_}).to_vector<int>(),
              ElementsAre(2, 2, 2, 2, 3, 3, 3));
  EXPECT_THAT(linspace(-1, 5, 10, {.dtype = i16, .device = device_}).to_vector<int>(),
              ElementsAre(-1, 0, 0, 1, 1, 2, 3, 3, 4, 5));
}

TEST_P(PytorchDifferencesTest, SubAcceptsOneBool) {
  EXPECT_THAT((1 - mask()).to_vector<int>(), ElementsAre(0, 1));
  EXPECT_THAT((mask() - on(tensor({1.0f, 2.0f}))).to_vector<float>(), ElementsAre(0, -2));
  EXPECT_ERROR(mask() - mask(), DTypeError, "with two bool tensors is not supported");
}

TEST_P(PytorchDifferencesTest, NumbersOfF16OperationsKeepF32) {
  const Tensor three = on(tensor({3.0}).to(f16));
  const auto expected = [](float value) { return static_cast<float>(float16(value)); };
  EXPECT_EQ(remainder(three, 0.1).item<float>(), expected(std::fmod(3.0f, 0.1f)));
  EXPECT_EQ(fmod(three, 0.1).item<float>(), expected(std::fmod(3.0f, 0.1f)));
  EXPECT_EQ(floor_divide(three, 0.1).item<float>(), 29);
  // 255.5 in bf16 is 256, whose power would be infinite.
  EXPECT_TRUE(std::isnan(pow(on(tensor({-1.5}).to(bf16)), 255.5).item<float>()));
}

TEST_P(PytorchDifferencesTest, BlocksDoNotOverflow) {
  EXPECT_THAT(histc(on(tensor({-3e38f, 0.0f, 3e38f})), 3, -3e38, 3e38).to_vector<int>(),
              ElementsAre(1, 1, 1));
  Tensor factors = full({300}, 1e4, options());
  factors[0] = 0;
  EXPECT_EQ(prod(factors).item<float>(), 0);
}

TEST_P(PytorchDifferencesTest, OutputsAreNotResized) {
  Tensor empty_output = on(zeros({0}));
  const Tensor column = on(ones({2, 3}));
  EXPECT_ERROR(sum_out(empty_output, column, 1), ShapeError,
               "sum: expected an output of shape [2]");
  EXPECT_ERROR(cat_out(empty_output, {column}), ShapeError, "cat: expected an output of shape");
  EXPECT_ERROR(mm_out(empty_output, column, column.t()), ShapeError, "mm: expected an output");
}

TEST_P(PytorchDifferencesTest, ContractionsNeedOneDType) {
  const Tensor singles = on(ones({2}));
  EXPECT_ERROR(einsum("i,j", singles, singles.to(f64)), DTypeError, "operands of one dtype");
  EXPECT_ERROR(kron(on(ones({1, 1, 1, 1, 1})), singles), ShapeError, "at most 4 dims");
}

TEST_P(PytorchDifferencesTest, ExpandedTensorsAreNotWritten) {
  const Tensor repeated = on(zeros({2, 1})).expand({2, 2});
  EXPECT_ERROR(repeated.fill_(1), InvalidArgument, "clone()");
  EXPECT_ERROR(repeated.zero_(), InvalidArgument, "clone()");
  EXPECT_EQ(repeated.sum().item<float>(), 0);
}

TEST_P(PytorchDifferencesTest, SomeOperationsAcceptMoreDTypes) {
  EXPECT_EQ(add(ints(), ints(), true).dtype(), i32);
  EXPECT_EQ(argmax(mask()).item<int>(), 0);
  EXPECT_EQ(argmin(mask()).item<int>(), 1);
  for (const auto& rounded : {floor(mask()), ceil(mask()), trunc(mask()), round(mask())}) {
    EXPECT_TRUE(rounded.equal(mask()));
  }
  EXPECT_EQ(gelu(ints()).dtype(), f32);
  EXPECT_EQ(silu(ints()).dtype(), f32);
  EXPECT_TRUE(abs(mask()).equal(mask()));
  const Tensor histogram = histc(ints(), 2);
  EXPECT_EQ(histogram.dtype(), i64);
  EXPECT_THAT(histogram.to_vector<int>(), ElementsAre(1, 1));
}

TEST_P(PytorchDifferencesTest, ManyCategoriesAndSlicesWithNan) {
  const Tensor weights = on(ones({1}, f16)).expand({(std::int64_t{1} << 24) + 1});
  EXPECT_LE(multinomial(weights, 1, true).item<std::int64_t>(), std::int64_t{1} << 24);
  const Tensor slices = on(tensor({{1.0f, NAN}, {1.0f, NAN}, {0.0f, 3.0f}}));
  const auto found = unique(slices, true, true, false, 0);
  EXPECT_EQ(found.values.size(0), 3);
  EXPECT_THAT(found.inverse.to_vector<int>(), ElementsAre(1, 2, 0));
}

template <class T>
concept IsDim = requires(Tensor t, T dim) {
  t.sort(dim, -1);
  t.sum({dim});
};
static_assert(IsDim<int> && !IsDim<bool>);

TEST_P(PytorchDifferencesTest, OrdersAreStable) {
  const Tensor equal = on(tensor({2, 1, 2, 1}));
  EXPECT_THAT(sort(equal).indices.to_vector<int>(), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(topk(equal, 3, 0, true, false).indices.to_vector<int>(), ElementsAre(0, 2, 1));
  EXPECT_EQ(kthvalue(equal, 2).indices.item<int>(), 3);
  EXPECT_EQ(median(equal, 0).indices.item<int>(), 3);
  EXPECT_THAT(unique(equal, false).values.to_vector<int>(), ElementsAre(1, 2));
}

TEST_P(PytorchDifferencesTest, OrdersOfNanAndBool) {
  EXPECT_EQ(mode(on(tensor({NAN, NAN, 1.0f, 2.0f}))).values.item<float>(), 1);
  EXPECT_EQ(searchsorted(on(tensor({1.0f, NAN})), 0.5).item<int>(), 0);
  EXPECT_EQ(topk(mask(), 1).values.item<bool>(), true);
  EXPECT_EQ(kthvalue(mask(), 1).values.item<bool>(), false);
  EXPECT_EQ(median(mask()).item<bool>(), false);
  EXPECT_EQ(searchsorted(on(tensor({false, true})), mask())[0].item<int>(), 1);
  EXPECT_THAT(bincount(mask()).to_vector<int>(), ElementsAre(1, 1));
  EXPECT_TRUE(isin(mask(), on(tensor({true}))).equal(mask()));
  EXPECT_ERROR(median(on(zeros({0}, {.dtype = i64}))), ShapeError, "at least one element");
}

TEST_P(PytorchDifferencesTest, IntegerOperationsRejectFractions) {
  EXPECT_ERROR(addcmul(ints(), ints(), ints(), 0.5), DTypeError,
               "argument value must not be a floating point number");
  EXPECT_ERROR(mm(ints().view({2, 1}), ints().view({1, 2})), DTypeError, "mm");
  EXPECT_THAT(remainder(ints(), 0).to_vector<int>(), ElementsAre(0, 0));
  EXPECT_THAT(floor_divide(ints(), 0).to_vector<int>(), ElementsAre(0, 0));
  EXPECT_ERROR(softmax(on(zeros({0}, {.dtype = i64})), 0), DTypeError, "floating type");
}

TEST_P(PytorchDifferencesTest, SomeOperationsAcceptFewerDTypes) {
  EXPECT_ERROR(clamp(mask(), mask()), DTypeError, "expected a tensor of numbers, but got Bool");
  EXPECT_ERROR(pow(mask(), true), DTypeError, "expected operands of numbers, but got Bool");
  EXPECT_ERROR(lerp(ints(), ints(), tensor(0.5)), DTypeError, "floating type, but got Int");
}

TEST_P(PytorchDifferencesTest, ConversionsToIntegersSaturate) {
  const Tensor far = on(tensor({300.0f, -300.0f, INFINITY, NAN}));
  EXPECT_THAT(far.to(i8).to_vector<int>(), ElementsAre(127, -128, 127, 0));
  EXPECT_EQ(far.sum(u8).item<int>(), (255 + 255) % 256);
}

TEST_P(PytorchDifferencesTest, ValuesOnADeviceAreNotRead) {
  const Tensor bytes = on(tensor({255, 1}).to(u8));
  if (device_.is_cpu()) {
    EXPECT_ERROR(bytes.masked_fill(mask(), tensor(300)), InvalidArgument, "without overflow");
  } else {
    EXPECT_THAT(bytes.masked_fill(mask(), on(tensor(300))).to_vector<int>(), ElementsAre(44, 1));
    EXPECT_TRUE(poisson(on(tensor({-1.0}))).isnan().item<bool>());
    EXPECT_EQ(multinomial(on(tensor({0.0, 0.0})), 1).numel(), 1);
    EXPECT_EQ(normal(0, on(tensor({-1.0}))).numel(), 1);
  }
}

TEST_P(PytorchDifferencesTest, NumberFormsOfMinimumAndLogic) {
  const Tensor bytes = on(tensor({255, 1}).to(u8));
  EXPECT_TRUE(minimum(bytes, 7).equal(minimum(bytes, tensor(7))));
  EXPECT_TRUE(logical_and(bytes, 2).equal(logical_and(bytes, tensor(2))));
}

TEST_P(PytorchDifferencesTest, NumbersOutsideADType) {
  const Tensor bytes = on(tensor({255, 1}).to(u8));
  EXPECT_ERROR(minimum(bytes, 300), InvalidArgument, "without overflow, got 300");
  EXPECT_ERROR(maximum(bytes, -1), InvalidArgument, "without overflow, got -1");
  EXPECT_ERROR(remainder(bytes, 300), InvalidArgument, "without overflow, got 300");
  EXPECT_ERROR(bitwise_and(bytes, 300), InvalidArgument, "without overflow, got 300");
  EXPECT_ERROR(floor_divide(bytes, -1), InvalidArgument, "without overflow, got -1");
}

TEST_P(PytorchDifferencesTest, PowRoundsNumbersToTheComputeType) {
  EXPECT_EQ(pow(on(full({5}, -1.0f)), 2147483647)[0].item<float>(), 1);
  EXPECT_EQ(pow(on(tensor(0)), 1e-50).item<float>(), 1);
}

TEST(PytorchDifferencesOfSeedsTest, ManualSeedLeavesTheCpu) {
  GANTRY_REQUIRE_DEVICES(1);
  default_generator(Device::cpu()).manual_seed(3);
  manual_seed(5);
  EXPECT_EQ(default_generator(Device::cpu()).initial_seed(), 3U);
  EXPECT_EQ(default_generator(current_device()).initial_seed(), 5U);
  manual_seed_all(6);
  EXPECT_EQ(default_generator(Device::cpu()).initial_seed(), 6U);
}

TEST_P(PytorchDifferencesTest, ListsPromoteAndViewsInPlaceRebind) {
  EXPECT_THAT(on(tensor({1, 2.5})).to_vector<double>(), ElementsAre(1, 2.5));
  Tensor t = on(zeros({1, 3}));
  const Tensor copy = t;
  t.squeeze_().unsqueeze_(1).transpose_(0, 1).t_();
  EXPECT_EQ(t.sizes(), Shape({3, 1}));
  EXPECT_EQ(copy.sizes(), Shape({1, 3}));
}

TEST_P(PytorchDifferencesTest, IndexLists) {
  const Tensor t = on(arange(6)).view({2, 3});
  const Tensor i = on(tensor({1, 0}));
  EXPECT_ERROR((t.index({i}) = 1), InvalidArgument, "expected a view, but got a copy");
  EXPECT_ERROR((t[i] = 1), InvalidArgument, "expected a view, but got a copy");
  EXPECT_ERROR(t.index({Ellipsis, i, Ellipsis}), IndexError, "only have a single ellipsis");
  EXPECT_TRUE(t.index({true}).is_view_of(t));
  EXPECT_TRUE(t.index({}).is_view_of(t));
  EXPECT_TRUE(t.clone().index_put_({}, t * 2).equal(t * 2));
  EXPECT_ERROR(index_add(t, 0, i, t, 1.5), DTypeError, "must not be a floating point number");
  const Tensor bytes = on(zeros({1}, u8));
  const Tensor both = on(tensor({200, 250}).to(u8));
  const Tensor first = on(zeros({2}, {.dtype = i64}));
  EXPECT_EQ(scatter_reduce(bytes, 0, first, both, "mean", false).item<int>(), 225);
  EXPECT_EQ(index_reduce(bytes, 0, first, both, "mean", false).item<int>(), 225);
  EXPECT_THAT(take(t, i.to(i32)).to_vector<int>(), ElementsAre(1, 0));
  Tensor out = on(zeros({7}, {.dtype = i64}));
  EXPECT_ERROR(masked_select_out(out, t, on(tensor({true, false, true}))), ShapeError,
               "output with shape [7] doesn't match");
  EXPECT_TRUE(nonzero(t).select(1, 0).is_contiguous());
}

}  // namespace
}  // namespace gantry
