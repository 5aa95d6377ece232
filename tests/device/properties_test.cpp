#include <gantry/device/properties.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>

#include "device/architectures.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;

class PropertiesTest : public testing::DeviceTest {};

TEST_F(PropertiesTest, DescribeEveryDevice) {
  const std::regex uuid("(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}");
  const std::regex bus("[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\\.0");
  std::set<std::string> uuids;
  std::set<std::string> buses;
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties& p = device_properties(Device::cuda(i));
    EXPECT_FALSE(p.name.empty());
    EXPECT_TRUE(std::regex_match(p.uuid, uuid)) << p.uuid;
    EXPECT_TRUE(std::regex_match(p.pci_bus_id, bus)) << p.pci_bus_id;
    EXPECT_GE(p.major, 5);
    EXPECT_GE(p.minor, 0);
    EXPECT_GT(p.total_memory, std::size_t{1} << 20);
    EXPECT_GT(p.multiprocessors, 0);
    EXPECT_GT(p.l2_bytes, 0u);
    EXPECT_EQ(p.warp_size, 32);
    EXPECT_GE(p.max_threads_per_block, 256);
    EXPECT_GE(p.max_threads_per_multiprocessor, p.max_threads_per_block);
    EXPECT_GT(p.shared_memory_per_block, 0u);
    EXPECT_GE(p.shared_memory_per_block_optin, p.shared_memory_per_block);
    uuids.insert(p.uuid);
    buses.insert(p.pci_bus_id);
  }
  EXPECT_EQ(uuids.size(), static_cast<std::size_t>(device_count()));
  EXPECT_EQ(buses.size(), static_cast<std::size_t>(device_count()));
}

TEST_F(PropertiesTest, SimulatedDevicesSayWhatTheyAre) {
  GANTRY_REQUIRE_SIM();
  EXPECT_EQ(device_properties(Device::cuda(0)).name, "Simulated GPU");
}

TEST_F(PropertiesTest, AreReadOnceAndStayInPlace) {
  const DeviceProperties* first = &device_properties(Device::cuda(0));
  testing::FaultDriver counted;
  EXPECT_EQ(&device_properties(), first);
  EXPECT_EQ(&device_properties(Device::cuda(0)), first);
  EXPECT_EQ(counted.calls("properties"), 0u);
}

TEST_F(PropertiesTest, AgreeWithTheMemoryInfo) {
  const NativeMemoryInfo info = driver().memory_info(0);
  EXPECT_LE(info.free, info.total);
  EXPECT_LE(info.total, device_properties(Device::cuda(0)).total_memory);
}

TEST_F(PropertiesTest, RejectWhatIsNoDevice) {
  EXPECT_THROW((void)device_properties(Device::cpu()), InvalidArgument);
  EXPECT_THROW((void)device_properties(Device::cuda(device_count())), InvalidArgument);
}

TEST_F(PropertiesTest, WriteOneLine) {
  std::ostringstream out;
  const DeviceProperties& p = device_properties(Device::cuda(0));
  out << p;
  EXPECT_THAT(out.str(), HasSubstr(p.name));
  EXPECT_THAT(out.str(), HasSubstr(p.uuid));
  EXPECT_THAT(out.str(), HasSubstr(std::to_string(p.multiprocessors) + " multiprocessors"));
  EXPECT_EQ(out.str().find('\n'), std::string::npos);
}

TEST(ArchitecturesTest, FlagsNameEveryArchitectureOnce) {
  const std::regex name("(sm|compute)_[0-9]+[a-z]?");
  std::istringstream flags(gencode_flags());
  for (const std::string& arch : arch_list()) {
    EXPECT_TRUE(std::regex_match(arch, name)) << arch;
    std::string option;
    std::string value;
    flags >> option >> value;
    EXPECT_EQ(option, "-gencode");
    EXPECT_EQ(value, "arch=compute_" + arch.substr(arch.find('_') + 1) + ",code=" + arch);
  }
  std::string rest;
  EXPECT_FALSE(flags >> rest) << rest;
}

TEST(ArchitecturesTest, CodeRunsWhereCudaSaysSo) {
  struct Case {
    std::vector<std::string> built;
    int major;
    int minor;
    bool runs;
  };
  const std::vector<Case> cases = {
      {{"sm_90"}, 9, 0, true},
      {{"sm_90"}, 8, 9, false},   // an older device
      {{"sm_90"}, 10, 0, false},  // machine code of another major version
      {{"sm_80"}, 8, 6, true},    // a greater minor version
      {{"sm_86"}, 8, 0, false},   // a smaller one
      {{"sm_80", "sm_90"}, 8, 9, true},
      {{"sm_75", "sm_90"}, 8, 0, false},
      {{"compute_90"}, 9, 0, true},
      {{"compute_90"}, 12, 0, true},
      {{"compute_90"}, 8, 6, false},
      {{"compute_75"}, 8, 0, true},
      {{"compute_86"}, 8, 0, false},
      {{"sm_100"}, 10, 3, true},
      {{"sm_103"}, 10, 0, false},
      {{"sm_120"}, 12, 1, true},
      {{"sm_90", "compute_90"}, 10, 0, true},
      {{"sm_90a"}, 9, 0, true},
      {{"sm_90a", "compute_90a"}, 10, 0, false},  // architecture-specific code goes nowhere else
      {{"sm_100f"}, 10, 3, true},
      {{"compute_100f"}, 12, 0, false},
      {{}, 9, 0, false},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(has_code_for(c.built, c.major, c.minor), c.runs)
        << ::testing::PrintToString(c.built) << " on " << c.major << "." << c.minor;
  }
}

TEST(ArchitecturesTest, MissingCodeIsOneSentenceWithTheRemedy) {
  const std::vector<std::string> built = {"sm_90", "compute_90"};
  EXPECT_EQ(missing_code_text(built, 1, "NVIDIA A100-SXM4-80GB", 8, 0),
            "cuda:1 (NVIDIA A100-SXM4-80GB) is sm_80, but this build of gantry has kernels for "
            "sm_90, compute_90 only, so none of them runs there; configure with "
            "-DGANTRY_CUDA_ARCHITECTURES=80 and build again");
}

TEST(ArchitecturesTest, VisibleDevicesHaveCode) {
  GANTRY_REQUIRE_CUDA();
  for (int i = 0; i < device_count(); ++i) {
    const DeviceProperties& p = device_properties(Device::cuda(i));
    EXPECT_TRUE(has_code_for(arch_list(), p.major, p.minor)) << p;
  }
}

TEST(ArchitecturesTest, AreThereWhereGpusAre) {
  GANTRY_REQUIRE_CUDA();
  EXPECT_FALSE(arch_list().empty());
}

}  // namespace
}  // namespace gantry
