#include "machine/nvml/nvml.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace gantry::machine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NvmlTest : public ::testing::Test {
 protected:
  ~NvmlTest() override {
    unsetenv("FAKE_NVML");
    unsetenv("FAKE_NVML_FACTS");
    unsetenv("FAKE_NVML_FAILS");
  }
  static void machine(const std::string& devices, const std::string& facts = "") {
    setenv("FAKE_NVML", devices.c_str(), 1);
    setenv("FAKE_NVML_FACTS", facts.c_str(), 1);
  }
  static constexpr const char* kTwo = "H200,GPU-a,00000000:1B:00.0;H200,GPU-b,00000001:1C:00.0";
};

TEST_F(NvmlTest, DevicesHaveNames) {
  machine(kTwo, "0 capability 9 0;driver version 580.1");
  const Nvml nvml(GANTRY_TEST_FAKE_NVML);
  EXPECT_EQ(nvml.problem(), "");
  EXPECT_EQ(*nvml.device_count(), 2);
  EXPECT_EQ(*nvml.driver_version(), "580.1");
  const NvmlDevice first = *nvml.device(0);
  EXPECT_EQ(*nvml.name(first), "H200");
  EXPECT_EQ(*nvml.uuid(first), "GPU-a");
  EXPECT_EQ(*nvml.pci_bus_id(first), "0000:1b:00.0");
  EXPECT_THAT(*nvml.compute_capability(first), ElementsAre(9, 0));
  EXPECT_FALSE(nvml.compute_capability(*nvml.device(1)));
  // A domain above 0 keeps its digits.
  EXPECT_EQ(*nvml.pci_bus_id(*nvml.device(1)), "0001:1c:00.0");
  EXPECT_EQ(*nvml.device_by_uuid("GPU-b"), *nvml.device(1));
  EXPECT_FALSE(nvml.device_by_uuid("GPU-c"));
}

TEST_F(NvmlTest, StateOfADevice) {
  machine(kTwo,
          "0 memory 100 70 30;0 utilization 40 5;0 temperature 61;0 power 312000 700000;"
          "0 clocks 1755 1980 2619;0 maxclocks 1980 1980 2619;0 throttle 4;0 mode 3;"
          "0 persistence 1;0 retired 1;0 rows 1 2 1 0;0 pcie 4 8 5 16");
  const Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const NvmlDevice device = *nvml.device(0);
  EXPECT_EQ(nvml.memory(device)->total, 100U);
  EXPECT_EQ(nvml.memory(device)->free, 70U);
  EXPECT_EQ(nvml.memory(device)->used, 30U);
  EXPECT_EQ(nvml.utilization(device)->gpu, 40U);
  EXPECT_EQ(nvml.utilization(device)->memory, 5U);
  EXPECT_EQ(*nvml.temperature(device), 61U);
  EXPECT_EQ(*nvml.power(device), 312000U);
  EXPECT_EQ(*nvml.power_limit(device), 700000U);
  EXPECT_EQ(*nvml.clock(device, NvmlClock::graphics), 1755U);
  EXPECT_EQ(*nvml.clock(device, NvmlClock::memory), 2619U);
  EXPECT_EQ(*nvml.max_clock(device, NvmlClock::sm), 1980U);
  EXPECT_EQ(*nvml.throttle_reasons(device), 4U);
  EXPECT_EQ(*nvml.compute_mode(device), NvmlComputeMode::exclusive_process);
  EXPECT_TRUE(*nvml.persistence(device));
  EXPECT_TRUE(*nvml.has_pending_retirement(device));
  EXPECT_EQ(nvml.remapped_rows(device)->uncorrectable, 2U);
  EXPECT_TRUE(nvml.remapped_rows(device)->is_pending);
  EXPECT_FALSE(nvml.remapped_rows(device)->has_failed);
  EXPECT_EQ(nvml.pcie(device).generation, 4U);
  EXPECT_EQ(nvml.pcie(device).width, 8U);
  EXPECT_EQ(nvml.pcie(device).max_generation, 5U);
  EXPECT_EQ(nvml.pcie(device).max_width, 16U);
}

TEST_F(NvmlTest, AMissingAnswerHasAReason) {
  machine(kTwo);
  const Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const NvmlDevice device = *nvml.device(0);
  EXPECT_EQ(nvml.memory(device).problem, "Not Supported");
  EXPECT_EQ(nvml.processes(device).problem, "Not Supported");
  EXPECT_EQ(nvml.common_ancestor(device, device).problem, "Not Supported");
  EXPECT_TRUE(nvml.links(device).empty());
  EXPECT_EQ(nvml.pcie(device).width, std::nullopt);
}

TEST_F(NvmlTest, ProcessesOfAnyNumber) {
  std::string facts = "pid17 name /bin/train;0 processes 17 1000 18 0xffffffffffffffff;1 processes";
  for (int i = 0; i < 40; ++i) facts += " " + std::to_string(100 + i) + " 5";
  machine(kTwo, facts);
  const Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const auto few = nvml.processes(*nvml.device(0));
  ASSERT_EQ(few->size(), 2U);
  EXPECT_EQ((*few)[0].pid, 17U);
  EXPECT_EQ((*few)[0].used_bytes, 1000U);
  EXPECT_EQ((*few)[1].used_bytes, std::nullopt);
  EXPECT_EQ(*nvml.process_name(17), "/bin/train");
  EXPECT_EQ(nvml.process_name(18).problem, "Not Found");
  const auto many = nvml.processes(*nvml.device(1));
  ASSERT_EQ(many->size(), 40U);
  EXPECT_EQ(many->back().pid, 139U);
}

