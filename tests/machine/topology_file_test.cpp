#include "machine/topology/topology_file.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/machine/plan.hpp>

#include "machine/topology/gpu_order.hpp"
#include "tests/machine/machines.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::machine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class TopologyFileTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::string path = (folder_ / fmt::format("file{}", files_++)).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  Topology read(const std::string& text) { return read_topology_file(write(text)); }
  std::string error_of(const std::string& text) {
    try {
      (void)read(text);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  }

  testing::TemporaryFolder folder_;
  int files_ = 0;
};

// ---- NCCL's files of virtual machines: classes in place of <gpu> and <nic> ----

// Two NUMA nodes, two switches in each, a GPU and an interface below each; not in PCI order.
std::string cloud_file(const std::string& gpu_attributes, const std::string& nic_class) {
  std::string text = "<system version=\"1\">";
  const char* const masks[] = {"0000000f", "000000f0"};
  for (int node = 0; node < 2; ++node) {
    text += fmt::format("<cpu numaid=\"{}\" affinity=\"{}\" arch=\"x86_64\">", node, masks[node]);
    for (int i = 1; i >= 0; --i) {
      const int number = 1 + 2 * node + i;
      text += fmt::format(
          "<pci busid=\"ffff:ff:0{0}.0\" class=\"0x060400\" link_speed=\"16 GT/s\">"
          "<pci busid=\"000{0}:00:00.0\" class=\"0x030200\" {1} link_speed=\"32.0 GT/s PCIe\" "
          "link_width=\"16\"/><pci busid=\"010{0}:00:00.0\" class=\"{2}\"/></pci>",
          number, gpu_attributes, nic_class);
    }
    text += "</cpu>";
  }
  return text + "</system>";
}

TEST_F(TopologyFileTest, ClassesNameTheGpusAndInterfacesOfClouds) {
  for (const char* const vendor :
       {"", "vendor=\"0x10de\" device=\"0x2330\"", "vendor=\"0x0000\"", "vendor=\"10de\""}) {
    for (const char* const nic : {"0x020000", "0x020700"}) {
      const Topology topology = read(cloud_file(vendor, nic));
      ASSERT_EQ(topology.gpus.size(), 4U) << vendor;
      EXPECT_EQ(topology.gpus[0].bus_id, "0001:00:00.0");
      EXPECT_EQ(topology.gpus[0].name, "GPU");
      EXPECT_EQ(topology.gpus[1].node, (Fact<int>{0, FactSource::nccl_xml}));
      EXPECT_EQ(topology.gpus[3].node, (Fact<int>{1, FactSource::nccl_xml}));
      EXPECT_EQ(topology.gpus[3].cpus->str(), "4-7");
      EXPECT_EQ(*topology.gpus[2].max_pcie_generation, 5);
      EXPECT_EQ(*topology.gpus[2].max_pcie_width, 16);
      ASSERT_EQ(topology.nics.size(), 4U);
      EXPECT_EQ(topology.nics[0].name, "");
      EXPECT_EQ(topology.nics[0].bus_id, "0101:00:00.0");
      EXPECT_EQ(*topology.nic_paths[0][0], PciPath::pix);
      EXPECT_EQ(*topology.nic_paths[0][1], PciPath::host_bridge);
      EXPECT_EQ(*topology.links[0][3].path, PciPath::system);
    }
  }
}

TEST_F(TopologyFileTest, OtherClassesAndVendorsAreNoGpus) {
  EXPECT_THAT(read(cloud_file("vendor=\"0x1a03\"", "0x010802")).gpus, IsEmpty());
  EXPECT_THAT(read(cloud_file("vendor=\"0x1002\"", "0x010802")).gpus, IsEmpty());
  EXPECT_THAT(read(cloud_file("", "0x010802")).nics, IsEmpty());
  // An element that names the device counts once.
  const Topology named = read(
      "<system><cpu numaid=\"0\" affinity=\"3\"><pci busid=\"0000:01:00.0\" class=\"0x030200\">"
      "<gpu dev=\"0\" sm=\"90\"/></pci><pci busid=\"0000:02:00.0\" class=\"0x020000\"><nic>"
      "<net name=\"eth0\"/></nic></pci></cpu></system>");
  ASSERT_EQ(named.gpus.size(), 1U);
  EXPECT_EQ(named.gpus[0].name, "GPU sm_90");
  ASSERT_EQ(named.nics.size(), 1U);
  EXPECT_EQ(named.nics[0].name, "eth0");
}

