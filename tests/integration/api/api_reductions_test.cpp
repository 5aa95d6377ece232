// Reductions, softmax and products through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiReductionsTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) t_ = tensor({{1.0, 5.0, 3.0}, {4.0, 2.0, 4.0}}, {.device = "cuda:0"});
  }
  Tensor t_;
};

TEST_F(ApiReductionsTest, Sums) {
  EXPECT_EQ(t_.sum().item<float>(), 19.0f);
  EXPECT_EQ(sum(t_).dim(), 0);
  EXPECT_THAT(t_.sum(0).to_vector<float>(), ElementsAre(5, 7, 7));
  EXPECT_THAT(sum(t_, -1).to_vector<float>(), ElementsAre(9, 10));
  EXPECT_EQ(t_.sum({0, 1}).item<float>(), 19.0f);
  EXPECT_EQ(t_.sum(1, true).sizes(), Shape({2, 1}));
  EXPECT_EQ(t_.sum(1, false, f64).dtype(), f64);
  EXPECT_EQ(t_.to(i32).sum().dtype(), i64);
  EXPECT_EQ((t_ > 2).sum().item<int>(), 4);
}

TEST_F(ApiReductionsTest, Means) {
  EXPECT_THAT(t_.mean(1).to_vector<float>(), ElementsAre(3, 10.0f / 3));
  EXPECT_NEAR(mean(t_).item<double>(), 19.0 / 6, 1e-6);
  EXPECT_THROW((void)t_.to(i64).mean(), DTypeError);
  EXPECT_EQ(t_.to(i64).mean({}, false, f32).dtype(), f32);
}

TEST_F(ApiReductionsTest, Extremes) {
  EXPECT_EQ(t_.max().item<float>(), 5.0f);
  EXPECT_EQ(min(t_).item<float>(), 1.0f);
  const auto [values, indices] = t_.max(1);
  EXPECT_THAT(values.to_vector<float>(), ElementsAre(5, 4));
  EXPECT_THAT(indices.to_vector<int>(), ElementsAre(1, 0));
  EXPECT_EQ(indices.dtype(), i64);
  EXPECT_THAT(t_.min(0).indices.to_vector<int>(), ElementsAre(0, 1, 0));
  EXPECT_EQ(max(t_, 1, true).values.sizes(), Shape({2, 1}));
  EXPECT_EQ(t_.argmax().item<int>(), 1);
  EXPECT_THAT(t_.argmax(1).to_vector<int>(), ElementsAre(1, 0));
  EXPECT_THAT(argmin(t_, 0).to_vector<int>(), ElementsAre(0, 1, 0));
  EXPECT_EQ(t_.argmax(-1, true).sizes(), Shape({2, 1}));
  EXPECT_THAT(t_.amax(1).to_vector<float>(), ElementsAre(5, 4));
  EXPECT_THROW((void)zeros({0}).max(), ShapeError);
}

TEST_F(ApiReductionsTest, AnyAndAll) {
  EXPECT_TRUE((t_ > 4).any().item<bool>());
  EXPECT_FALSE((t_ > 4).all().item<bool>());
  EXPECT_THAT(any(t_ > 4, 1).to_vector<bool>(), ElementsAre(true, false));
  EXPECT_THAT(all(t_ > 1, {0}).to_vector<bool>(), ElementsAre(false, true, true));
}

TEST_F(ApiReductionsTest, SoftmaxSumsToOne) {
  const Tensor soft = t_.softmax(1);
  EXPECT_TRUE(soft.sum(1).allclose(ones({2}, {.device = "cuda:0"})));
  EXPECT_TRUE(log_softmax(t_, -1).allclose(soft.log(), 1e-4, 1e-5));
  EXPECT_TRUE(softmax(t_, 0).allclose(t_.exp() / t_.exp().sum(0, true)));
  EXPECT_EQ(softmax(t_, 0, f64).dtype(), f64);
}

TEST_F(ApiReductionsTest, Products) {
  const Tensor product = matmul(t_, t_.t());
  EXPECT_THAT(product.to_vector<float>(), ElementsAre(35, 26, 26, 36));
  EXPECT_TRUE(t_.mm(t_.t()).equal(product));
  EXPECT_THAT(t_.matmul(tensor({1.0, 0.0, 1.0}, {.device = "cuda:0"})).to_vector<float>(),
              ElementsAre(4, 8));
  EXPECT_EQ(dot(t_[0], t_[1]).item<float>(), 26.0f);
  EXPECT_EQ(outer(t_[0], t_[1]).sizes(), Shape({3, 3}));
  const Tensor batch = ones({4, 2, 3}, {.device = "cuda:0"});
  EXPECT_EQ(batch.matmul(t_.t()).sizes(), Shape({4, 2, 2}));
  EXPECT_EQ(bmm(batch, batch.transpose(1, 2)).sum().item<float>(), 48.0f);
  EXPECT_EQ(matmul(t_.to(bf16), t_.t().to(bf16)).dtype(), bf16);
}

TEST_F(ApiReductionsTest, AddmmAddsAProduct) {
  const Tensor bias = tensor({1.0, 2.0}, {.device = "cuda:0"});
  EXPECT_THAT(addmm(bias, t_, t_.t()).to_vector<float>(), ElementsAre(36, 28, 27, 38));
  EXPECT_THAT(bias.addmm(t_, t_.t(), 2, 0).to_vector<float>(), ElementsAre(2, 4, 2, 4));
  try {
    (void)matmul(zeros({2, 3}), zeros({5, 4}));
    ADD_FAILURE() << "expected a ShapeError";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), HasSubstr("mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)"));
  }
}

TEST_F(ApiReductionsTest, VarianceMeansWhatItSays) {
  EXPECT_FLOAT_EQ(t_.var(false).item<float>(), t_.var({0, 1}, 0).item<float>());
  EXPECT_FLOAT_EQ(t_.var({.correction = 0}).item<float>(), t_.var(false).item<float>());
  EXPECT_EQ(t_.std({.dims = 1, .keepdim = true}).sizes(), Shape({2, 1}));
  EXPECT_EQ(t_.sum(std::vector<std::int64_t>{0, 1}).item<float>(), 19.0f);
  EXPECT_EQ(t_.sum(f64).dtype(), f64);
  EXPECT_THAT(get<0>(t_.max(1)).to_vector<float>(), ElementsAre(5, 4));
  Tensor values, indices;
  std::tie(values, indices) = t_.max(1);
  EXPECT_THAT(indices.to_vector<int>(), ElementsAre(1, 0));
}

}  // namespace
