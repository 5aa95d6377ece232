// Calls as programs of libtorch write them: that they compile, and mean the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <optional>
#include <utility>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <class T>
concept HasGetterOfDtype = requires(T options) {
  options.dtype();
};
template <class T>
concept Squeezes = requires(T&& tensor) {
  std::forward<T>(tensor).squeeze_();
};

class ApiLibtorchTest : public gantry::testing::DeviceTest {};

TEST_F(ApiLibtorchTest, OptionsAreBuiltOneByOne) {
  const TensorOptions built = TensorOptions().dtype(f16).device("cuda:0").pinned_memory(true);
  EXPECT_EQ(built.dtype, f16);
  EXPECT_EQ(built.device, Device::cuda(0));
  EXPECT_TRUE(built.pinned);
  EXPECT_FALSE(built.pinned_memory(false).pinned);

  // Each call changes one setting of a copy.
  for (const std::optional<DType> type : {std::optional<DType>(), std::optional(i64)}) {
    for (const std::optional<Device> place : {std::optional<Device>(), std::optional(Device())}) {
      for (const bool pinned : {false, true}) {
        const TensorOptions before{.dtype = type, .device = place, .pinned = pinned};
        const TensorOptions typed = before.dtype(bf16), placed = before.device(Device::cuda(1));
        EXPECT_EQ(typed.dtype, bf16);
        EXPECT_EQ(typed.device, place);
        EXPECT_EQ(typed.pinned, pinned);
        EXPECT_EQ(placed.dtype, type);
        EXPECT_EQ(placed.device, Device::cuda(1));
        EXPECT_EQ(placed.pinned, pinned);
        EXPECT_EQ(before.dtype, type);
        EXPECT_EQ(before.device, place);
      }
    }
  }

  EXPECT_EQ(dtype(i64).device(DeviceType::cuda, 1).device, Device::cuda(1));
  EXPECT_EQ(device(DeviceType::cuda, 1).dtype(i64).dtype, i64);
  EXPECT_EQ(device("cuda").device, Device::cuda());
  EXPECT_EQ(device(DeviceType::cpu).dtype(u8).device, Device::cpu());
  EXPECT_EQ(zeros({2}, dtype(i64).device("cuda:0")).options().dtype(f32).device, Device::cuda(0));
  EXPECT_THAT([] { return TensorOptions().device("disk"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("disk")));
}

TEST_F(ApiLibtorchTest, SettingsCompareAsOptionals) {
  const TensorOptions none, set{.dtype = i64, .device = "cpu"};
  EXPECT_TRUE(none.dtype == none.dtype && none.device == std::optional<Device>());
  EXPECT_TRUE(none.dtype == std::nullopt && set.dtype != std::nullopt);
  EXPECT_TRUE(set.dtype == i64 && i64 == set.dtype && set.dtype != f32 && none.dtype != i64);
  EXPECT_TRUE(std::optional(i64) == set.dtype && set.dtype != none.dtype);
  EXPECT_FALSE(none.device == std::optional(Device::cpu()));
  const std::optional<DType> copy = set.dtype;
  EXPECT_EQ(copy, i64);
  static_assert(!HasGetterOfDtype<TensorOptions>);
}

TEST_F(ApiLibtorchTest, AKindOfDeviceIsADevice) {
  constexpr DeviceType kCPU = DeviceType::cpu, kCUDA = DeviceType::cuda;
  static_assert(Device(kCPU) == Device::cpu() && Device(kCUDA) == Device::cuda());
  EXPECT_EQ(zeros({2}, kCUDA).device(), current_device());
  EXPECT_EQ(rand({2}, kCPU).device(), Device::cpu());
  const Tensor t = ones({2}, kCUDA);
  EXPECT_EQ(t.to(kCPU).device(), Device::cpu());
  EXPECT_EQ(t.to(kCPU, f16).dtype(), f16);
  EXPECT_EQ(t.cpu().to(kCUDA, /*non_blocking=*/true).device(), current_device());
  EXPECT_EQ(t.new_zeros({2}, kCPU).device(), Device::cpu());
  const Tensor indices = tensor({1}, TensorOptions{.device = kCUDA});
  EXPECT_EQ(indices.device(), current_device());
  const DeviceGuard guard(kCUDA);
  EXPECT_EQ(guard.current_device(), current_device());
  EXPECT_TRUE(t.cpu().device() == kCPU);
  EXPECT_FALSE(t.device() == kCUDA);  // no index is another index, as in libtorch
}

TEST_F(ApiLibtorchTest, VarMeanTakesDims) {
  const Tensor t = rand({3, 4, 2});
  for (const int dim : {0, 1, -1}) {
    for (const double correction : {0.0, 1.0}) {
      for (const bool keepdim : {false, true}) {
        const auto [var, mean] = var_mean(t, dim, correction, keepdim);
        EXPECT_TRUE(var.equal(t.var(dim, correction, keepdim)));
        EXPECT_TRUE(mean.equal(t.mean(dim, keepdim)));
        const auto [deviation, average] = std_mean(t, dim, correction, keepdim);
        EXPECT_TRUE(deviation.equal(t.std(dim, correction, keepdim)));
        EXPECT_TRUE(average.equal(mean));
      }
    }
  }
  EXPECT_TRUE(var_mean(t, false).var.equal(t.var(false)));
  EXPECT_TRUE(std_mean(t, true).std.equal(t.std(true)));
  EXPECT_TRUE(var_mean(t, {.dims = {0, 2}}).mean.equal(t.mean({0, 2})));
}

TEST_F(ApiLibtorchTest, PropertiesHaveLibtorchsNames) {
  const Tensor t = zeros({2, 3}, dtype(i16).device("cuda:0")), copy = t;
  EXPECT_EQ(t.ndimension(), 2);
  EXPECT_EQ(t.scalar_type(), i16);
  EXPECT_EQ(t.get_device(), 0);
  EXPECT_EQ(t.cpu().get_device(), -1);
  EXPECT_TRUE(t.is_same(copy) && copy.is_same(t) && Tensor().is_same(Tensor()));
  EXPECT_FALSE(t.is_same(t.alias()) || t.is_same(t.clone()) || t.is_same(Tensor()));
  EXPECT_TRUE(t.is_same(t.fill_(2)));
  const Tensor other = zeros({1}, f64);
  EXPECT_EQ(t.to(other).dtype(), f64);
  EXPECT_EQ(t.to(other).device(), Device::cpu());
  EXPECT_TRUE(t.to(copy).is_same(t));
  EXPECT_FALSE(t.to(copy, /*non_blocking=*/false, /*copy=*/true).is_view_of(t));
  EXPECT_THAT([&] { return t.to(Tensor()); }, ThrowsMessage<InvalidArgument>(HasSubstr("undef")));
}

TEST_F(ApiLibtorchTest, ViewsInPlaceRebindTheVariable) {
  Tensor t = arange(6).view({2, 1, 3});
  const Tensor before = t;
  EXPECT_TRUE(t.squeeze_(1).is_same(t));
  EXPECT_EQ(t.sizes(), Shape({2, 3}));
  t.t_();
  EXPECT_EQ(t.sizes(), Shape({3, 2}));
  t.unsqueeze_(-1).transpose_(0, 1);
  EXPECT_EQ(t.sizes(), Shape({2, 3, 1}));
  EXPECT_EQ(t.squeeze_().sizes(), Shape({2, 3}));
  t.add_(1);
  EXPECT_TRUE(t.is_view_of(before) && t.equal(before.squeeze(1)));
  EXPECT_EQ(before.sizes(), Shape({2, 1, 3}));  // another copy
  EXPECT_THROW(t.unsqueeze_(4), IndexError);
  EXPECT_THROW(t.transpose_(0, 2), IndexError);
  EXPECT_EQ(t.sizes(), Shape({2, 3}));
  static_assert(Squeezes<Tensor&> && !Squeezes<Tensor>);  // it would be lost
}

TEST_F(ApiLibtorchTest, BracketsTakeATensor) {
  Tensor t = arange(12).view({4, 3});
  EXPECT_TRUE(t[scalar_tensor(2)].equal(t[2]));
  EXPECT_TRUE(t[tensor({2, 0})].equal(t.index({tensor({2, 0})})));
  EXPECT_TRUE(t[t > 4].equal(t.masked_select(t > 4)));
  t[scalar_tensor(1)] = 7;
  EXPECT_THAT(t[1].to_vector<int>(), ElementsAre(7, 7, 7));
  EXPECT_THROW(t[scalar_tensor(4)], IndexError);
}

TEST_F(ApiLibtorchTest, AGeneratorMayStandBeforeTheOptions) {
  Generator g("cuda:0", 7);
  const auto again = [&]() -> Generator& {
    g.manual_seed(7);
    return g;
  };
  const TensorOptions half = dtype(f16).device("cuda:0");
  EXPECT_TRUE(rand({9}, again(), half).equal(rand({9}, half, again())));
  EXPECT_TRUE(randn({9}, again(), half).equal(randn({9}, half, again())));
  EXPECT_TRUE(randint(9, {9}, again(), half).equal(randint(9, {9}, half, again())));
  EXPECT_TRUE(randint(2, 9, {9}, again(), half).equal(randint(2, 9, {9}, half, again())));
  EXPECT_TRUE(randperm(9, again(), half).equal(randperm(9, half, again())));
  EXPECT_TRUE(normal(1, 2, {9}, again(), half).equal(normal(1, 2, {9}, half, again())));
  EXPECT_TRUE(randn({9}, again(), "cuda:0").equal(randn({9}, "cuda:0", again())));
  EXPECT_TRUE(randn({9}, again(), {.device = "cuda:0"}).equal(randn({9}, "cuda:0", again())));
}

TEST_F(ApiLibtorchTest, ListsMayBeEmptyAndDeep) {
  EXPECT_EQ(tensor({}).sizes(), Shape({0}));
  EXPECT_EQ(tensor({}).dtype(), f32);
  EXPECT_EQ(tensor({}, i64).dtype(), i64);
  EXPECT_EQ(tensor({}, dtype(i64).device("cuda:0")).device(), Device::cuda(0));
  EXPECT_EQ(tensor({{}, {}}).sizes(), Shape({2, 0}));
  EXPECT_EQ(tensor({{{}}}).sizes(), Shape({1, 1, 0}));
  const Tensor deep = tensor({{{{1, 2}, {3, 4}}}, {{{5, 6}, {7, 8}}}});
  EXPECT_EQ(deep.sizes(), Shape({2, 1, 2, 2}));
  EXPECT_TRUE(deep.equal(arange(1, 9).view({2, 1, 2, 2})));
  EXPECT_EQ(tensor({{{{{{{{1.5f}}}}}}}}).sizes(), Shape::filled(8, 1));
  EXPECT_EQ(ones({1}, f16).new_tensor({}).dtype(), f16);
  EXPECT_EQ(ones({1}).new_tensor({{{{1}}}}, i8).dtype(), i8);
  EXPECT_THAT([] { return tensor({{{{{{{{{1}}}}}}}}}); },
              ThrowsMessage<ShapeError>(HasSubstr("8")));
  EXPECT_THAT(
      [] {
        return tensor({{{{1, 2}, {3}}}});
      },
      ThrowsMessage<ShapeError>(
          HasSubstr("tensor: expected an entry of shape [2] in row 1, but got [1]")));
  EXPECT_THROW(tensor({{}, {{}}}), ShapeError);
}

TEST_F(ApiLibtorchTest, NumbersOfAListArePromoted) {
  const std::int64_t n = 5;
  EXPECT_EQ(tensor({n, 1}).dtype(), i64);
  EXPECT_EQ(tensor({1, 2.5}).dtype(), f32);
  EXPECT_THAT(tensor({1, 2.5}).to_vector<float>(), ElementsAre(1, 2.5));
  EXPECT_EQ(tensor({true, 2}).dtype(), i64);
  EXPECT_EQ(tensor({float16(1), bfloat16(2)}).dtype(), f32);
  EXPECT_EQ(tensor({{1, 2}, {3, 4.5}}).dtype(), f32);
  EXPECT_EQ(tensor({1, 2.5}, i64).to_vector<int>()[1], 2);
  EXPECT_THROW(tensor({std::uint16_t{1}, 2}), DTypeError);
}

}  // namespace