// NCCL's form of an interface without a PCI device.
TEST_F(TopologyFileTest, AnInterfaceBelowACpuIsNearItsGpus) {
  const auto cpu = [](int node, const char* bus_id, const char* nic) {
    return fmt::format(
        "<cpu numaid=\"{}\" affinity=\"3\"><pci busid=\"{}\" class=\"0x030200\"/>{}</cpu>", node,
        bus_id, nic);
  };
  const Topology topology =
      read("<system>" + cpu(0, "0001:00:00.0", "<nic><net name=\"eth0\"/></nic>") +
           cpu(1, "0002:00:00.0", "") + "</system>");
  ASSERT_EQ(topology.nics.size(), 1U);
  EXPECT_EQ(topology.nics[0].name, "eth0");
  EXPECT_EQ(*topology.nic_paths[0][0], PciPath::host_bridge);
  EXPECT_EQ(*topology.nic_paths[1][0], PciPath::system);
}

TEST_F(TopologyFileTest, RanksOfACloudAreBoundToTheNodesOfItsFile) {
  TopologyOptions options;
  options.file = write(cloud_file("", "0x020700"));
  options.simulated_gpus = 4;
  const Topology topology = discover_topology(options);
  PlanOptions numa;
  numa.bind = BindMode::numa;
  Topology machine = topology;
  machine.allowed_cpus = {CpuSet::parse("0-7"), FactSource::file};
  const Plan placed = plan(machine, numa);
  EXPECT_EQ(placed.ranks[0].cpus->str(), "0-3");
  EXPECT_EQ(placed.ranks[3].cpus->str(), "4-7");
  EXPECT_EQ(placed.ranks[3].memory_node, 1);
}

TEST_F(TopologyFileTest, InterfacesWithoutANameAreFoundByTheirPlace) {
  const Topology file = read(cloud_file("", "0x020700"));
  Topology machine = file;
  for (Topology::Nic& nic : machine.nics) nic.name = "mlx5_" + nic.bus_id.substr(3, 1);
  std::swap(machine.nics[0], machine.nics[2]);
  for (auto& row : machine.nic_paths) row.assign(4, {});
  merge(file, Precedence::machine, false, machine);
  EXPECT_EQ(machine.nics[0].name, "mlx5_3");
  EXPECT_EQ(*machine.nic_paths[2][0], PciPath::pix);
  EXPECT_EQ(*machine.nic_paths[0][0], PciPath::system);
}

TEST_F(TopologyFileTest, NvLinksThatAFileLeavesOpenAreUnknown) {
  const Topology open = read(cloud_file("", "0x020700"));
  EXPECT_TRUE(open.links[0][3].is_way_unknown());
  EXPECT_EQ(link_text(open.links[0][3]), "?");
  EXPECT_EQ(link_text(open.links[0][0]), "X");
  EXPECT_EQ(parse_topology_json(topology_json(open)).links, open.links);
  const auto pair = [](const char* links) {
    return fmt::format(
        "<system><cpu numaid=\"0\" affinity=\"3\"><pci busid=\"0000:01:00.0\"><gpu sm=\"90\">{}"
        "</gpu></pci><pci busid=\"0000:02:00.0\"><gpu sm=\"90\"/></pci></cpu></system>",
        links);
  };
  EXPECT_EQ(link_text(read(pair("")).links[0][1]), "?");
  // A file that names NVLinks names all of them.
  const Topology told = read(pair("<nvlink target=\"0000:09:00.0\" count=\"4\" tclass=\"0x03\"/>"));
  EXPECT_EQ(told.links[0][1].nvlinks, (Fact<int>{0, FactSource::nccl_xml}));
  EXPECT_EQ(link_text(told.links[0][1]), "PHB");
}

