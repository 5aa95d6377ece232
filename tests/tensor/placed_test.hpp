// Tests that run once on the CPU and once on a device.
#pragma once

#include <gtest/gtest.h>

#include <gantry/device/device.hpp>
#include <gantry/tensor/tensor.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry::testing {

/// A fixture with the device of the test: the CPU, or the last device, which is not the current one
/// if there are several. Instantiate it with GANTRY_TEST_PLACES(TheFixture).
class PlacedTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) return;
    GANTRY_REQUIRE_DEVICES(1);
    device_ = Device::cuda(device_count() - 1);
  }
  Tensor on(const Tensor& tensor) const { return tensor.to(device_); }
  TensorOptions options(DType dtype = f32) const { return {.dtype = dtype, .device = device_}; }

  Device device_ = Device::cpu();
};

}  // namespace gantry::testing

#define GANTRY_TEST_PLACES(Fixture)                                         \
  INSTANTIATE_TEST_SUITE_P(Places, Fixture, ::testing::Values(false, true), \
                           [](const auto& test) { return test.param ? "device" : "cpu"; })