TEST_F(NvmlTest, LinksAndPaths) {
  machine(kTwo,
          "0 link0 1 0 00000001:1C:00.0;0 link1 0;0 link2 1 2;1 link0 1 2 00000000:20:00.0;"
          "0-1 ancestor 30;0-1 p2p 0 0 0;1-0 p2p 0 3 5;0 cpus 0 1 64;0 nodes 1");
  const Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const NvmlDevice first = *nvml.device(0);
  const NvmlDevice second = *nvml.device(1);
  const auto links = nvml.links(first);
  ASSERT_EQ(links.size(), 3U);
  EXPECT_TRUE(links[0].is_active);
  EXPECT_EQ(links[0].remote, NvmlRemote::gpu);
  EXPECT_EQ(links[0].remote_bus_id, "0001:1c:00.0");
  EXPECT_FALSE(links[1].is_active);
  EXPECT_EQ(links[2].remote, NvmlRemote::nvswitch);
  EXPECT_EQ(links[2].remote_bus_id, "");
  EXPECT_EQ(*nvml.common_ancestor(first, second), NvmlAncestor::host_bridge);
  EXPECT_TRUE(*nvml.peer_access(first, second));
  EXPECT_FALSE(*nvml.peer_access(second, first));
  EXPECT_THAT(*nvml.near_cpus(first), ElementsAre(0, 1, 64));
  EXPECT_THAT(*nvml.near_nodes(first), ElementsAre(1));
}

// The statuses of reads, writes, NVLink and atomics, both ways. 0: they work.
TEST_F(NvmlTest, PeersWithAtomicsNeedNotHaveAnNvlink) {
  const auto has_nvlink = [&](const char* facts) {
    machine(kTwo, facts);
    const Nvml nvml(GANTRY_TEST_FAKE_NVML);
    return nvml.has_nvlink(*nvml.device(0), *nvml.device(1));
  };
  EXPECT_TRUE(*has_nvlink("0-1 p2p 0 0 0 0;1-0 p2p 0 0 0 0"));
  EXPECT_FALSE(*has_nvlink("0-1 p2p 0 0 5 0;1-0 p2p 0 0 5 0"));
  EXPECT_FALSE(*has_nvlink("0-1 p2p 0 0 0 0;1-0 p2p 0 0 5 0"));
  EXPECT_EQ(has_nvlink("0-1 p2p 0 0").problem, "Not Supported");
}

TEST_F(NvmlTest, ALinkStateCanBeAField) {
  machine(kTwo, "0 field165.0 1;0 field165.1 0");
  const Nvml nvml(GANTRY_TEST_FAKE_NVML);
  const auto links = nvml.links(*nvml.device(0));
  ASSERT_EQ(links.size(), 2U);
  EXPECT_TRUE(links[0].is_active);
  EXPECT_FALSE(links[1].is_active);
}

TEST_F(NvmlTest, InstancesOfADividedDevice) {
  machine("A100,GPU-a,00000000:06:00.0,MIG-x,MIG-y;A100,GPU-b,00000000:07:00.0");
  const Nvml nvml(GANTRY_TEST_FAKE_NVML);
  EXPECT_TRUE(*nvml.is_divided(*nvml.device(0)));
  EXPECT_FALSE(*nvml.is_divided(*nvml.device(1)));
  const auto instances = nvml.mig_instances(*nvml.device(0));
  ASSERT_EQ(instances->size(), 2U);
  EXPECT_EQ(*nvml.uuid((*instances)[1]), "MIG-y");
  EXPECT_EQ(*nvml.gpu_of_instance((*instances)[1]), *nvml.device(0));
  EXPECT_FALSE(nvml.gpu_of_instance(*nvml.device(0)));
  EXPECT_EQ(*nvml.uuid(*nvml.device_by_uuid("MIG-x")), "MIG-x");
  EXPECT_TRUE(nvml.mig_instances(*nvml.device(1))->empty());
}

TEST_F(NvmlTest, WithoutALibraryEveryAnswerSaysWhy) {
  const Nvml nvml("/nowhere/libnvidia-ml.so.1");
  EXPECT_THAT(nvml.problem(), HasSubstr("failed to load /nowhere/libnvidia-ml.so.1: "));
  EXPECT_EQ(nvml.device_count().problem, nvml.problem());
  EXPECT_EQ(nvml.processes(nullptr).problem, nvml.problem());
}

TEST_F(NvmlTest, ADriverThatIsNotLoadedIsAProblem) {
  setenv("FAKE_NVML_FAILS", "1", 1);
  const Nvml nvml(GANTRY_TEST_FAKE_NVML);
  EXPECT_EQ(nvml.problem(), "NVML does not start: Driver Not Loaded");
  EXPECT_EQ(nvml.device(0).problem, nvml.problem());
}

}  // namespace
}  // namespace gantry::machine