TEST_F(TopologyFileTest, AffinitiesAreMasksOfAnyForm) {
  const auto cpus = [&](const std::string& affinity) {
    return read("<system><cpu numaid=\"0\" affinity=\"" + affinity + "\"/></system>")
        .nodes[0]
        .cpus.str();
  };
  EXPECT_EQ(cpus("ff"), "0-7");
  EXPECT_EQ(cpus("0xff"), "0-7");
  EXPECT_EQ(cpus("0x00000003,0x0000ffff"), "0-15,32-33");
  EXPECT_EQ(cpus("30000ffff"), "0-15,32-33");
  EXPECT_EQ(cpus("00000001,00000000"), "32");
  for (const char* const bad : {"0x", "f,", ",f", "123456789,0", "g", "-1", "0xf g"}) {
    EXPECT_THAT(error_of(fmt::format("<system><cpu numaid=\"0\" affinity=\"{}\"/></system>", bad)),
                HasSubstr(fmt::format("expected an affinity such as 0000ffff, but got '{}'", bad)));
  }
}

// ---- hwloc's files ----

struct NodeText {
  int id;
  const char* cpus;
  const char* subtype;  // "" for none
};

// One package of four cores with these nodes, and `devices` below it.
std::string hwloc_file(const std::vector<NodeText>& nodes, const std::string& devices = "",
                       const std::string& after = "", const std::string& version = "2.0") {
  const std::string sets =
      "cpuset=\"0xf\" complete_cpuset=\"0xf\" nodeset=\"0x7\" complete_nodeset=\"0x7\"";
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
      "<topology version=\"{0}\"><object type=\"Machine\" os_index=\"0\" {1} "
      "allowed_cpuset=\"0xf\" allowed_nodeset=\"0x7\" gp_index=\"1\">"
      "<object type=\"Package\" os_index=\"0\" {1} gp_index=\"2\">",
      version, sets);
  for (const NodeText& node : nodes) {
    const std::string kind =
        *node.subtype == '\0' ? "" : fmt::format(" subtype=\"{}\"", node.subtype);
    text += fmt::format(
        "<object type=\"NUMANode\" os_index=\"{0}\" cpuset=\"{1}\" complete_cpuset=\"{1}\" "
        "nodeset=\"{2:#x}\" complete_nodeset=\"{2:#x}\" gp_index=\"{3}\"{4} "
        "local_memory=\"64000000000\"/>",
        node.id, node.cpus, 1U << static_cast<unsigned>(node.id), 10 + node.id, kind);
  }
  for (unsigned core = 0; core < 4; ++core) {
    const std::string own = fmt::format(
        "os_index=\"{0}\" cpuset=\"{1:#x}\" complete_cpuset=\"{1:#x}\" nodeset=\"0x7\" "
        "complete_nodeset=\"0x7\"",
        core, 1U << core);
    text += fmt::format(
        "<object type=\"Core\" {0} gp_index=\"{1}\"><object type=\"PU\" {0} gp_index=\"{2}\"/>"
        "</object>",
        own, 20 + core, 30 + core);
  }
  return text + devices + "</object></object>" + after + "</topology>\n";
}

std::string gpu_object(int number, const std::string& inside, const std::string& speed = "63.0") {
  return fmt::format(
      "<object type=\"Bridge\" gp_index=\"{1}\" bridge_type=\"0-1\" depth=\"0\" "
      "bridge_pci=\"0000:[0{0}-0{0}]\"><object type=\"PCIDev\" gp_index=\"{2}\" "
      "pci_busid=\"0000:0{0}:00.0\" pci_type=\"0302 [10de:2330] [0000:0000] 00\" "
      "pci_link_speed=\"{3}\">{4}</object></object>",
      number, 40 + number, 50 + number, speed, inside);
}

