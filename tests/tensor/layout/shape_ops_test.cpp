#include <gantry/tensor/shape_ops.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/rearrangements.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

using testing::all_places;
using testing::elements;
using ::testing::ThrowsMessage;
using Numbers = std::vector<double>;

TEST(ShapeOpsTest, CatJoinsAlongADim) {
  for (const Device place : all_places()) {
    const Tensor a = arange(6, {.dtype = i32, .device = place}).view({2, 3});
    const Tensor b = full({2, 1}, 9, {.dtype = i32, .device = place});
    EXPECT_EQ(elements(cat({a, b}, 1)), (Numbers{0, 1, 2, 9, 3, 4, 5, 9}));
    EXPECT_EQ(elements(cat({a, a.flip(0)})), (Numbers{0, 1, 2, 3, 4, 5, 3, 4, 5, 0, 1, 2}));
    EXPECT_EQ(elements(cat({a.t(), b.expand({2, 2})}, -2)),
              (Numbers{0, 3, 1, 4, 2, 5, 9, 9, 9, 9}));
    EXPECT_EQ(cat({zeros({0}, {.device = place}), a.to(f32)}, 1).sizes(), (Shape{2, 3}));
    EXPECT_EQ(cat({zeros({0}, {.device = place})}).sizes(), (Shape{0}));
  }
}

// Rows of any length and alignment, beside a copy of each input to its place.
TEST(ShapeOpsTest, CatOfRandomRowsEqualsCopies) {
  std::mt19937 random(7);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (const Device place : all_places()) {
    for (int round = 0; round < 150; ++round) {
      const DType dtype =
          std::vector{u8, i16, bf16, f32, f64}[static_cast<std::size_t>(draw(0, 4))];
      const std::int64_t rows = draw(1, 6);
      const std::int64_t inner = draw(1, 3) == 1 ? draw(1, 40) : 16;
      const int count = draw(1, 18);
      std::vector<Tensor> inputs;
      std::int64_t total = 0;
      for (int i = 0; i < count; ++i) {
        const std::int64_t length = draw(0, 9) == 0 ? 0 : draw(1, 40);
        const std::int64_t shift = draw(0, 2) == 0 ? draw(1, 7) : 0;
        const std::int64_t numel = rows * length * inner;
        const Tensor numbers = arange(shift + numel, {.dtype = i64, .device = place}) + 100 * i;
        inputs.push_back(numbers.to(dtype).narrow(0, shift, numel).view({rows, length, inner}));
        total += length;
      }
      Tensor expected = empty({rows, total, inner}, {.dtype = dtype, .device = place});
      std::int64_t start = 0;
      for (const Tensor& input : inputs) {
        expected.narrow(1, start, input.size(1)).copy_(input);
        start += input.size(1);
      }
      ASSERT_TRUE(equal(cat(inputs, 1), expected)) << dtype << " round " << round;
    }
  }
}

// Sizes whose sum is 2^63, and 2^64, which is 0 in 64 bits.
TEST(ShapeOpsTest, JoinedSizesBeyondTheRangeAreRefused) {
  constexpr const char* kText = ": expected a shape of less than 2^63 elements";
  for (const Device place : all_places()) {
    const Tensor one = zeros({1, 1}, {.dtype = u8, .device = place});
    const Tensor tall = one.expand({std::int64_t{1} << 62, 1});
    const Tensor wide = tall.t();
    for (const std::size_t count : {2, 4}) {
      EXPECT_ERROR(cat(std::vector<Tensor>(count, tall)), ShapeError, std::string("cat") + kText);
      EXPECT_ERROR(hstack(std::vector<Tensor>(count, wide)), ShapeError,
                   std::string("hstack") + kText);
      EXPECT_ERROR(block_diag(std::vector<Tensor>(count, tall)), ShapeError,
                   std::string("block_diag") + kText);
      EXPECT_ERROR(block_diag(std::vector<Tensor>(count, wide)), ShapeError,
                   std::string("block_diag") + kText);
    }
  }
}

TEST(ShapeOpsTest, CatPromotes) {
  const Tensor integers = tensor({1, 2});
  const Tensor halves = tensor({0.5}, {.dtype = f16});
  const Tensor joined = cat({integers, halves, tensor({true})});
  EXPECT_EQ(joined.dtype(), f16);
  EXPECT_EQ(elements(joined), (Numbers{1, 2, 0.5, 1}));
}

TEST(ShapeOpsTest, StackAddsADim) {
  for (const Device place : all_places()) {
    const Tensor a = tensor({1, 2}, {.device = place});
    const Tensor b = tensor({3, 4}, {.device = place});
    EXPECT_EQ(elements(stack({a, b})), (Numbers{1, 2, 3, 4}));
    EXPECT_EQ(elements(stack({a, b}, -1)), (Numbers{1, 3, 2, 4}));
    EXPECT_EQ(stack({a[0], b[0]}).sizes(), (Shape{2}));
    EXPECT_EQ(elements(hstack({a, b})), (Numbers{1, 2, 3, 4}));
    EXPECT_EQ(hstack({a.view({2, 1}), b.view({2, 1})}).sizes(), (Shape{2, 2}));
    EXPECT_EQ(vstack({a, b}).sizes(), (Shape{2, 2}));
    EXPECT_EQ(vstack({a[0], b[1]}).sizes(), (Shape{2, 1}));
  }
}

