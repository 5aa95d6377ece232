// GANTRY_SANITIZER=throw, which ctest sets.
#include <gtest/gtest.h>

#include <gantry/streams/sanitizer.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry::testing {
namespace {

TEST(SanitizerEnvironment, IsOnFromTheFirstDevice) {
  GANTRY_REQUIRE_DEVICES(1);
  const Device device = Device::cuda(0);
  const Tensor x = ones({8}, {.dtype = DType::f32, .device = device});
  EXPECT_EQ(sanitizer::mode(), sanitizer::Mode::throw_);
  const StreamGuard guard(Stream::from_pool(device));
  EXPECT_ERROR(x.fill_(2), RaceError, "fill: expected an order after fill on the same memory");
  synchronize(device);
  x.fill_(2);
  synchronize(device);
}

}  // namespace
}  // namespace gantry::testing