TEST_F(TopologyFileTest, NodesOfMemoryAloneAreNoPlacesToRun) {
  const std::string gpu = gpu_object(1, "");
  const std::vector<std::vector<NodeText>> machines{
      {{0, "0xf", ""}, {1, "0xf", "CXL-DRAM"}},
      {{0, "0xf", "DRAM"}, {1, "0xf", "HBM"}, {2, "0xf", "NVM"}},
      {{0, "0xf", "MCDRAM"}, {1, "0xf", "DRAM"}},
      {{0, "0xf", ""}, {1, "0xf", ""}},
      {{0, "0xf", ""}, {1, "0xf", "GPUMemory"}},
      {{0, "0xf", "HBM"}},  // the only memory there is
  };
  for (const auto& machine : machines) {
    const Topology topology = read(hwloc_file(machine, gpu));
    ASSERT_EQ(topology.nodes.size(), 1U) << machine[0].subtype;
    EXPECT_EQ(topology.nodes[0].id, std::string(machine[0].subtype) == "MCDRAM" ? 1 : 0);
    EXPECT_EQ(topology.nodes[0].cpus.str(), "0-3");
    ASSERT_EQ(topology.gpus.size(), 1U);
    EXPECT_EQ(topology.gpus[0].node.value, topology.nodes[0].id);
    PlanOptions numa;
    numa.bind = BindMode::numa;
    const Plan placed = plan(topology, numa);
    EXPECT_EQ(placed.ranks[0].cpus->str(), "0-3");
    EXPECT_EQ(placed.ranks[0].memory_node, topology.nodes[0].id);
  }
}

TEST_F(TopologyFileTest, RanksWithoutAGpuAreSpreadOverNodesWithCpus) {
  // The memory at the machine is equally near to both packages, whose nodes have the CPUs.
  setenv("HWLOC_SYNTHETIC", "[numa] pack:2 [numa] core:2 pu:1", 1);
  TopologyOptions processors;
  processors.skip_gpus = true;
  const Topology topology = discover_topology(processors);
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_EQ(topology.nodes.size(), 2U);
  EXPECT_EQ(topology.nodes[0].cpus.str(), "0-1");
  EXPECT_EQ(topology.nodes[1].cpus.str(), "2-3");
  PlanOptions options;
  options.cpu_only = true;
  options.ranks = 4;
  options.bind = BindMode::numa;
  const Plan placed = plan(topology, options);
  EXPECT_EQ(placed.ranks[1].memory_node, topology.nodes[0].id);
  EXPECT_EQ(placed.ranks[3].memory_node, topology.nodes[1].id);
  EXPECT_THAT(placed.decisions, ElementsAre("GPUs: none, as asked",
                                            HasSubstr("numa: CPUs and memory of the NUMA nodes in "
                                                      "turn"),
                                            HasSubstr("threads")));
}

std::string nvml_device(int number, const char* model) {
  return fmt::format(
      "<object type=\"OSDev\" gp_index=\"{0}\" name=\"nvml{1}\" subtype=\"NVML\" "
      "osdev_type=\"1\"><info name=\"Backend\" value=\"NVML\"/><info name=\"GPUModel\" "
      "value=\"{2}\"/><info name=\"NVIDIAUUID\" value=\"GPU-{1}0000000-0000-4000-8000-0\"/>"
      "</object>",
      60 + number, number, model);
}

std::string matrix(const std::string& indexes, const std::string& values, bool is_mixed = false) {
  const auto count = std::count(indexes.begin(), indexes.end(), ' ') + 1;
  return fmt::format(
      "<{0} {1}nbobjs=\"{2}\" kind=\"{3}\" name=\"NVLinkBandwidth\"{4}><indexes length=\"{5}\">"
      "{6}</indexes><u64values length=\"{7}\">{8}</u64values></{0}>",
      is_mixed ? "distances2hetero" : "distances2", is_mixed ? "" : "type=\"OSDev\" ", count,
      is_mixed ? 25 : 9, is_mixed ? "" : " indexing=\"gp\"", indexes.size(), indexes, values.size(),
      values);
}

