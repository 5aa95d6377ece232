#include <gantry/machine/topology.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/text/json.hpp"
#include "machine/topology/topology_file.hpp"
#include "tests/machine/machines.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::machine {
namespace {

namespace fs = std::filesystem;
using gantry::testing::machine_named;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kHwlocXml = GANTRY_TEST_DATA_DIR "/hwloc_two_packages.xml";
constexpr const char* kNcclXml = GANTRY_TEST_DATA_DIR "/nccl_topo_2xH200_vm.xml";

/// A test with a folder for files, a fake /sys in it and a fake NVML.
class TopologyTest : public ::testing::Test {
 protected:
  ~TopologyTest() override {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    variables_[name] = value;
  }
  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  /// A PCI device at `path` below sys/devices, with these files.
  void add_device(const std::string& path, const std::map<std::string, std::string>& files) {
    const fs::path device = folder_ / ("sys/devices/" + path);
    for (const auto& [name, text] : files) {
      write("sys/devices/" + path + "/" + name, text + "\n");
    }
    fs::create_directories(device);
    const fs::path links = folder_ / "sys/bus/pci/devices";
    fs::create_directories(links);
    fs::create_directory_symlink(device, links / device.filename());
  }
  /// Two GPUs of the fake NVML.
  void two_gpus(const std::string& facts = "") {
    set("FAKE_NVML", "H100,GPU-a,00000000:13:00.0;H100,GPU-b,00000000:81:00.0");
    set("FAKE_NVML_FACTS", facts);
  }
  [[nodiscard]] TopologyOptions options(const std::string& file = "") const {
    TopologyOptions result;
    result.file = file;
    result.sysfs_root = (folder_ / "sys").string();
    result.nvml_path = GANTRY_TEST_FAKE_NVML;
    return result;
  }
  std::string file_error(const std::string& text) {
    const std::string path = write("topology", text);
    try {
      (void)discover_topology(options(path));
    } catch (const InvalidArgument& error) {
      const std::string what = error.what();
      const std::string prefix = "topology file '" + path + "': ";
      EXPECT_EQ(what.substr(0, prefix.size()), prefix);
      return what.substr(std::min(what.size(), prefix.size()));
    }
    return "(nothing was thrown)";
  }

  testing::TemporaryFolder folder_;
  std::map<std::string, std::string> variables_;
};

TEST_F(TopologyTest, JsonKeepsEveryFact) {
  for (const auto& [name, topology] : testing::machines()) {
    EXPECT_EQ(parse_topology_json(topology_json(topology)), topology) << name;
  }
}

TEST_F(TopologyTest, JsonHasAVersionAndSources) {
  const Json json = Json::parse(topology_json(machine_named("flat_vm")));
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("kind"), "gantry topology");
  const Json& gpu = json.at("gpus").at(0);
  EXPECT_TRUE(gpu.at("node").is_null());
  EXPECT_EQ(gpu.at("processes").at("value"), 0);
  EXPECT_EQ(gpu.at("processes").at("source"), "nvml");
}

TEST_F(TopologyTest, RedactedJsonNamesNoHostAndNoUuid) {
  Topology topology = machine_named("mig");
  topology.host = "secret-host";
  topology.warnings.emplace_back("GPU-of-somebody");
  const std::string text = topology_json(topology, true);
  EXPECT_THAT(text, Not(HasSubstr("secret-host")));
  EXPECT_THAT(text, Not(HasSubstr("GPU-of-somebody")));
  for (const Topology::Gpu& gpu : topology.gpus) EXPECT_THAT(text, Not(HasSubstr(gpu.uuid)));
  const Topology read = parse_topology_json(text);
  EXPECT_EQ(read.gpus[2].uuid, "MIG-00000000-0000-0000-0000-000000000003");
  EXPECT_EQ(testing::plan_text(plan(read)), testing::plan_text(plan(topology)));
}

