// What a test needs from the machine, and how it says so when the machine has less.
#pragma once

#include <gtest/gtest.h>

#include <gantry/device/device.hpp>

/// Skips the running test, with a reason, unless at least `n` devices (simulated or real) are
/// visible.
#define GANTRY_REQUIRE_DEVICES(n)                                              \
  if (const int gantry_present = gantry::device_count(); gantry_present < (n)) \
  GTEST_SKIP() << "needs " << (n) << " devices, but " << gantry_present << " are visible"

/// Skips the running test unless the devices are simulated ones.
#define GANTRY_REQUIRE_SIM()                             \
  if (gantry::platform() != gantry::Platform::simulated) \
  GTEST_SKIP() << "needs simulated devices (GANTRY_SIM_DEVICES), but the platform is another one"

/// Skips the running test unless the devices are real GPUs.
#define GANTRY_REQUIRE_CUDA()                       \
  if (gantry::platform() != gantry::Platform::cuda) \
  GTEST_SKIP() << "needs real GPUs, but the platform is another one"

namespace gantry::testing {

/// A test fixture whose tests start on cuda:0 and leave the thread's current device as they found
/// it.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_DEVICES(1);
    before_ = current_device();
    set_device(Device::cuda(0));
  }
  void TearDown() override {
    if (before_.is_cuda()) set_device(before_);
  }

 private:
  Device before_ = Device::cpu();
};

}  // namespace gantry::testing
