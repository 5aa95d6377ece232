// Gathering, joining and splitting through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;

class ApiIndexingTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) t_ = arange(6, {.device = "cuda:0"}).view({2, 3});
  }
  Tensor t_;
};

TEST_F(ApiIndexingTest, IndexSelectPicksPositions) {
  const Tensor index = tensor({2, 0}, {.device = "cuda:0"});
  EXPECT_THAT(t_.index_select(1, index).to_vector<int>(), ElementsAre(2, 0, 5, 3));
  EXPECT_THAT(index_select(t_, 0, index.to(i32).slice(0, 1)).to_vector<int>(),
              ElementsAre(0, 1, 2));
}

TEST_F(ApiIndexingTest, GatherPicksElements) {
  const Tensor index = tensor({{0, 2}, {1, 1}}, {.device = "cuda:0"});
  EXPECT_THAT(t_.gather(1, index).to_vector<int>(), ElementsAre(0, 2, 4, 4));
  EXPECT_THAT(gather(t_, -1, index).to_vector<int>(), ElementsAre(0, 2, 4, 4));
}

TEST_F(ApiIndexingTest, WrongIndicesThrowAtTheLatestWhenSynchronizing) {
  EXPECT_THROW((void)arange(3).index_select(0, tensor({3})), IndexError);
  EXPECT_THROW((void)t_.index_select(1, tensor({3}, {.device = "cuda:0"})).to_vector<int>(),
               IndexError);
  EXPECT_THROW((void)t_.index_select(1, tensor({1.0}, {.device = "cuda:0"})), DTypeError);
  EXPECT_EQ(t_.sum().item<int>(), 15);
}

TEST_F(ApiIndexingTest, CatAndStackJoin) {
  EXPECT_THAT(cat({t_, t_.slice(0, 0, 1)}).sizes(), Shape({3, 3}));
  EXPECT_THAT(cat({t_, t_}, 1)[0].to_vector<int>(), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_EQ(stack({t_, t_}).sizes(), Shape({2, 2, 3}));
  EXPECT_EQ(stack({t_, t_}, -1).sizes(), Shape({2, 3, 2}));
  const std::vector<Tensor> parts = t_.unbind(1);
  EXPECT_TRUE(stack(parts, 1).equal(t_));
  EXPECT_TRUE(cat(split(t_, 2, 1), 1).equal(t_));
  EXPECT_EQ(cat({t_, t_.to(f32)}).dtype(), f32);
  EXPECT_EQ(vstack({t_, t_}).sizes(), Shape({4, 3}));
  EXPECT_EQ(hstack({t_, t_}).sizes(), Shape({2, 6}));
  EXPECT_EQ(chunk(t_, 3, 1).size(), 3u);
  EXPECT_EQ(tensor_split(t_, 2, 1)[0].sizes(), Shape({2, 2}));
  EXPECT_THAT(repeat_interleave(t_, 2, 0).sizes(), Shape({4, 3}));
  EXPECT_THROW((void)cat({}), InvalidArgument);
  EXPECT_THROW((void)cat({t_, zeros({2, 2}, {.device = "cuda:0"})}), ShapeError);
}

TEST_F(ApiIndexingTest, ScatterWritesElements) {
  const Tensor index = tensor({{0, 2}}, {.device = "cuda:0"});
  Tensor target = zeros({1, 3}, {.dtype = i64, .device = "cuda:0"});
  target.scatter_(1, index, t_.slice(0, 1));
  EXPECT_THAT(target.to_vector<int>(), ElementsAre(3, 0, 4));
  target.scatter_add_(1, index, ones_like(index));
  EXPECT_THAT(target.to_vector<int>(), ElementsAre(4, 0, 5));
}

TEST_F(ApiIndexingTest, NegativeIndicesAreErrorsThatNameOperationAndDevice) {
  const Tensor index = tensor({-1}, Device::cuda(0));
  try {
    (void)t_.index_select(1, index).to_vector<int>();
    ADD_FAILURE() << "expected an IndexError";
  } catch (const IndexError& error) {
    EXPECT_STREQ(error.what(),
                 "index_select on cuda:0: index -1 is out of bounds for dimension 1 with size 3");
    EXPECT_TRUE(error.device() == Device::cuda(0));
  }
}

TEST_F(ApiIndexingTest, BoolsAddADimension) {
  EXPECT_EQ(t_.index({true}).sizes(), Shape({1, 2, 3}));
  EXPECT_EQ(t_.index({false}).sizes(), Shape({0, 2, 3}));
  EXPECT_EQ(tensor_split(t_, {1}, 1)[1].sizes(), Shape({2, 2}));
}

}  // namespace