TEST_F(TopologyTest, MalformedFilesAreErrorsWithAPlace) {
  const std::string good = topology_json(machine_named("flat_vm"));
  const auto with = [&](const std::string& before, const std::string& after) {
    std::string text = good;
    const auto at = text.find(before);
    EXPECT_NE(at, std::string::npos) << before;
    return text.replace(at, before.size(), after);
  };
  EXPECT_EQ(file_error(""), "it is empty");
  EXPECT_THAT(file_error("{"), HasSubstr("parse error at line 1"));
  EXPECT_EQ(file_error("{}"), "expected a JSON object with \"kind\": \"gantry topology\"");
  EXPECT_EQ(file_error("[1]"), "expected a JSON object with \"kind\": \"gantry topology\"");
  EXPECT_EQ(file_error(with("\"schema\": 1", "\"schema\": 2")),
            "$.schema: expected schema 1, but got 2");
  EXPECT_EQ(file_error(with("\"cpus\": \"0-7\"", "\"cpus\": \"0-\"")),
            "$.nodes[0].cpus: expected CPUs such as \"0-3,8\", but got \"0-\"");
  EXPECT_EQ(file_error(with("\"PHB\"", "\"NEAR\"")),
            "$.links[0][1].path.value: expected X, PIX, PXB, PHB, NODE or SYS, but got \"NEAR\"");
  EXPECT_EQ(file_error(with("\"bus_id\": \"0000:00:06.0\"", "\"bus_id\": 6")),
            "$.gpus[0].bus_id: expected a string, but got 6");
  EXPECT_EQ(file_error(with("\"id\": 0", "\"id\": -3")),
            "NUMA node: expected 0 to 1023, but got -3");
  EXPECT_EQ(file_error(with("\"count\": 18", "\"count\": 2000000000")),
            "NVLinks: expected 0 to 1024, but got 2000000000");
  EXPECT_THAT(file_error(with("\"nics\": []", "\"nics\": [7]")),
              HasSubstr("$.nics[0]: expected an object"));
  EXPECT_THAT(file_error(with("\"nic_paths\": [", "\"nic_paths\": [[],")),
              HasSubstr("$.nic_paths: expected 2 elements, but got 3"));
  EXPECT_EQ(file_error("<system><cpu></system>"),
            "line 1: expected an end tag for each element, but got 'system>'");
  EXPECT_EQ(file_error("<system>\n<cpu numaid=0/>\n</system>"),
            "line 2: expected an attribute such as name=\"value\", but got '0/>'");
  EXPECT_EQ(file_error("<system><cpu numaid=\"one\"/></system>"),
            "<cpu>: expected a number for numaid, but got 'one'");
  EXPECT_EQ(file_error("<system><cpu numaid=\"0\" affinity=\"zz\"/></system>"),
            "<cpu>: expected an affinity such as 0000ffff, but got 'zz'");
  EXPECT_EQ(file_error("<system><cpu numaid=\"0\"><pci/></cpu></system>"),
            "<pci>: expected an attribute busid");
  EXPECT_EQ(file_error("<html></html>"),
            "expected gantry's JSON, hwloc's <topology> or NCCL's <system>, but got <html>");
  EXPECT_EQ(file_error("<topology version=\"2.0\"><object type=\"PU\" cpuset=\"1\"/></topology>"),
            "<object type=\"PU\">: expected an attribute complete_cpuset");
  EXPECT_THAT(file_error("<topology version=\"2.0\"><object type=\"Bridge\"/></topology>"),
              HasSubstr("hwloc cannot"));
  TopologyOptions absent;
  absent.file = "/nowhere/topology.json";
  EXPECT_THROW((void)discover_topology(absent), InvalidArgument);
}

