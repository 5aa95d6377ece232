#include <gantry/device/guard.hpp>

#include <gtest/gtest.h>

#include <stdexcept>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

class GuardTest : public testing::DeviceTest {};

TEST_F(GuardTest, RestoresWhatWasCurrent) {
  GANTRY_REQUIRE_DEVICES(2);
  {
    const DeviceGuard guard(Device::cuda(1));
    EXPECT_EQ(current_device(), Device::cuda(1));
    EXPECT_EQ(guard.original_device(), Device::cuda(0));
    EXPECT_EQ(guard.current_device(), Device::cuda(1));
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(GuardTest, NestedGuardsUnwindInOrder) {
  GANTRY_REQUIRE_DEVICES(3);
  const DeviceGuard outer(Device::cuda(1));
  {
    const DeviceGuard inner(Device::cuda(2));
    const DeviceGuard same(Device::cuda(2));
    EXPECT_EQ(current_device(), Device::cuda(2));
    EXPECT_EQ(same.original_device(), Device::cuda(2));
  }
  EXPECT_EQ(current_device(), Device::cuda(1));
}

TEST_F(GuardTest, RestoresWhenAnExceptionLeavesTheScope) {
  GANTRY_REQUIRE_DEVICES(2);
  const auto thrower = [] {
    const DeviceGuard guard(Device::cuda(1));
    throw std::runtime_error("on purpose");
  };
  EXPECT_THROW(thrower(), std::runtime_error);
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(GuardTest, SetDeviceMovesOnAndStillRestoresTheFirst) {
  GANTRY_REQUIRE_DEVICES(3);
  {
    DeviceGuard guard(Device::cuda(1));
    guard.set_device(Device::cuda(2));
    EXPECT_EQ(current_device(), Device::cuda(2));
    EXPECT_EQ(guard.current_device(), Device::cuda(2));
    EXPECT_EQ(guard.original_device(), Device::cuda(0));
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(GuardTest, RestoresEvenIfItHadNothingToChange) {
  GANTRY_REQUIRE_DEVICES(2);
  {
    const DeviceGuard guard(Device::cuda(0));
    driver().set_device(1);  // foreign code that does not clean up
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(GuardTest, RestoresADeviceThatForeignCodeSet) {
  GANTRY_REQUIRE_DEVICES(3);
  driver().set_device(2);
  {
    const DeviceGuard guard(Device::cuda(1));
    EXPECT_EQ(guard.original_device(), Device::cuda(2));
  }
  EXPECT_EQ(current_device(), Device::cuda(2));
}

TEST_F(GuardTest, CurrentDeviceArgumentKeepsTheCurrentDevice) {
  const DeviceGuard guard(Device::cuda());
  EXPECT_EQ(guard.current_device(), Device::cuda(0));
}

TEST_F(GuardTest, CpuLeavesTheCurrentDeviceAlone) {
  GANTRY_REQUIRE_DEVICES(2);
  testing::FaultDriver counted;
  {
    const DeviceGuard guard(Device::cpu());
    EXPECT_EQ(guard.current_device(), Device::cpu());
  }
  EXPECT_EQ(counted.total_calls(), 0u);
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(GuardTest, InvalidDeviceThrowsAndChangesNothing) {
  EXPECT_THROW(DeviceGuard(Device::cuda(device_count())), InvalidArgument);
  EXPECT_EQ(current_device(), Device::cuda(0));
  DeviceGuard guard(Device::cuda(0));
  EXPECT_THROW(guard.set_device(Device::cuda(-7)), InvalidArgument);
  EXPECT_EQ(guard.current_device(), Device::cuda(0));
}

TEST_F(GuardTest, FailureToSetLeavesNothingToRestore) {
  GANTRY_REQUIRE_DEVICES(2);
  {
    testing::FaultDriver faults;
    faults.fail_on("set_device", 1);
    EXPECT_THROW(DeviceGuard(Device::cuda(1)), CudaError);
    EXPECT_EQ(faults.calls("restore_device"), 0u);
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(GuardTest, OptionalGuardDoesNothingUntilGivenADevice) {
  GANTRY_REQUIRE_DEVICES(2);
  {
    OptionalDeviceGuard guard;
    EXPECT_EQ(guard.current_device(), std::nullopt);
    EXPECT_EQ(guard.original_device(), std::nullopt);
    EXPECT_EQ(current_device(), Device::cuda(0));
    guard.set_device(Device::cuda(1));
    EXPECT_EQ(guard.current_device(), Device::cuda(1));
    EXPECT_EQ(guard.original_device(), Device::cuda(0));
    EXPECT_EQ(current_device(), Device::cuda(1));
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
  {
    const OptionalDeviceGuard none{std::nullopt};
    EXPECT_EQ(current_device(), Device::cuda(0));
    const OptionalDeviceGuard some(Device::cuda(1));
    EXPECT_EQ(current_device(), Device::cuda(1));
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
}

}  // namespace
}  // namespace gantry