TEST_F(TopologyFileTest, HwlocTellsModelsUuidsLinksAndSpeeds) {
  std::string devices;
  for (int i = 1; i <= 3; ++i) devices += gpu_object(i, nvml_device(i, "Tesla V100"), "15.753846");
  const Topology topology =
      read(hwloc_file({{0, "0xf", ""}}, devices,
                      matrix("61 62 63", "1000000 50000 0 50000 1000000 0 0 0 1000000")));
  ASSERT_EQ(topology.gpus.size(), 3U);
  EXPECT_EQ(topology.gpus[0].name, "Tesla V100");
  EXPECT_EQ(topology.gpus[1].uuid, "GPU-20000000-0000-4000-8000-0");
  EXPECT_FALSE(topology.gpus[0].pcie_generation);  // 3 x16 and 4 x8 have this speed
  ASSERT_TRUE(topology.gpus[0].pcie_bandwidth);
  EXPECT_NEAR(*topology.gpus[0].pcie_bandwidth, 15.75, 0.01);
  EXPECT_EQ(topology.links[0][1].nvlinks, (Fact<int>{2, FactSource::hwloc}));
  EXPECT_EQ(link_text(topology.links[0][1]), "NV2");
  EXPECT_EQ(topology.links[0][2].nvlinks, (Fact<int>{0, FactSource::hwloc}));
  EXPECT_EQ(link_text(topology.links[0][2]), "NODE");
  PlanOptions best;
  best.set_gpus("best:2");
  EXPECT_THAT(plan(topology, best).gpus, ElementsAre(0, 1));
  EXPECT_EQ(parse_topology_json(topology_json(topology)), topology);
}

TEST_F(TopologyFileTest, HwlocTellsNvSwitchesAndTheLinksOfProcessors) {
  const std::string nvswitch =
      "<object type=\"Bridge\" gp_index=\"90\" bridge_type=\"0-1\" depth=\"0\" "
      "bridge_pci=\"0000:[61-61]\"><object type=\"PCIDev\" gp_index=\"91\" subtype=\"NVSwitch\" "
      "pci_busid=\"0000:61:00.0\" pci_type=\"0680 [10de:1ac2] [0000:0000] a1\" "
      "pci_link_speed=\"1.0\"/></object>";
  const std::string gpus =
      gpu_object(1, nvml_device(1, "A100")) + gpu_object(2, nvml_device(2, "A100"));
  const Topology switched =
      read(hwloc_file({{0, "0xf", ""}}, gpus + nvswitch,
                      matrix("OSDev:61 OSDev:62 PCIDev:91",
                             "1000000 0 150000 0 1000000 150000 150000 150000 1000000", true)));
  ASSERT_EQ(switched.gpus.size(), 2U);
  EXPECT_THAT(*switched.gpus[0].nvlinks,
              ElementsAre(Topology::NvLinks{Topology::LinkEnd::nvswitch, "", 6}));
  EXPECT_EQ(link_text(switched.links[0][1]), "NV6");
  // Links of the first version have 20 GB/s.
  const Topology power =
      read(hwloc_file({{0, "0xf", ""}}, gpus,
                      matrix("OSDev:61 OSDev:62 Package:2",
                             "1000000 40000 40000 40000 1000000 40000 40000 40000 1000000", true)));
  EXPECT_THAT(*power.gpus[0].nvlinks,
              ElementsAre(Topology::NvLinks{Topology::LinkEnd::gpu, "0000:02:00.0", 2},
                          Topology::NvLinks{Topology::LinkEnd::processor, "", 2}));
  EXPECT_EQ(link_text(power.links[0][1]), "NV2");
}