TEST_F(TopologyTest, ReadsNcclXmlOfAVirtualMachine) {
  const Topology topology = read_topology_file(kNcclXml);
  ASSERT_EQ(topology.gpus.size(), 2U);
  const Topology::Gpu& gpu = topology.gpus[0];
  EXPECT_EQ(gpu.bus_id, "0000:00:06.0");
  EXPECT_EQ(*gpu.compute_capability, "9.0");
  EXPECT_EQ(gpu.max_pcie_generation, (Fact<int>{5, FactSource::nccl_xml}));
  EXPECT_FALSE(gpu.node);
  EXPECT_FALSE(gpu.cpus);
  EXPECT_FALSE(gpu.max_pcie_width);
  EXPECT_THAT(*gpu.nvlinks, ElementsAre(Topology::NvLinks{Topology::LinkEnd::nvswitch, "", 18}));
  EXPECT_EQ(topology.links[0][1].nvlinks, (Fact<int>{18, FactSource::nccl_xml}));
  EXPECT_EQ(topology.links[0][1].path, (Fact<PciPath>{PciPath::host_bridge, FactSource::nccl_xml}));
  EXPECT_FALSE(topology.links[0][1].peer_access);
  ASSERT_EQ(topology.nics.size(), 1U);
  EXPECT_EQ(topology.nics[0].name, "eth0");
  EXPECT_EQ(*topology.nic_paths[0][0], PciPath::host_bridge) << "both hang at the one CPU";
}

TEST_F(TopologyTest, ReadsTheTreeOfNcclXml) {
  const std::string path = write("nccl.xml", R"(<?xml version="1.0"?>
<!-- two sockets --><system version="1">
 <cpu numaid="0" affinity="00000003,0000ffff" arch="x86_64">
  <pci busid="0000:15:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
   <pci busid="0000:17:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
    <gpu dev="0" sm="80"><nvlink target="0000:65:00.0" count="4" tclass="0x030200"/></gpu>
   </pci>
   <pci busid="0000:18:00.0" class="0x020700"><nic><net name="mlx5_0"/></nic></pci>
  </pci>
 </cpu>
 <cpu numaid="1" affinity="000000fc,00000000">
  <pci busid="0000:65:00.0" class="0x030200">
   <gpu dev="1" sm="80"><nvlink target="0000:17:00.0" count="4" tclass="0x030200"/></gpu>
  </pci>
 </cpu>
</system>)");
  const Topology topology = read_topology_file(path);
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(topology.nodes[0].cpus.str(), "0-15,32-33");
  EXPECT_EQ(topology.nodes[1].cpus.str(), "34-39");
  EXPECT_EQ(*topology.gpus[0].node, 0);
  EXPECT_EQ(topology.gpus[1].cpus->str(), "34-39");
  EXPECT_EQ(*topology.gpus[0].max_pcie_width, 16);
  EXPECT_EQ(*topology.links[0][1].nvlinks, 4);
  EXPECT_EQ(*topology.links[0][1].path, PciPath::system);
  EXPECT_EQ(*topology.nic_paths[0][0], PciPath::pix);
  EXPECT_EQ(*topology.nic_paths[1][0], PciPath::system);
}

