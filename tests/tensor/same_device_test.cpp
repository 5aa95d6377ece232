#include "tensor/same_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/shape_ops.hpp>

#include "tensor/layout/broadcast.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry::detail {
namespace {

using ::testing::ThrowsMessage;

class SameDeviceTest : public gantry::testing::DeviceTest {
 protected:
  Tensor cpu = zeros({2});
  Tensor scalar = zeros({});
};

TEST_F(SameDeviceTest, TheFirstDeviceOperandDecides) {
  const Tensor first = zeros({2}, {.device = "cuda:0"});
  EXPECT_EQ(common_device("add", {{"self", cpu}, {"other", cpu}}), Device::cpu());
  EXPECT_EQ(common_device("add", {{"self", first}, {"other", first}}), Device::cuda(0));
  EXPECT_EQ(common_device("add", {{"self", scalar}, {"other", first}}, CpuScalars::allowed),
            Device::cuda(0));
}

TEST_F(SameDeviceTest, NamesBothDevicesOperationAndArgument) {
  GANTRY_REQUIRE_DEVICES(2);
  const Tensor first = zeros({2}, {.device = "cuda:0"});
  const Tensor second = zeros({2}, {.device = "cuda:1"});
  EXPECT_THAT(
      [&] {
        common_device("add", {{"self", first}, {"other", second}});
      },
      ThrowsMessage<DeviceMismatchError>(
          "Expected all tensors to be on the same device, but found at least two devices, "
          "cuda:0 and cuda:1! (when checking argument other in add)"));
  EXPECT_THAT(
      [&] {
        common_device("add", {{"self", cpu}, {"other", second}});
      },
      ThrowsMessage<DeviceMismatchError>(
          "Expected all tensors to be on the same device, but found at least two devices, "
          "cuda:1 and cpu! (when checking argument self in add)"));
  const std::vector<Tensor> list{first, first, second};
  EXPECT_THAT([&] { common_device("cat", list); },
              ThrowsMessage<DeviceMismatchError>(
                  "Expected all tensors to be on the same device, but found at least two devices, "
                  "cuda:0 and cuda:1! (when checking argument tensors[2] in cat)"));
}

TEST_F(SameDeviceTest, OneCpuScalarIsAllowedWhereTheOperationPermits) {
  const Tensor device = zeros({2}, {.device = "cuda:0"});
  const Tensor device_scalar = zeros({}, {.device = "cuda:0"});
  EXPECT_THROW(common_device("mm", {{"self", device}, {"other", scalar}}), DeviceMismatchError);
  EXPECT_THAT(
      [&] {
        common_device("where", {{"self", device}, {"a", scalar}, {"b", scalar}},
                      CpuScalars::allowed);
      },
      ThrowsMessage<DeviceMismatchError>(
          "where: Trying to pass too many CPU scalars to non-CPU kernel!"));
  EXPECT_THROW(
      common_device("add", {{"out", scalar, Role::output}, {"self", device}}, CpuScalars::allowed),
      DeviceMismatchError);
  EXPECT_THROW(common_device("add", {{"self", cpu}, {"other", device_scalar}}, CpuScalars::allowed),
               DeviceMismatchError);
}

TEST_F(SameDeviceTest, UndefinedTensorsAreNamed) {
  EXPECT_THAT(
      [&] {
        common_device("add", {{"self", cpu}, {"other", Tensor()}});
      },
      ThrowsMessage<InvalidArgument>("add: expected a defined tensor for argument 'other', "
                                     "but got an undefined tensor"));
}

TEST_F(SameDeviceTest, OperationsFollowTheirOperandsNotTheCurrentDevice) {
  const Device last = Device::cuda(device_count() - 1);
  const Tensor a = ones({2, 2}, {.device = last});
  set_device(Device::cuda(0));
  EXPECT_EQ((a + a).device(), last);
  EXPECT_EQ((a + 1).device(), last);
  EXPECT_EQ(a.sum().device(), last);
  EXPECT_EQ(a.mm(a).device(), last);
  EXPECT_EQ(cat({a, a}).device(), last);
  EXPECT_EQ(current_device(), Device::cuda(0));
  EXPECT_EQ(gantry::testing::elements(a + zeros({}).fill_(2)), std::vector<double>(4, 3));
}

TEST(BroadcastTest, AlignsFromTheRight) {
  EXPECT_EQ(broadcast_shapes({2, 1, 4}, {3, 1}), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shapes({}, {3}), (Shape{3}));
  EXPECT_EQ(broadcast_shapes({1}, {0}), (Shape{0}));
  EXPECT_THAT([] { static_cast<void>(common_shape("add", {})); },
              ::testing::Not(::testing::Throws<Error>()));
  const Shape a{2, 16};
  const Shape b{3};
  EXPECT_THAT(
      [&] {
        static_cast<void>(common_shape("add", {&a, &b}));
      },
      ThrowsMessage<ShapeError>("add: The size of tensor a (16) must match the size of "
                                "tensor b (3) at non-singleton dimension 1"));
}

}  // namespace
}  // namespace gantry::detail