TEST_F(TopologyFileTest, WithoutAMatrixTheConnectionsOfHwlocAreUnknown) {
  const Topology topology =
      read(hwloc_file({{0, "0xf", ""}}, gpu_object(1, "") + gpu_object(2, "")));
  EXPECT_EQ(*topology.links[0][1].path, PciPath::node);
  EXPECT_EQ(link_text(topology.links[0][1]), "?");
  PlanOptions best;
  best.set_gpus("best:2");
  EXPECT_THAT(plan(topology, best).decisions[0], HasSubstr("worst connection ?"));
}

TEST_F(TopologyFileTest, LaterVersionsOfHwlocAreNamed) {
  EXPECT_THAT(error_of(hwloc_file({{0, "0xf", ""}}, "", "", "9.0")),
              HasSubstr("hwloc 9 wrote it, but this gantry has hwloc"));
  EXPECT_THAT(error_of(hwloc_file({{0, "0xf", ""}}, "", "", "9.0")),
              HasSubstr("lstopo --export-xml-flags v"));
  const std::string failed =
      error_of("<topology version=\"2.0\"><object type=\"Bridge\"/></topology>");
  EXPECT_THAT(failed, HasSubstr("hwloc cannot"));
  EXPECT_THAT(failed, Not(HasSubstr("Success")));
}

// ---- What an XML library reads ----

TEST_F(TopologyFileTest, EveryFormOfXmlIsRead) {
  const std::string text =
      "<system version=\"1\"><cpu numaid=\"0\" affinity=\"3\"><pci busid=\"0000:01:00.0\" "
      "class=\"0x030200\" link_width=\"16\"><gpu sm=\"90\"/></pci></cpu></system>";
  const Topology expected = read(text);
  ASSERT_EQ(expected.gpus.size(), 1U);
  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string changed = text;
    const auto at = changed.find(from);
    return changed.replace(at, from.size(), to);
  };
  std::string wide = "\xff\xfe";
  for (const char c : text) (wide += c) += '\0';
  for (const std::string& form :
       {"\xef\xbb\xbf" + text, wide, replaced("</cpu>", "</cpu >"),
        replaced("busid=\"", "busid = \""), replaced("numaid=\"0\"", "numaid\n=\n'0'"),
        replaced("link_width=\"16\"", "link_width=\"16\n\""),
        replaced("<gpu", "<![CDATA[ <pci/> ]]><gpu"), replaced("<gpu", "<!-- <pci/> --><gpu"),
        replaced("0000:01", "00&#48;0:&#x30;1"), replaced("\"3\"", "\"0x3\""),
        replaced("<system",
                 "<?xml version='1.0'?><!DOCTYPE system [<!ELEMENT a (b)>]>\n<system")}) {
    EXPECT_EQ(read(form), expected) << form;
  }
  const std::string hwloc = hwloc_file({{0, "0xf", ""}}, gpu_object(1, ""));
  const Topology machine = read(hwloc);
  EXPECT_EQ(read("\xef\xbb\xbf" + hwloc), machine);
  std::string spaced = hwloc;
  spaced.replace(spaced.find("</object>"), 9, "<![CDATA[x]]></object >");
  EXPECT_EQ(read(spaced), machine);
  EXPECT_EQ(read("\xef\xbb\xbf" + topology_json(machine)), machine);
}

TEST_F(TopologyFileTest, EntitiesOfAFileAreNotExpandedAndLimitsHold) {
  const std::string bomb =
      "<!DOCTYPE system [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;\"><!ENTITY c "
      "SYSTEM \"file:///etc/passwd\">]><system><cpu numaid=\"0\" affinity=\"3\"><pci "
      "busid=\"0000:01:00.0\"/><nic><net name=\"&b;&c;\"/></nic></cpu></system>";
  EXPECT_EQ(read(bomb).nics[0].name, "&b;&c;");
  std::string deep = "<system>";
  for (int i = 0; i < 100; ++i) deep += "<pci>";
  for (int i = 0; i < 100; ++i) deep += "</pci>";
  EXPECT_THAT(error_of(deep + "</system>"), HasSubstr("at most 64 levels"));
  std::string wide = "<system>";
  for (int i = 0; i < (1 << 20); ++i) wide += "<a/>";
  EXPECT_THAT(error_of(wide + "</system>"), HasSubstr("at most 1048576 tags"));
  EXPECT_THAT(error_of("<system/><system/>"), HasSubstr("line 1: expected the end of the text"));
}

