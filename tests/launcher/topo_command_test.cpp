#include "launcher/topo/topo_command.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "core/text/escaped_text.hpp"
#include "core/text/json.hpp"
#include "launcher/topo/topo_text.hpp"
#include "tests/launcher/launch_fixture.hpp"
#include "tests/machine/machines.hpp"

namespace gantry::launcher {
namespace {

using testing::Command;
using ::testing::HasSubstr;
using testing::machine_named;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;

class TopoCommandTest : public testing::LaunchTest {
 protected:
  /// glaunch on no device of its own.
  Command without_gpus(std::vector<std::string> arguments) const {
    Command command = launch(std::move(arguments));
    command.environment["GANTRY_SIM_DEVICES"] = std::nullopt;
    command.environment["GANTRY_NVML_PATH"] = "/nowhere/libnvidia-ml.so.1";
    command.environment["CUDA_VISIBLE_DEVICES"] = std::nullopt;
    return command;
  }
};

TEST_F(TopoCommandTest, TextsOfKnownMachinesEqualTheGoldenFiles) {
  for (const char* const name : {"dgx1v", "container"}) {
    const std::string path = std::string(GANTRY_TEST_DATA_DIR) + "/" + name;
    EXPECT_EQ(topology_matrix(machine_named(name)), read_file(path + ".matrix")) << path;
    EXPECT_EQ(topology_tree(machine_named(name)), read_file(path + ".tree")) << path;
    EXPECT_EQ(topology_picture(machine_named(name)), read_file(path + ".svg")) << path;
  }
}

TEST_F(TopoCommandTest, UnknownFactsAreQuestionMarks) {
  const std::string text = topology_matrix(machine_named("unknown_places"));
  EXPECT_THAT(text, HasSubstr("GPU0  X     PHB   PHB   PHB   ?     ?   ?\n"));
  machine::Topology none;
  none.host = "node";
  none.why_no_gpu = "NVML shows no GPU";
  EXPECT_THAT(topology_matrix(none), HasSubstr("node: driver ?, virtual machine ?"));
  EXPECT_THAT(topology_matrix(none), HasSubstr("no GPU: NVML shows no GPU\n"));
  EXPECT_THAT(topology_tree(none), HasSubstr("no GPU: NVML shows no GPU\n"));
}

TEST_F(TopoCommandTest, PairsWithoutPeerAccessAreMarked) {
  EXPECT_THAT(topology_matrix(machine_named("mig")), HasSubstr("GPU0  X     X-    X-    SYS-"));
}

TEST_F(TopoCommandTest, PicturesCountInSingularAndPlural) {
  machine::Topology topology;
  topology.why_no_gpu = "NVML shows no GPU";
  topology.cores.resize(1);
  topology.nics.resize(1);
  EXPECT_THAT(topology_picture(topology),
              HasSubstr(">1 core, 0 GPUs, 1 network interface: NVML shows no GPU<"));
  topology.gpus.resize(1);
  topology.nics.resize(2);
  EXPECT_THAT(topology_picture(topology), HasSubstr(">1 core, 1 GPU, 2 network interfaces<"));
}

TEST_F(TopoCommandTest, PicturesEscapeNames) {
  machine::Topology topology = machine_named("smt_off");
  topology.host = "a<b>&\"c\"";
  const std::string picture = topology_picture(topology);
  EXPECT_THAT(picture, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;"));
  EXPECT_THAT(picture, Not(HasSubstr("a<b>")));
}

// Where a text stands in a picture.
int column_of(const std::string& picture, const std::string& text) {
  const auto at = picture.find(">" + text);
  const auto x = picture.rfind("x=\"", at);
  return at == std::string::npos ? -1 : std::stoi(picture.substr(x + 3));
}

TEST_F(TopoCommandTest, InterfacesStandBelowTheirGpus) {
  // Two GPUs below switches of their own, each with four interfaces; a ninth is anywhere.
  std::string file = "<system><cpu numaid=\"0\" affinity=\"3\">";
  for (const std::string gpu : {"1", "2"}) {
    file += "<pci busid=\"0000:a" + gpu + ":00.0\"><pci busid=\"0000:" + gpu +
            "0:00.0\" class=\"0x030200\"/>";
    for (const std::string nic : {"1", "2", "3", "4"}) {
      file += "<pci busid=\"0000:" + gpu + nic + ":00.0\"><nic><net name=\"rdmap" + gpu + nic +
              "\"/></nic></pci>";
    }
    file += "</pci>";
  }
  file += "<nic><net name=\"eth0\"/></nic></cpu></system>";
  std::ofstream(path("cloud.xml")) << file;
  const Outcome outcome =
      run_command(without_gpus({"topo", "--svg", "--topo-file", path("cloud.xml")}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  for (const std::string gpu : {"1", "2"}) {
    const int column = column_of(outcome.out, gpu == "1" ? "GPU0 " : "GPU1 ");
    ASSERT_GE(column, 0) << outcome.out;
    for (const std::string nic : {"1", "2", "3", "4"}) {
      EXPECT_EQ(column_of(outcome.out, "rdmap" + gpu + nic), column) << outcome.out;
    }
  }
  EXPECT_NE(column_of(outcome.out, "GPU0 "), column_of(outcome.out, "GPU1 "));
  EXPECT_GE(column_of(outcome.out, "eth0"), 0);
}

TEST_F(TopoCommandTest, PicturesAreXmlWhateverNamesAre) {
  machine::Topology topology = machine_named("smt_off");
  topology.host = "no\x1b[1mde";
  for (std::size_t i = 0; i < topology.gpus.size(); ++i) {
    // A letter of two bytes at every place where the name may be cut.
    topology.gpus[i].name = std::string(10 + i, 'a');
    for (int k = 0; k < 40; ++k) topology.gpus[i].name += "\u00e9";
  }
  const std::string picture = topology_picture(topology);
  EXPECT_EQ(escape_control_characters(picture, LineEnds::keep), picture);
}

TEST_F(TopoCommandTest, JsonIsATopologyFile) {
  std::ofstream(path("hgx.json")) << machine::topology_json(machine_named("hgx_h200"));
  const Outcome json =
      run_command(without_gpus({"topo", "--json", "--topo-file", path("hgx.json")}));
  ASSERT_EQ(json.exit_code, 0) << json.describe();
  EXPECT_EQ(machine::parse_topology_json(json.out).links, machine_named("hgx_h200").links);
  const Outcome redacted =
      run_command(without_gpus({"topo", "--json", "--redact", "--topo-file", path("hgx.json")}));
  EXPECT_THAT(redacted.out, Not(HasSubstr(machine_named("hgx_h200").gpus[3].uuid)));
  // A dry run plans for that machine.
  const Outcome plan = run_command(
      without_gpus({"--dry-run", "--gpus", "best:2", "--topo-file", path("hgx.json"), "app"}));
  ASSERT_EQ(plan.exit_code, 0) << plan.describe();
  EXPECT_THAT(plan.out, HasSubstr("2 ranks on node, devices: file\n"));
  EXPECT_THAT(plan.out, HasSubstr("cpus 0-47,96-143  memory 0  nic mlx5_0"));
  const Outcome job = run_command(without_gpus({"--topo-file", path("hgx.json"), "/bin/true"}));
  EXPECT_EQ(job.exit_code, 125);
  EXPECT_THAT(job.err, HasSubstr("no device is visible (failed to load /nowhere"));
}

TEST_F(TopoCommandTest, SimulatedDevicesAreShown) {
  const Outcome outcome = run_command(launch({"topo"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("GPU3  Simulated GPU"));
  EXPECT_THAT(run_command(launch({"topo", "--svg"})).out, HasSubstr("GPU3 Simulated GPU"));
  EXPECT_THAT(run_command(launch({"topo", "--tree"})).out,
              HasSubstr("simulated, near no NUMA node\n"));
}

TEST_F(TopoCommandTest, SimulatedDevicesHaveIdentitiesAndNoUnknownFacts) {
  Command four = launch({"topo"});
  four.environment["GANTRY_SIM_DEVICES"] = "4";
  const std::string text = run_command(four).out;
  const std::string list = text.substr(text.find("4 simulated devices, "));
  EXPECT_THAT(list, Not(HasSubstr("?")));
  for (const char* const id : {"8000-000000000000  0000:10", "8000-000000000003  0000:13"}) {
    EXPECT_THAT(list, HasSubstr(id));
  }
  EXPECT_THAT(text, Not(HasSubstr("driver")));
  four.argv.push_back("--svg");
  EXPECT_THAT(run_command(four).out, Not(HasSubstr("?")));
  // A file that knows more gives the table.
  std::ofstream(path("hgx.json")) << machine::topology_json(machine_named("hgx_h200"));
  Command placed = launch({"topo", "--topo-file", path("hgx.json")});
  placed.environment["GANTRY_SIM_DEVICES"] = "4";
  EXPECT_THAT(run_command(placed).out, HasSubstr("NUMA  by"));
}

TEST_F(TopoCommandTest, IdentitiesAreAsLongAsTellsGpusApart) {
  machine::Topology topology = machine_named("dgx1v");
  EXPECT_EQ(short_uuids(topology)[1], "GPU-10000000");
  topology.gpus[0].uuid = topology.gpus[1].uuid + "x";
  topology.gpus[2].uuid = "";
  const std::vector<std::string> uuids = short_uuids(topology);
  EXPECT_EQ(uuids[0], topology.gpus[0].uuid);
  EXPECT_EQ(uuids[1], topology.gpus[1].uuid);
  EXPECT_EQ(uuids[2], "?");
  topology.gpus = {topology.gpus[1], topology.gpus[1]};
  EXPECT_EQ(short_uuids(topology), (std::vector<std::string>{"GPU-10000000", "GPU-10000000"}));
}

TEST_F(TopoCommandTest, AHypervisorWithoutANameIsNoName) {
  machine::Topology topology = machine_named("dgx1v");
  topology.virtualization.value = "a hypervisor";
  EXPECT_THAT(topology_matrix(topology), HasSubstr(", virtual machine yes, "));
  topology.virtualization.value = "KVM";
  EXPECT_THAT(topology_matrix(topology), HasSubstr(", virtual machine KVM, "));
}

TEST_F(TopoCommandTest, TheHeaderCountsInSingularAndPlural) {
  machine::Topology topology = machine_named("dgx1v");
  EXPECT_THAT(topology_matrix(topology), HasSubstr("; 40 cores in 2 NUMA nodes; "));
  topology.cores.resize(1);
  topology.nodes.resize(1);
  EXPECT_THAT(topology_matrix(topology), HasSubstr("; 1 core in 1 NUMA node; "));
}

TEST_F(TopoCommandTest, BadOptionsAreErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"topo", "--tree", "--json"}, "topo: --tree, --json and --svg contradict each other"},
      {{"topo", "--redact"}, "topo: --redact needs --json"},
      {{"topo", "--bogus"}, "--bogus"},
      {{"topo", "--topo-file", "/nowhere"}, "topology file '/nowhere': "}};
  for (const auto& [arguments, text] : cases) {
    const Outcome outcome = run_command(launch(arguments));
    EXPECT_EQ(outcome.exit_code, 125) << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_THAT(run_command(launch({"topo", "--help"})).out, HasSubstr("Usage: glaunch topo"));
}

}  // namespace
}  // namespace gantry::launcher
