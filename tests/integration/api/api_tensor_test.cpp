// What a tensor is, how one is made and shown, through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <sstream>
#include <vector>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ApiTensorTest : public gantry::testing::DeviceTest {};

TEST_F(ApiTensorTest, DescribesItself) {
  const Tensor t = zeros({2, 3}, {.dtype = i64, .device = "cuda:0"});
  EXPECT_TRUE(t.defined());
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(t.sizes(), Shape({2, 3}));
  EXPECT_EQ(t.size(-1), 3);
  EXPECT_EQ(t.strides(), Dims({3, 1}));
  EXPECT_EQ(t.stride(0), 3);
  EXPECT_EQ(t.dim(), 2);
  EXPECT_EQ(t.numel(), 6);
  EXPECT_EQ(t.dtype(), i64);
  EXPECT_EQ(t.dtype(), DType::i64);
  EXPECT_EQ(t.device(), Device::cuda(0));
  EXPECT_EQ(t.element_size(), 8u);
  EXPECT_EQ(t.nbytes(), 48u);
  EXPECT_EQ(t.storage_offset(), 0);
  EXPECT_EQ(t.storage().bytes(), 48u);
  EXPECT_NE(t.data_ptr<std::int64_t>(), nullptr);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_TRUE(t.is_cuda());
  EXPECT_FALSE(t.is_pinned());
  EXPECT_TRUE(t[0].is_view_of(t));
  EXPECT_EQ(t.options().dtype, i64);
  EXPECT_EQ(t.options().device, Device::cuda(0));
}

TEST_F(ApiTensorTest, CopiesShareMemory) {
  Tensor a = zeros({3}, {.device = "cuda:0"});
  Tensor b = a;
  b.fill_(2);
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{2, 2, 2}));
  EXPECT_TRUE(a.is_view_of(b));
}

TEST_F(ApiTensorTest, FactoriesFill) {
  const TensorOptions options{.device = "cuda:0"};
  EXPECT_EQ(empty({4}, options).sizes(), Shape({4}));
  EXPECT_EQ(empty_strided({2, 2}, {1, 2}, options).strides(), Dims({1, 2}));
  EXPECT_THAT(zeros({2}, options).to_vector<float>(), ElementsAre(0, 0));
  EXPECT_THAT(ones({2}, options).to_vector<float>(), ElementsAre(1, 1));
  EXPECT_THAT(full({2}, 7, options).to_vector<int>(), ElementsAre(7, 7));
  EXPECT_EQ(full({2}, 7).dtype(), i64);
  EXPECT_EQ(full({2}, 7.0).dtype(), f32);
  EXPECT_EQ(full({2}, true).dtype(), bool_);
  EXPECT_THAT(linspace(0, 1, 3, options).to_vector<float>(), ElementsAre(0, 0.5f, 1));
  EXPECT_THAT(logspace(0, 2, 3).to_vector<float>(), ElementsAre(1, 10, 100));
  EXPECT_THAT(eye(2, options).to_vector<int>(), ElementsAre(1, 0, 0, 1));
  EXPECT_EQ(eye(2, 3).sizes(), Shape({2, 3}));
  EXPECT_EQ(scalar_tensor(3).item<int>(), 3);
  EXPECT_EQ(zeros({}).dim(), 0);
  EXPECT_EQ(zeros({0, 3}).numel(), 0);
}

