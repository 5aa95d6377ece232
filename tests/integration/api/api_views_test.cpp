// Stride algebra through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <vector>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiViewsTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) t_ = arange(6, {.device = "cuda:0"}).view({2, 3});
  }
  Tensor t_;  ///< [[0, 1, 2], [3, 4, 5]]
};

TEST_F(ApiViewsTest, ViewSharesAndReshapeCopiesIfNeeded) {
  EXPECT_TRUE(t_.view({3, -1}).is_view_of(t_));
  EXPECT_TRUE(t_.reshape({6}).is_view_of(t_));
  const Tensor turned = t_.transpose(0, 1);
  EXPECT_THAT(turned.reshape({6}).to_vector<int>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_FALSE(turned.reshape({6}).is_view_of(t_));
  try {
    (void)turned.view({6});
    ADD_FAILURE() << "expected a ShapeError";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("view size is not compatible with input tensor's size and stride (at "
                          "least one dimension spans across two contiguous subspaces). Use "
                          ".reshape(...) instead."));
  }
}

TEST_F(ApiViewsTest, ViewAsAnotherType) {
  const Tensor bytes = t_.view(u8);
  EXPECT_EQ(bytes.sizes(), Shape({2, 24}));
  EXPECT_TRUE(bytes.is_view_of(t_));
  EXPECT_TRUE(bytes.view(i64).equal(t_));
}

