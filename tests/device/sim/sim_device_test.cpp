#include <set>

#include "machine/sim_identity.hpp"
#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

TEST(SimDeviceTest, IdentitiesAreDistinctAndMatchTheProperties) {
  const auto identities = sim_device_identities(8);
  ASSERT_EQ(identities.size(), 8u);
  std::set<std::string> uuids;
  std::set<std::string> buses;
  for (const DeviceIdentity& identity : identities) {
    EXPECT_EQ(identity.uuid.substr(0, 4), "GPU-");
    EXPECT_EQ(identity.uuid.size(), 40u);
    uuids.insert(identity.uuid);
    buses.insert(identity.pci_bus_id);
  }
  EXPECT_EQ(uuids.size(), 8u);
  EXPECT_EQ(buses.size(), 8u);
  const auto driver = make_sim_driver(std::vector{5, 2});
  ASSERT_EQ(driver->device_count(), 2);
  EXPECT_EQ(driver->properties(0).uuid, identities[5].uuid);
  EXPECT_EQ(driver->properties(1).pci_bus_id, identities[2].pci_bus_id);
}

TEST(SimDeviceTest, LooksLikeAGpu) {
  const auto driver = make_sim_driver(1);
  const DeviceProperties properties = driver->properties(0);
  EXPECT_EQ(driver->platform(), Platform::simulated);
  EXPECT_EQ(properties.name, "Simulated GPU");
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.warp_size, 32);
  EXPECT_GT(properties.multiprocessors, 0);
  EXPECT_LE(driver->priority_range(0).greatest, driver->priority_range(0).least);
  expect_cuda_error(101, "expected 0 to 0, but got 1", [&] { (void)driver->properties(1); });
  expect_cuda_error(101, "expected 0 to 0, but got -1", [&] { (void)driver->memory_info(-1); });
}

TEST(SimDeviceTest, TakesOneTo64Devices) {
  EXPECT_THROW((void)make_sim_driver(0), InvalidArgument);
  EXPECT_THROW((void)make_sim_driver(65), InvalidArgument);
  EXPECT_EQ(make_sim_driver(64)->device_count(), 64);
}

TEST(SimDeviceTest, KernelsNeedAMachine) {
  EXPECT_THROW(sim::launch({0, nullptr}, [] {}), NotSupported);
  EXPECT_THROW(sim::check_device_access(0, nullptr, 1), NotSupported);
}

}  // namespace
}  // namespace gantry::testing
