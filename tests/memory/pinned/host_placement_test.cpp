#include "memory/pinned/host_placement.hpp"

#include <gtest/gtest.h>

#include "tests/support/device_fixture.hpp"

namespace gantry::memory {
namespace {

class HostPlacementTest : public gantry::testing::DeviceTest {};

TEST_F(HostPlacementTest, SimulatedDevicesTakeTheDriversMemory) {
  GANTRY_REQUIRE_SIM();
  EXPECT_EQ(host_placement(0, true, std::size_t{1} << 30).source, HostSource::driver);
}

TEST_F(HostPlacementTest, GpusGetPagesOfTheirNode) {
  GANTRY_REQUIRE_CUDA();
  EXPECT_EQ(host_placement(1, false, std::size_t{1} << 20).source, HostSource::driver);
  EXPECT_EQ(host_placement(1, true, std::size_t{1} << 20).source, HostSource::registered);
  EXPECT_EQ(host_placement(1, true, std::size_t{1} << 20).node, 1);
  EXPECT_EQ(host_placement(-1, false, std::size_t{1} << 30).source, HostSource::registered);
}

}  // namespace
}  // namespace gantry::memory