TEST_F(ApiViewsTest, DimsMove) {
  EXPECT_THAT(t_.t().to_vector<int>(), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(t_.permute({1, 0}).sizes(), Shape({3, 2}));
  EXPECT_EQ(t_.transpose(-1, 0).strides(), Dims({1, 3}));
  const Tensor cube = zeros({2, 3, 4}, {.device = "cuda:0"});
  EXPECT_EQ(cube.movedim(0, -1).sizes(), Shape({3, 4, 2}));
  EXPECT_EQ(cube.movedim({0, 1}, {1, 2}).sizes(), Shape({4, 2, 3}));
}

TEST_F(ApiViewsTest, PartsOfADim) {
  EXPECT_THAT(t_.slice(1, 0, 3, 2).to_vector<int>(), ElementsAre(0, 2, 3, 5));
  EXPECT_THAT(t_.slice(1, 1).to_vector<int>(), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(t_.slice(0, -1).to_vector<int>(), ElementsAre(3, 4, 5));
  EXPECT_THAT(t_.narrow(1, 1, 2).to_vector<int>(), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(t_.select(1, -1).to_vector<int>(), ElementsAre(2, 5));
  EXPECT_THROW((void)t_.narrow(1, 2, 2), Error);
  EXPECT_THROW((void)t_.select(0, 2), IndexError);
}

TEST_F(ApiViewsTest, DimsComeAndGo) {
  EXPECT_EQ(t_.unsqueeze(0).sizes(), Shape({1, 2, 3}));
  EXPECT_EQ(t_.unsqueeze(-1).squeeze().sizes(), t_.sizes());
  EXPECT_EQ(zeros({1, 2, 1}).squeeze(0).sizes(), Shape({2, 1}));
  EXPECT_EQ(t_.flatten().sizes(), Shape({6}));
  EXPECT_EQ(zeros({2, 3, 4}).flatten(1).sizes(), Shape({2, 12}));
  EXPECT_EQ(zeros({2, 6}).unflatten(1, {3, -1}).sizes(), Shape({2, 3, 2}));
}

TEST_F(ApiViewsTest, ExpandRepeatsWithoutMemory) {
  const Tensor row = t_.slice(0, 0, 1);
  EXPECT_THAT(row.expand({2, -1}).to_vector<int>(), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_EQ(row.expand_as(t_).stride(0), 0);
  EXPECT_EQ(row.broadcast_to({4, 2, 3}).sizes(), Shape({4, 2, 3}));
  EXPECT_THROW((void)t_.expand({2, 4}), ShapeError);
  EXPECT_THROW((void)row.expand({2, 3}).fill_(1), Error);
}

TEST_F(ApiViewsTest, DiagonalUnfoldAsStrided) {
  EXPECT_THAT(t_.diagonal().to_vector<int>(), ElementsAre(0, 4));
  EXPECT_THAT(t_.diagonal(1).to_vector<int>(), ElementsAre(1, 5));
  EXPECT_EQ(arange(5).unfold(0, 3, 1).sizes(), Shape({3, 3}));
  EXPECT_THAT(t_.as_strided({2, 2}, {1, 2}).to_vector<int>(), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(t_.as_strided({2}, {1}, 4).to_vector<int>(), ElementsAre(4, 5));
  EXPECT_THROW((void)t_.as_strided({7}, {1}), Error);
}

TEST_F(ApiViewsTest, PiecesOfATensor) {
  EXPECT_EQ(t_.split(2, 1).size(), 2u);
  EXPECT_THAT(t_.split(2, 1)[1].to_vector<int>(), ElementsAre(2, 5));
  EXPECT_EQ(t_.split({1, 2}, 1)[1].sizes(), Shape({2, 2}));
  EXPECT_EQ(t_.chunk(2).size(), 2u);
  EXPECT_THAT(t_.unbind(0)[1].to_vector<int>(), ElementsAre(3, 4, 5));
  EXPECT_TRUE(t_.alias().is_view_of(t_));
}

TEST_F(ApiViewsTest, CopiesInANewLayout) {
  const Tensor turned = t_.t();
  EXPECT_FALSE(turned.is_contiguous());
  EXPECT_TRUE(turned.contiguous().is_contiguous());
  EXPECT_TRUE(t_.contiguous().is_view_of(t_));
  EXPECT_FALSE(t_.clone().is_view_of(t_));
  EXPECT_THAT(t_.flip(1).to_vector<int>(), ElementsAre(2, 1, 0, 5, 4, 3));
  EXPECT_THAT(t_.roll(1, 1).to_vector<int>(), ElementsAre(2, 0, 1, 5, 3, 4));
  EXPECT_EQ(t_.repeat({2, 2}).sizes(), Shape({4, 6}));
  EXPECT_EQ(t_.tile({2}).sizes(), Shape({2, 6}));
}

TEST_F(ApiViewsTest, BasicIndexing) {
  EXPECT_THAT(t_[1].to_vector<int>(), ElementsAre(3, 4, 5));
  EXPECT_EQ(t_[1][2].item<int>(), 5);
  EXPECT_THAT(t_.index({Slice(), 1}).to_vector<int>(), ElementsAre(1, 4));
  EXPECT_THAT(t_.index({1, Slice(0, 3, 2)}).to_vector<int>(), ElementsAre(3, 5));
  EXPECT_EQ(t_.index({None, Ellipsis, None}).sizes(), Shape({1, 2, 3, 1}));
  EXPECT_THAT(t_.index({"...", -1}).to_vector<int>(), ElementsAre(2, 5));
  EXPECT_THAT(t_.index({Slice(None, 1)}).to_vector<int>(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(t_.index({0}).is_view_of(t_));
  t_.index_put_({0, Slice()}, 7);
  t_.index_put_({Ellipsis, 0}, tensor({1, 2}, {.device = "cuda:0"}), true);
  EXPECT_THAT(t_.to_vector<int>(), ElementsAre(8, 7, 7, 5, 4, 5));
}

TEST_F(ApiViewsTest, IndexErrorsHaveTheirTexts) {
  const auto text_of = [](auto action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(text_of([&] { (void)t_.index({5}); }),
              HasSubstr("index 5 is out of bounds for dimension 0 with size 2"));
  EXPECT_THAT(text_of([&] { (void)t_.index({Slice(0, 2, 0)}); }),
              HasSubstr("slice step cannot be zero"));
  EXPECT_THAT(text_of([&] { (void)t_.index({Slice(0, 2, -1)}); }),
              HasSubstr("step must be greater than zero"));
}

}  // namespace