TEST(ShapeOpsTest, MembersAreFunctionsToo) {
  const Tensor t = arange(6).view({1, 2, 3});
  const std::vector<std::pair<Tensor, Tensor>> pairs = {
      {reshape(t, {3, 2}), t.reshape({3, 2})},
      {permute(t, {2, 0, 1}), t.permute({2, 0, 1})},
      {movedim(t, 0, 2), t.movedim(0, 2)},
      {movedim(t, {0, 1}, {1, 2}), t.movedim({0, 1}, {1, 2})},
      {narrow(t, 2, 1, 2), t.narrow(2, 1, 2)},
      {select(t, -1, 2), t.select(-1, 2)},
      {squeeze(t), t.squeeze()},
      {squeeze(t, 0), t.squeeze(0)},
      {unsqueeze(t, -1), t.unsqueeze(-1)},
      {unflatten(t, 2, {3, 1}), t.unflatten(2, {3, 1})},
      {broadcast_to(t, {4, 2, 3}), t.broadcast_to({4, 2, 3})},
      {diagonal(t, 1, 1, 2), t.diagonal(1, 1, 2)},
      {as_strided(t, {2}, {3}, 1), t.as_strided({2}, {3}, 1)},
  };
  for (const auto& [made, expected] : pairs) {
    EXPECT_TRUE(made.equal(expected));
    EXPECT_TRUE(made.is_view_of(t));
  }
  EXPECT_TRUE(flip(t, {1, 2}).equal(t.flip({1, 2})));
  EXPECT_TRUE(roll(t, 1).equal(t.roll(1)));
  EXPECT_TRUE(roll(t, {1, -1}, {1, 2}).equal(t.roll({1, -1}, {1, 2})));
  EXPECT_TRUE(tile(t, {2, 1}).equal(t.tile({2, 1})));
  EXPECT_TRUE(clone(t).equal(t));
  EXPECT_FALSE(clone(t).is_view_of(t));
}

TEST(ShapeOpsTest, BroadcastTensorsAreViews) {
  const Tensor a = tensor({1, 2});
  const Tensor b = tensor({{5}, {6}});
  const std::vector<Tensor> views = broadcast_tensors({a, b});
  EXPECT_EQ(elements(views[0]), (Numbers{1, 2, 1, 2}));
  EXPECT_EQ(elements(views[1]), (Numbers{5, 5, 6, 6}));
  EXPECT_TRUE(views[0].is_view_of(a));
}

TEST(ShapeOpsTest, ErrorsNameTheMismatch) {
  const auto joining = [](std::vector<Tensor> tensors, int dim = 0) {
    return [=] { static_cast<void>(cat(tensors, dim)); };
  };
  EXPECT_THAT(joining({}),
              ThrowsMessage<InvalidArgument>("cat: expected a non-empty list of Tensors"));
  EXPECT_THAT(joining({zeros({2, 3}), zeros({2, 4})}),
              ThrowsMessage<ShapeError>(
                  "cat: Sizes of tensors must match except in dimension 0. Expected size 3 but got "
                  "size 4 for tensor number 1 in the list."));
  EXPECT_THAT(
      joining({zeros({2, 3}), zeros({2})}),
      ThrowsMessage<ShapeError>("cat: Tensors must have same number of dimensions: got 2 and 1"));
  EXPECT_THAT(joining({zeros({})}),
              ThrowsMessage<ShapeError>(
                  "cat: zero-dimensional tensor (at position 0) cannot be concatenated"));
  EXPECT_THAT(joining({zeros({2})}, 1),
              ThrowsMessage<IndexError>("cat: Dimension out of range (expected to be in range of "
                                        "[-1, 0], but got 1)"));
  EXPECT_THAT(
      [] {
        static_cast<void>(stack({zeros({2}), zeros({3})}));
      },
      ThrowsMessage<ShapeError>("stack: stack expects each tensor to be equal size, but got "
                                "[2] at entry 0 and [3] at entry 1"));
}

TEST(ShapeOpsTest, TensorSplitSplitsAtIndices) {
  for (const Device place : all_places()) {
    const Tensor t = arange(6, {.device = place});
    const std::vector<Tensor> pieces = tensor_split(t, {1, 4});
    ASSERT_EQ(pieces.size(), 3u);
    EXPECT_EQ(elements(pieces[0]), (Numbers{0}));
    EXPECT_EQ(elements(pieces[1]), (Numbers{1, 2, 3}));
    EXPECT_EQ(elements(pieces[2]), (Numbers{4, 5}));
    EXPECT_EQ(t.tensor_split({2}).size(), 2u);
    EXPECT_EQ(t.tensor_split(2).size(), 2u);
    EXPECT_EQ(t.tensor_split({}).size(), 1u);
    EXPECT_EQ(elements(t.tensor_split({-2, 9})[1]), (Numbers{4, 5}));
    EXPECT_EQ(t.tensor_split({9})[1].numel(), 0);
    EXPECT_EQ(t.view({2, 3}).tensor_split({1}, 1)[1].sizes(), (Shape{2, 2}));
  }
}

TEST(ShapeOpsTest, ViewsAreAlsoFunctions) {
  const Tensor t = arange(6).view({2, 3});
  EXPECT_EQ(transpose(t, 0, 1).sizes(), (Shape{3, 2}));
  EXPECT_EQ(flatten(t).sizes(), (Shape{6}));
  EXPECT_EQ(unbind(t, 1).size(), 3u);
  EXPECT_EQ(elements(t.repeat_interleave(2)), elements(repeat_interleave(t, 2)));
}

}  // namespace
}  // namespace gantry
