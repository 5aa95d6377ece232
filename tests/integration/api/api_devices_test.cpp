// Devices, guards, properties and peers through the umbrella header.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>
#include <sstream>
#include <unordered_set>

#include "tests/support/device_fixture.hpp"

namespace {

using namespace gantry;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ApiDevicesTest : public gantry::testing::DeviceTest {};

TEST(ApiDeviceNameTest, ParsesAllForms) {
  EXPECT_EQ(Device("cpu"), Device::cpu());
  EXPECT_EQ(Device("cuda:1"), Device::cuda(1));
  EXPECT_EQ(Device("cuda"), Device::cuda());
  EXPECT_EQ(Device(std::string("cuda:3")).index, 3);
  EXPECT_EQ((Device{DeviceType::cuda, 2}), Device::cuda(2));
  EXPECT_EQ(Device("cuda:1").type, DeviceType::cuda);
  EXPECT_NE(Device("cuda:1"), Device("cuda:0"));
}

TEST(ApiDeviceNameTest, PrintsAndHashes) {
  std::ostringstream text;
  text << Device::cuda(1) << " " << Device::cpu();
  EXPECT_EQ(text.str(), "cuda:1 cpu");
  EXPECT_EQ(Device("cuda:7").str(), "cuda:7");
  const std::unordered_set<Device> devices{"cpu", "cuda:0", "cuda:1", "cuda:0"};
  EXPECT_EQ(devices.size(), 3u);
}

TEST(ApiDeviceNameTest, RefusesOtherText) {
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1 ", "cpu:1:2"}) {
    EXPECT_THROW((void)Device(text), InvalidArgument) << text;
  }
}

TEST_F(ApiDevicesTest, KnowsThePlatform) {
  init();
  EXPECT_TRUE(is_available());
  EXPECT_TRUE(is_initialized());
  EXPECT_GE(device_count(), 1);
  EXPECT_NE(platform(), Platform::none);
  EXPECT_FALSE(in_bad_fork());
}

TEST_F(ApiDevicesTest, SetsAndSynchronizes) {
  GANTRY_REQUIRE_DEVICES(2);
  set_device(Device::cuda(1));
  EXPECT_EQ(current_device(), Device("cuda:1"));
  set_device("cuda:0");
  EXPECT_EQ(current_device(), Device("cuda:0"));
  synchronize();
  synchronize(Device::cuda(1));
  synchronize("cuda:1");
  EXPECT_EQ(current_device(), Device("cuda:0"));
}

TEST_F(ApiDevicesTest, RefusesDevicesThatAreNotThere) {
  EXPECT_THROW(set_device(Device::cuda(device_count())), InvalidArgument);
  EXPECT_THROW(set_device(Device::cpu()), InvalidArgument);
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(ApiDevicesTest, GuardsRestore) {
  GANTRY_REQUIRE_DEVICES(2);
  {
    DeviceGuard guard(Device::cuda(1));
    EXPECT_EQ(current_device(), Device::cuda(1));
    EXPECT_EQ(guard.original_device(), Device::cuda(0));
    guard.set_device("cuda:0");
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
  {
    OptionalDeviceGuard idle;
    EXPECT_FALSE(idle.current_device().has_value());
    OptionalDeviceGuard guard(Device::cuda(1));
    EXPECT_EQ(current_device(), Device::cuda(1));
  }
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(ApiDevicesTest, ReportsProperties) {
  const DeviceProperties& properties = device_properties(Device::cuda(0));
  EXPECT_FALSE(properties.name.empty());
  EXPECT_THAT(properties.uuid, HasSubstr("GPU-"));
  EXPECT_FALSE(properties.pci_bus_id.empty());
  EXPECT_GT(properties.total_memory, 0u);
  EXPECT_GT(properties.multiprocessors, 0);
  EXPECT_GT(properties.l2_bytes, 0u);
  EXPECT_EQ(properties.warp_size, 32);
  EXPECT_GE(properties.major, 1);
  EXPECT_GE(properties.minor, 0);
  EXPECT_EQ(&device_properties("cuda:0"), &properties);
  if (platform() == Platform::simulated) {
    EXPECT_EQ(properties.name, "Simulated GPU");
  }
}

TEST_F(ApiDevicesTest, EnablesPeers) {
  GANTRY_REQUIRE_DEVICES(2);
  EXPECT_TRUE(can_access_peer(Device::cuda(0), Device::cuda(0)));
  const PeerMatrix matrix = peer_matrix();
  EXPECT_EQ(matrix.count, device_count());
  EXPECT_EQ(matrix.can_access(0, 1), can_access_peer("cuda:0", "cuda:1"));
  if (!can_access_peer("cuda:0", "cuda:1")) GTEST_SKIP() << "needs peer access";
  enable_peer_access(Device::cuda(0), Device::cuda(1));
  enable_peer_access(Device::cuda(0), Device::cuda(1));
}

TEST(ApiArchitectureTest, FlagsNameTheArchitectures) {
  const std::vector<std::string> archs = arch_list();
  const std::string flags = gencode_flags();
  EXPECT_EQ(archs.empty(), flags.empty());
  for (const std::string& arch : archs) EXPECT_THAT(flags, HasSubstr(arch));
}

TEST(ApiVisibleDevicesTest, FollowsTheDriversRules) {
  const std::vector<DeviceIdentity> all{{.uuid = "GPU-aaaa1111", .pci_bus_id = ""},
                                        {.uuid = "GPU-bbbb2222", .pci_bus_id = ""},
                                        {.uuid = "GPU-cccc3333", .pci_bus_id = ""}};
  EXPECT_THAT(parse_visible_devices("2,0", all).visible, ElementsAre(2, 0));
  EXPECT_THAT(parse_visible_devices("GPU-bbbb", all).visible, ElementsAre(1));
  const VisibleDevices cut = parse_visible_devices("0,7,1", all);
  EXPECT_THAT(cut.visible, ElementsAre(0));
  ASSERT_FALSE(cut.dropped.empty());
  EXPECT_EQ(cut.dropped[0].token, "7");
  EXPECT_FALSE(cut.dropped[0].reason.empty());
  EXPECT_THAT(parse_visible_devices("", all).visible, IsEmpty());
}

}  // namespace