TEST_F(ApiTensorTest, ArangeTakesAllForms) {
  EXPECT_THAT(arange(3).to_vector<int>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(arange(1, 4).to_vector<int>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(arange(0, 10, 4).to_vector<int>(), ElementsAre(0, 4, 8));
  EXPECT_THAT(arange(3, 0, -1).to_vector<int>(), ElementsAre(3, 2, 1));
  EXPECT_THAT(arange(0, 1, 0.5).to_vector<float>(), ElementsAre(0, 0.5f));
  EXPECT_EQ(arange(3).dtype(), i64);
  EXPECT_EQ(arange(3.0).dtype(), f32);
  EXPECT_EQ(arange(3, {.dtype = f64, .device = "cuda:0"}).dtype(), f64);
  EXPECT_EQ(arange(1, 4, {.dtype = f32, .device = "cuda:0"}).device(), Device::cuda(0));
  EXPECT_EQ(arange(1, 4, 1, {.dtype = i32}).dtype(), i32);
}

TEST_F(ApiTensorTest, ListsBecomeTensors) {
  EXPECT_EQ(tensor({1, 2, 3}).dtype(), i64);
  EXPECT_EQ(tensor({1.5, 2.5}).dtype(), f32);
  EXPECT_EQ(tensor({1.5f}).dtype(), f32);
  EXPECT_EQ(tensor({true, false}).dtype(), bool_);
  EXPECT_EQ(tensor(std::vector<std::uint8_t>{1}).dtype(), u8);
  EXPECT_EQ(tensor(std::vector<std::int16_t>{1}).dtype(), i16);
  EXPECT_EQ(tensor({bfloat16(1.5F)}).dtype(), bf16);
  EXPECT_EQ(logspace(0, 2, 3, {.device = "cuda:0"}).to_vector<int>(),
            (std::vector<int>{1, 10, 100}));
  EXPECT_EQ(tensor({{1, 2, 3}, {4, 5, 6}}).sizes(), Shape({2, 3}));
  EXPECT_EQ(tensor({1, 2}, {.dtype = f16, .device = "cuda:0"}).dtype(), f16);
  const std::vector<float> values{1, 2, 3};
  EXPECT_EQ(tensor(values, {.device = "cuda:0"}).to_vector<float>(), values);
}

TEST_F(ApiTensorTest, LikeAndNewKeepTypeAndDevice) {
  const Tensor t = ones({2, 2}, {.dtype = i32, .device = "cuda:0"});
  for (const Tensor& made :
       {empty_like(t), zeros_like(t), ones_like(t), full_like(t, 3), t.new_empty({2, 2}),
        t.new_zeros({2, 2}), t.new_ones({2, 2}), t.new_full({2, 2}, 3)}) {
    EXPECT_EQ(made.dtype(), i32);
    EXPECT_EQ(made.device(), Device::cuda(0));
    EXPECT_EQ(made.sizes(), t.sizes());
  }
  EXPECT_EQ(full_like(t, 3).sum().item<int>(), 12);
  EXPECT_EQ(zeros_like(t, {.dtype = f32, .device = "cpu"}).device(), Device::cpu());
  EXPECT_EQ(t.new_ones({3}, {.dtype = f64}).sum().item<double>(), 3.0);
}

TEST_F(ApiTensorTest, TrianglesKeepTheirSide) {
  const Tensor t = ones({2, 2}, {.device = "cuda:0"});
  EXPECT_THAT(t.tril().to_vector<int>(), ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(triu(t, 1).to_vector<int>(), ElementsAre(0, 1, 0, 0));
}

TEST_F(ApiTensorTest, BlobsRunTheirDeleter) {
  float values[4] = {1, 2, 3, 4};
  int deleted = 0;
  {
    Tensor t = from_blob(values, {2, 2}, {1, 2}, [&deleted](void*) { ++deleted; }, {});
    EXPECT_THAT(t.to_vector<float>(), ElementsAre(1, 3, 2, 4));
    t.fill_(9);
  }
  EXPECT_EQ(deleted, 1);
  EXPECT_EQ(values[3], 9.0f);
  EXPECT_EQ(from_blob(values, {4}).sum().item<float>(), 36.0f);
}

TEST_F(ApiTensorTest, ItemNeedsOneElement) {
  EXPECT_EQ(tensor({2.5}, {.device = "cuda:0"}).item<float>(), 2.5f);
  EXPECT_TRUE(tensor({true}).item<bool>());
  EXPECT_EQ(tensor({4}).item().to<int>(), 4);
  try {
    (void)zeros({2}, {.device = "cuda:0"}).item<float>();
    ADD_FAILURE() << "expected an exception";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a Tensor with 2 elements cannot be converted to Scalar"));
  }
}

TEST_F(ApiTensorTest, PrintsElementsAndFooter) {
  std::ostringstream text;
  text << arange(3, {.device = "cuda:0"});
  EXPECT_THAT(text.str(), HasSubstr("0, 1, 2"));
  EXPECT_THAT(text.str(), HasSubstr("cuda:0"));
  EXPECT_THAT(text.str(), HasSubstr("i64"));
  EXPECT_EQ(arange(3, {.device = "cuda:0"}).str(), text.str());
  std::ostringstream large;
  large << zeros({2000});
  EXPECT_THAT(large.str(), HasSubstr("..."));
}

TEST_F(ApiTensorTest, ComparesWhole) {
  const Tensor a = tensor({1.0, 2.0}, {.device = "cuda:0"});
  EXPECT_TRUE(a.equal(a.clone()));
  EXPECT_TRUE(equal(a, a.clone()));
  EXPECT_FALSE(a.equal(a + 1));
  EXPECT_FALSE(a.equal(a.unsqueeze(0)));
  EXPECT_TRUE(a.allclose(a + 1e-7));
  EXPECT_FALSE(allclose(a, a + 1e-2));
  EXPECT_TRUE(allclose(a, a + 1e-2, 0, 0.1));
  EXPECT_THAT(isclose(a, a + 1).to_vector<bool>(), ElementsAre(false, false));
}

TEST_F(ApiTensorTest, UndefinedTensorsThrow) {
  EXPECT_THROW((void)Tensor().sizes(), InvalidArgument);
  EXPECT_THROW((void)(Tensor() + 1), InvalidArgument);
}

TEST_F(ApiTensorTest, ConstantsCarryEveryDType) {
  for (const DType dtype : {bool_, u8, i8, i16, i32, i64, f16, bf16, f32, f64}) {
    const Tensor t = ones({3}, {.dtype = dtype, .device = "cuda:0"});
    EXPECT_EQ(t.dtype(), dtype);
    EXPECT_EQ(t.to_vector<double>(), (std::vector<double>{1, 1, 1})) << dtype;
  }
}

TEST_F(ApiTensorTest, AssigningToAViewWritesElements) {
  Tensor t = zeros({2, 4}, Device::cuda(0));
  t[0] = ones({4}, Device::cuda(0));
  EXPECT_EQ(t.sum().item<float>(), 4.0f);
  t.index({1}) = ones({4}, Device::cuda(0));
  EXPECT_EQ(t.sum().item<float>(), 8.0f);
  t[0] = 3.0;
  EXPECT_EQ(t.sum().item<float>(), 16.0f);
  t.index({Slice(), 0}) = ones({2});  // from the CPU
  EXPECT_EQ(t.sum().item<float>(), 14.0f);
  for (Tensor row : t.unbind()) row = zeros({4});  // a variable: another handle
  EXPECT_EQ(t.sum().item<float>(), 14.0f);
}

TEST_F(ApiTensorTest, TakesTheFormsOfPyTorch) {
  EXPECT_EQ(zeros(4, f16).dtype(), f16);
  EXPECT_EQ(zeros({2}, Device::cuda(0)).device(), Device::cuda(0));
  EXPECT_EQ(rand({2}, f64).dtype(), f64);
  EXPECT_EQ(randn(3, Device::cuda(0)).sizes(), Shape({3}));
  EXPECT_EQ(arange(3, Device::cuda(0)).device(), Device::cuda(0));
  EXPECT_EQ(tensor(2.5).dim(), 0);
  EXPECT_EQ(tensor({{{1, 2}}, {{3, 4}}}).sizes(), Shape({2, 1, 2}));
  EXPECT_EQ(ones({2, 3}).view(-1).sizes(), Shape({6}));
  EXPECT_EQ(ones({2}).half().dtype(), f16);
  EXPECT_EQ(ones({2}).to(Device::cuda(0), true).device(), Device::cuda(0));
  EXPECT_EQ(div(tensor({7}), 2, "floor").item<int>(), 3);
  EXPECT_EQ((tensor({3}) << 1).item<int>(), 6);
}

}  // namespace