TEST_F(TopologyTest, ReadsHwlocXml) {
  const Topology topology = read_topology_file(kHwlocXml);
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(topology.nodes[1].cpus.str(), "4-7");
  EXPECT_EQ(topology.nodes[0].memory_bytes,
            (Fact<std::uint64_t>{64'000'000'000, FactSource::hwloc}));
  EXPECT_EQ(topology.cores.size(), 4U);
  EXPECT_EQ(topology.cores[3].cpus.str(), "6-7");
  EXPECT_EQ(topology.cores[3].cache_group, 1);
  // The display of the management controller is no GPU.
  ASSERT_EQ(topology.gpus.size(), 2U);
  EXPECT_EQ(topology.gpus[1].bus_id, "0000:81:00.0");
  EXPECT_EQ(*topology.gpus[1].node, 1);
  EXPECT_EQ(*topology.links[0][1].path, PciPath::system);
  // One interface for Ethernet and RDMA of one function.
  ASSERT_EQ(topology.nics.size(), 1U);
  EXPECT_EQ(topology.nics[0].name, "mlx5_0");
  EXPECT_EQ(*topology.nic_paths[0][0], PciPath::pix);
  EXPECT_EQ(*topology.nic_paths[1][0], PciPath::system);
}

TEST_F(TopologyTest, NvmlShowsTheGpusAndHwlocTheirPlaces) {
  set("HWLOC_XMLFILE", kHwlocXml);
  two_gpus(
      "driver version 580.1;0-1 ancestor 50;1-0 ancestor 50;0-1 p2p 0 0;1-0 p2p 0 0;"
      "0 link0 1 2;0 link1 1 2;1 link0 1 2;1 link1 0;0 processes 5 1;0 memory 100 40 60;"
      "0 pcie 4 8 5 16;0 nodes 0 1");
  const Topology topology = discover_topology(options());
  EXPECT_EQ(*topology.driver_version, "580.1");
  ASSERT_EQ(topology.gpus.size(), 2U);
  const Topology::Gpu& gpu = topology.gpus[0];
  EXPECT_EQ(gpu.uuid, "GPU-a");
  EXPECT_EQ(gpu.node, (Fact<int>{0, FactSource::hwloc}));
  EXPECT_EQ(gpu.cpus->str(), "0-3");
  EXPECT_EQ(*gpu.processes, 1);
  EXPECT_EQ(*gpu.used_memory_bytes, 60U);
  EXPECT_EQ(*gpu.pcie_width, 8);
  EXPECT_EQ(*gpu.max_pcie_width, 16);
  EXPECT_EQ(*topology.gpus[1].inactive_nvlinks, 1);
  EXPECT_FALSE(topology.gpus[1].processes);
  EXPECT_EQ(topology.links[0][1].nvlinks, (Fact<int>{1, FactSource::nvml}));
  EXPECT_EQ(topology.links[0][1].path, (Fact<PciPath>{PciPath::system, FactSource::nvml}));
  EXPECT_EQ(topology.links[0][1].peer_access, (Fact<bool>{true, FactSource::nvml}));
  EXPECT_EQ(topology.nics[0].name, "mlx5_0");
  EXPECT_EQ(topology.allowed_cpus->str(), "0-7");
}

TEST_F(TopologyTest, SysfsTellsPlacesThatHwlocDoesNot) {
  two_gpus();
  const std::string bridge = "pci0000:10/0000:10:01.0/0000:11:00.0/";
  add_device(bridge + "0000:12:00.0/0000:13:00.0", {{"numa_node", "0"},
                                                    {"local_cpulist", "0-1"},
                                                    {"vendor", "0x10de"},
                                                    {"class", "0x030200"},
                                                    {"current_link_speed", "2.5 GT/s PCIe"},
                                                    {"max_link_speed", "32.0 GT/s PCIe"},
                                                    {"current_link_width", "8"},
                                                    {"max_link_width", "255"}});
  add_device(bridge + "0000:12:01.0/0000:14:00.0", {{"numa_node", "0"}});
  add_device("pci0000:80/0000:81:00.0", {{"numa_node", "-1"}, {"local_cpulist", "0-1"}});
  fs::create_directories(folder_ / "sys/class/net/eth1");
  fs::create_directory_symlink(folder_ / ("sys/devices/" + bridge + "0000:12:01.0/0000:14:00.0"),
                               folder_ / "sys/class/net/eth1/device");
  fs::create_directories(folder_ / "sys/class/net/lo");
  const Topology topology = discover_topology(options());
  ASSERT_EQ(topology.gpus.size(), 2U);
  const Topology::Gpu& gpu = topology.gpus[0];
  EXPECT_EQ(gpu.node, (Fact<int>{0, FactSource::sysfs}));
  EXPECT_EQ(gpu.cpus, (Fact<CpuSet>{CpuSet{0, 1}, FactSource::sysfs}));
  EXPECT_EQ(gpu.pci_chain->size(), 4U);
  EXPECT_EQ(gpu.pci_chain->front(), "pci0000:10");
  EXPECT_EQ(*gpu.pcie_generation, 1);
  EXPECT_EQ(*gpu.max_pcie_generation, 5);
  EXPECT_EQ(*gpu.pcie_width, 8);
  EXPECT_FALSE(gpu.max_pcie_width);
  // Firmware did not tell: then the list of CPUs says nothing either.
  EXPECT_FALSE(topology.gpus[1].node);
  EXPECT_FALSE(topology.gpus[1].cpus);
  EXPECT_FALSE(topology.links[0][1].path);
  const auto nic = std::find_if(topology.nics.begin(), topology.nics.end(),
                                [](const Topology::Nic& one) { return one.name == "eth1"; });
  ASSERT_NE(nic, topology.nics.end());
  EXPECT_EQ(*topology.nic_paths[0][static_cast<std::size_t>(nic - topology.nics.begin())],
            PciPath::pix);
}

TEST_F(TopologyTest, MigInstancesHaveNoPeers) {
  set("FAKE_NVML", "A100,GPU-a,00000000:13:00.0,MIG-x,MIG-y;A100,GPU-b,00000000:81:00.0");
  set("FAKE_NVML_FACTS", "0-1 ancestor 50;0-1 p2p 0 0;1-0 p2p 0 0;0 link0 1 2;1 link0 1 2");
  const Topology topology = discover_topology(options());
  ASSERT_EQ(topology.gpus.size(), 3U);
  EXPECT_EQ(topology.gpus[0].uuid, "MIG-x");
  EXPECT_EQ(topology.gpus[1].bus_id, "0000:13:00.0");
  EXPECT_EQ(*topology.links[0][1].path, PciPath::same);
  for (const auto& [i, j] : {std::pair<std::size_t, std::size_t>{0, 1}, {0, 2}, {2, 1}}) {
    EXPECT_EQ(topology.links[i][j].peer_access.value, false);
    EXPECT_EQ(*topology.links[i][j].nvlinks, 0);
  }
}

TEST_F(TopologyTest, NumaNodesKeepTheNumbersOfTheSystem) {
  set("HWLOC_SYNTHETIC",
      "node:4(indexes=3,2,1,0) core:2 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)");
  TopologyOptions asked = options();
  asked.skip_gpus = true;
  const Topology topology = discover_topology(asked);
  ASSERT_EQ(topology.nodes.size(), 4U);
  EXPECT_EQ(topology.nodes[0].id, 0);
  EXPECT_EQ(topology.nodes[0].cpus.str(), "6-7,14-15");
  EXPECT_EQ(topology.nodes[3].cpus.str(), "0-1,8-9");
  EXPECT_EQ(topology.cores[0].cpus.str(), "0,8");
  EXPECT_EQ(topology.cores[0].node, 3);
  EXPECT_THAT(topology.gpus, IsEmpty());
}

// A machine of two nodes with four cores each, below HWLOC_FSROOT; a container may use node 1.
TEST_F(TopologyTest, AContainerHasPartOfTheMachine) {
  write("proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
  write("proc/self/cgroup", "0::/box\n");
  write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n");
  write("sys/fs/cgroup/box/cpuset.cpus.effective", "4-6\n");
  write("sys/fs/cgroup/box/cpuset.mems.effective", "0-1\n");
  write("sys/devices/system/cpu/online", "0-7\n");
  write("sys/devices/system/node/online", "0-1\n");
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string place = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string own = std::to_string(1U << static_cast<unsigned>(cpu % 4));
    const std::string mask = cpu < 4 ? own : own + "0";
    write(place + "core_cpus", mask + "\n");
    write(place + "thread_siblings", mask + "\n");
    write(place + "thread_siblings_list", std::to_string(cpu) + "\n");
    write(place + "package_cpus", cpu < 4 ? "0f\n" : "f0\n");
    write(place + "core_siblings", cpu < 4 ? "0f\n" : "f0\n");
    write(place + "core_id", std::to_string(cpu) + "\n");
    write(place + "physical_package_id", std::to_string(cpu / 4) + "\n");
  }
  for (int node = 0; node < 2; ++node) {
    const std::string number = std::to_string(node);
    const std::string place = "sys/devices/system/node/node" + number + "/";
    write(place + "cpumap", node == 0 ? "0f\n" : "f0\n");
    write(place + "cpulist", node == 0 ? "0-3\n" : "4-7\n");
    write(place + "meminfo", "Node " + number + " MemTotal: 1000 kB\n");
    write(place + "distance", node == 0 ? "10 21\n" : "21 10\n");
  }
  two_gpus("0 processes;1 processes");
  add_device("pci0000:13/0000:13:00.0",
             {{"numa_node", "0"}, {"local_cpus", "0f"}, {"local_cpulist", "0-3"}});
  add_device("pci0000:81/0000:81:00.0",
             {{"numa_node", "1"}, {"local_cpus", "f0"}, {"local_cpulist", "4-7"}});
  set("HWLOC_FSROOT", folder_.path().string());
  const Topology topology = discover_topology(options());
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(topology.nodes[1].memory_bytes, (Fact<std::uint64_t>{1'024'000, FactSource::hwloc}));
  EXPECT_EQ(topology.cores.size(), 8U);
  EXPECT_EQ(topology.allowed_cpus, (Fact<CpuSet>{CpuSet{4, 5, 6}, FactSource::hwloc}));
  ASSERT_EQ(topology.gpus.size(), 2U);
  EXPECT_EQ(topology.gpus[0].node.value, 0);
  EXPECT_EQ(topology.gpus[1].node.value, 1);
  EXPECT_EQ(topology.gpus[0].cpus.value, CpuSet::parse("0-3"));
  const Plan placed = plan(topology);
  EXPECT_EQ(placed.ranks[0].memory_node, std::nullopt) << testing::plan_text(placed);
  EXPECT_THAT(testing::plan_text(placed), HasSubstr("of 3 cores that may be used"));
}

TEST_F(TopologyTest, WithoutAGpuTheReasonIsTold) {
  TopologyOptions asked = options();
  asked.nvml_path = "/nowhere/libnvidia-ml.so.1";
  const Topology topology = discover_topology(asked);
  EXPECT_THAT(topology.gpus, IsEmpty());
  EXPECT_THAT(topology.why_no_gpu, HasSubstr("failed to load /nowhere/libnvidia-ml.so.1"));
  EXPECT_FALSE(topology.cores.empty());
  EXPECT_FALSE(topology.allowed_cpus->empty());
}

TEST_F(TopologyTest, AFileDescribesAMachineWithoutGpus) {
  TopologyOptions asked = options(write("hgx.json", topology_json(machine_named("hgx_h100"))));
  asked.nvml_path = "/nowhere/libnvidia-ml.so.1";
  const Topology topology = discover_topology(asked);
  Topology expected = machine_named("hgx_h100");
  expected.gpu_source = FactSource::file;
  expected.why_no_gpu = topology.why_no_gpu;
  EXPECT_EQ(topology, expected);
  EXPECT_THAT(topology.why_no_gpu, HasSubstr("failed to load /nowhere"));
}

TEST_F(TopologyTest, AFileCorrectsTheMachinesFacts) {
  two_gpus("0-1 ancestor 50;0-1 p2p 0 0;1-0 p2p 0 0");
  Topology file = testing::host_of({2, 1, 1, 1});
  file.gpus.resize(1);
  file.gpus[0].bus_id = "0000:81:00.0";
  file.gpus[0].node.offer(1, FactSource::hwloc);
  file.links = {{{}}};
  file.nic_paths = {{}};
  const Topology topology = discover_topology(options(write("fix.json", topology_json(file))));
  ASSERT_EQ(topology.gpus.size(), 2U);
  EXPECT_EQ(topology.gpus[1].node, (Fact<int>{1, FactSource::file}));
  EXPECT_EQ(topology.gpus[1].cpus->str(), "1");
  EXPECT_EQ(topology.gpus[1].uuid, "GPU-b");
  EXPECT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(*topology.links[0][1].path, PciPath::system);
}

TEST_F(TopologyTest, SimulatedDevicesTakeThePlacesOfAFile) {
  TopologyOptions asked = options(write("hgx.json", topology_json(machine_named("hgx_h100"))));
  asked.simulated_gpus = 6;
  const Topology topology = discover_topology(asked);
  ASSERT_EQ(topology.gpus.size(), 6U);
  EXPECT_EQ(topology.gpus[0].name, "Simulated GPU");
  EXPECT_EQ(*topology.gpus[3].node, 0);
  EXPECT_EQ(*topology.gpus[4].node, 1);
  EXPECT_EQ(*topology.links[0][5].nvlinks, 18);
  asked.file.clear();
  const Topology plain = discover_topology(asked);
  EXPECT_FALSE(plain.gpus[0].node);
  EXPECT_FALSE(plain.links[0][1].path);
}

TEST_F(TopologyTest, VariablesSelectTheSources) {
  set("GANTRY_TOPO_FILE", "f");
  set("GANTRY_SYSFS_ROOT", "s");
  set("GANTRY_NVML_PATH", "n");
  set("GANTRY_SIM_DEVICES", "3");
  const TopologyOptions read = topology_options_from_environment();
  EXPECT_EQ(read.file, "f");
  EXPECT_EQ(read.sysfs_root, "s");
  EXPECT_EQ(read.nvml_path, "n");
  EXPECT_EQ(read.simulated_gpus, 3);
  set("GANTRY_SIM_DEVICES", "0");
  EXPECT_THROW((void)topology_options_from_environment(), InvalidArgument);
}

TEST_F(TopologyTest, AProgramOnSimulatedDevicesSeesThem) {
  set("GANTRY_SIM_DEVICES", "3");
  const Topology topology = discover_topology();
  ASSERT_EQ(topology.gpus.size(), 3U);
  EXPECT_EQ(topology.gpu_source, FactSource::simulated);
  EXPECT_EQ(topology.gpus[2].name, "Simulated GPU");
  EXPECT_EQ(plan(topology).ranks.size(), 3U);
  TopologyOptions part;
  part.skip_links = true;
  EXPECT_EQ(discover_topology(part).gpus.size(), 3U);
  part.skip_gpus = true;
  EXPECT_THAT(discover_topology(part).gpus, IsEmpty());
  // Who names GPUs gets them.
  two_gpus();
  EXPECT_EQ(discover_topology(options()).gpus.size(), 2U);
  set("GANTRY_SIM_DEVICES", "many");
  EXPECT_THROW((void)discover_topology(), InvalidArgument);
  set("GANTRY_SIM_DEVICES", "4");
}

TEST_F(TopologyTest, KeptGpusKeepTheirLinks) {
  const std::vector<int> order{3, 0};
  const Topology kept = keep_gpus(machine_named("dgx1v"), order);
  ASSERT_EQ(kept.gpus.size(), 2U);
  EXPECT_EQ(kept.gpus[0].bus_id, "0000:0b:00.0");
  EXPECT_EQ(*kept.links[0][1].nvlinks, 2);
  EXPECT_EQ(kept.nic_paths[0].size(), 4U);
  const std::vector<int> wrong{8};
  EXPECT_THROW((void)keep_gpus(machine_named("dgx1v"), wrong), IndexError);
}

}  // namespace
}  // namespace gantry::machine