TEST_F(TopologyFileTest, ALargeFileIsRefusedBeforeItIsRead) {
  const std::string path = write("<system>");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40U);  // a terabyte of holes
  try {
    (void)read_topology_file(path);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("it is larger than 64 MiB"));
  }
}

TEST_F(TopologyFileTest, NumbersOfNvLinksHaveABound) {
  for (const int count : {-1, 1024, 1025, 2'000'000'000}) {
    Topology one_way = testing::machine_named("flat_vm");
    Topology other_way = one_way;
    one_way.links[0][1].nvlinks.value = other_way.links[1][0].nvlinks.value = count;
    const std::string expected =
        count == 1024 ? "nothing was thrown"
                      : fmt::format("NVLinks: expected 0 to 1024, but got {}", count);
    EXPECT_THAT(error_of(topology_json(one_way)), HasSubstr(expected));
    EXPECT_THAT(error_of(topology_json(other_way)), HasSubstr(expected));
  }
}

// ---- Names of a file on a terminal ----

TEST_F(TopologyFileTest, NamesOfAFileAreEscaped) {
  const std::string name = "\x1b[31m\u202egpu\u009b1m";
  const std::string escaped = "\\x1b[31m\\u202egpu\\x9b1m";
  const auto expect_clean = [&](const Topology& topology) {
    ASSERT_EQ(topology.nics.size(), 1U);
    EXPECT_EQ(topology.nics[0].name, escaped);
  };
  const std::string nccl =
      "<system><cpu numaid=\"0\" affinity=\"3\"><pci busid=\"0000:01:00.0\" class=\"0x030200\"/>"
      "<nic><net name=\"\xc2\x9b\"/></nic></cpu></system>";
  EXPECT_EQ(read(nccl).nics[0].name, "\\x9b");
  Topology machine;
  machine.nics.push_back({name, "", {}, {}});
  machine.gpus.resize(1);
  machine.gpus[0].name = name;
  machine.gpus[0].uuid = "GPU-" + name;
  machine.gpus[0].pci_chain.offer({{name}}, FactSource::hwloc);
  machine.gpus[0].nvlinks.offer({{{Topology::LinkEnd::gpu, name, 1}}}, FactSource::hwloc);
  machine.virtualization.offer(name, FactSource::system);
  machine.host = name;
  machine.warnings.push_back(name);
  machine.links = {{{}}};
  machine.nic_paths = {{{}}};
  const std::string json = topology_json(machine);
  EXPECT_THAT(json, Not(HasSubstr("\u202e")));
  EXPECT_THAT(json, Not(HasSubstr("\u009b")));
  for (const Topology& topology : {parse_topology_json(json), read(json)}) {
    expect_clean(topology);
    EXPECT_EQ(topology.gpus[0].name, escaped);
    EXPECT_EQ(topology.gpus[0].uuid, "GPU-" + escaped);
    EXPECT_EQ(topology.gpus[0].pci_chain->front(), escaped);
    EXPECT_EQ(topology.gpus[0].nvlinks->front().bus_id, escaped);
    EXPECT_EQ(*topology.virtualization, escaped);
    EXPECT_EQ(topology.host, escaped);
    EXPECT_EQ(topology.warnings.front(), escaped);
  }
  // So are the parts of a file that an error quotes.
  EXPECT_THAT(error_of("<system><cpu numaid=\"\u202e1\"/></system>"),
              HasSubstr("but got '\\u202e1'"));
}

}  // namespace
}  // namespace gantry::machine
