// Where ranks run, as the kernel tells it, beside what the plan says.
#include <gmock/gmock.h>
#include <linux/mempolicy.h>

#include <fstream>

#include <gantry/machine/topology.hpp>

#include "core/text/json.hpp"
#include "tests/launcher/launch_fixture.hpp"

namespace gantry::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchBindingTest : public LaunchTest {
 protected:
  void SetUp() override {
    allowed_ = machine::current_cpus();
    if (allowed_.size() < 2) GTEST_SKIP() << "needs two CPUs";
  }
  [[nodiscard]] int first() const { return allowed_.cpus().front(); }
  [[nodiscard]] int last() const { return allowed_.cpus().back(); }

  /// A machine of two GPUs, one near the first CPU and one near the last; the NUMA node of both
  /// CPUs is node 0, which every machine has.
  [[nodiscard]] std::string two_places() const {
    machine::Topology machine;
    for (const int cpu : {first(), last()}) {
      machine.cores.push_back({machine::CpuSet{cpu}, 0, 0, -1});
      machine::Topology::Gpu gpu;
      gpu.node.offer(0, machine::FactSource::hwloc);
      gpu.cpus.offer(machine::CpuSet{cpu}, machine::FactSource::hwloc);
      machine.gpus.push_back(gpu);
    }
    machine.nodes.push_back({0, 0, machine::CpuSet{first(), last()}, {}});
    machine.links.assign(2, std::vector<machine::Topology::Link>(2));
    machine.nic_paths.resize(2);
    std::ofstream(path("machine.json")) << machine::topology_json(machine);
    return path("machine.json");
  }
  /// What ranks say of themselves, by rank: "cpus 0 policy 1 nodes 0".
  static std::map<int, std::string> bindings(const std::string& output) {
    std::map<int, std::string> result;
    for (const std::string& line : lines_of(output)) {
      const auto at = line.find("] bound ");
      if (at != std::string::npos) result[std::stoi(line.substr(1))] = line.substr(at + 8);
    }
    return result;
  }
  /// What the plan of a dry run says, in the same words.
  static std::map<int, std::string> planned(const Json& plan, const std::string& all) {
    std::map<int, std::string> result;
    for (const Json& rank : plan.at("ranks").elements()) {
      const Json* const node = rank.find("memory_node");
      std::string& text = result[rank.at("rank").as<int>()];
      text = "cpus " + rank.value_or<std::string>("cpus", all);
      text += node == nullptr ? " policy " + std::to_string(MPOL_DEFAULT) + " nodes "
                              : " policy " + std::to_string(MPOL_PREFERRED) + " nodes " +
                                    std::to_string(node->as<int>());
    }
    return result;
  }
  /// Runs a job and its dry run with these options; both must tell the same of every rank.
  void expect_as_planned(const std::vector<std::string>& options) {
    std::vector<std::string> dry = options;
    dry.insert(dry.end(), {"--dry-run", "--json"});
    const Outcome plan = run_command(act(dry, {"tell-binding"}));
    const Outcome job = run_command(act(options, {"tell-binding"}));
    ASSERT_EQ(plan.exit_code, 0) << plan.describe();
    ASSERT_EQ(job.exit_code, 0) << job.describe();
    EXPECT_EQ(bindings(job.out), planned(Json::parse(plan.out), allowed_.str())) << plan.out;
    EXPECT_THAT(job.err, Not(HasSubstr("failed to")));
  }

  machine::CpuSet allowed_;
};

TEST_F(LaunchBindingTest, RanksRunWhereThePlanSays) {
  const std::string file = two_places();
  for (const char* const bind : {"auto", "none", "numa", "core"}) {
    SCOPED_TRACE(bind);
    expect_as_planned({"-n", "2", "--topo-file", file, "--bind", bind});
  }
  const Outcome numa =
      run_command(act({"-n", "2", "--topo-file", file, "--bind", "numa"}, {"tell-binding"}));
  auto got = bindings(numa.out);
  EXPECT_EQ(got[0], "cpus " + std::to_string(first()) + " policy 1 nodes 0");
  EXPECT_EQ(got[1], "cpus " + std::to_string(last()) + " policy 1 nodes 0");
}

TEST_F(LaunchBindingTest, MemoryIsPreferredBoundOrLeftAsAsked) {
  const std::string file = two_places();
  for (const auto& [mode, expected] : {std::pair("prefer", " policy 1 nodes 0"),
                                       {"bind", " policy 2 nodes 0"},
                                       {"none", " policy 0 nodes "}}) {
    const Outcome outcome = run_command(
        act({"-n", "2", "--topo-file", file, "--bind", "numa", "--mem", mode}, {"tell-binding"}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(bindings(outcome.out)[1], "cpus " + std::to_string(last()) + expected) << mode;
  }
  const Outcome dry = run_command(
      act({"-n", "2", "--topo-file", file, "--bind", "numa", "--mem", "none", "--dry-run"}, {"x"}));
  EXPECT_THAT(dry.out, HasSubstr("memory none: of any NUMA node"));
  const Outcome word = run_command(act({"--mem", "some"}, {"tell-binding"}));
  EXPECT_EQ(word.exit_code, 125);
  EXPECT_THAT(word.err, HasSubstr("--mem"));
}

TEST_F(LaunchBindingTest, BoundMemoryNeedsANode) {
  machine::Topology machine = machine::parse_topology_json(read_file(two_places()));
  machine.nodes.push_back({1, 0, machine::CpuSet{9999}, {}});
  std::ofstream(path("machine.json")) << machine::topology_json(machine);
  const Outcome outcome = run_command(
      act({"-n", "2", "--topo-file", path("machine.json"), "--bind", "none", "--mem", "bind"},
          {"tell-binding"}));
  EXPECT_EQ(outcome.exit_code, 125) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("--mem bind: expected a NUMA node for each rank, but rank 0 "
                                     "has none; use --bind numa"));
}

TEST_F(LaunchBindingTest, ListedCpusAreTakenAsTheyAre) {
  expect_as_planned({"-n", "2", "--bind", std::to_string(last()) + ":" + std::to_string(first())});
  const Outcome outcome = run_command(act({"-n", "1", "--bind", "9999"}, {"tell-binding"}));
  EXPECT_EQ(outcome.exit_code, 125) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("--bind: CPUs 9999 of rank 0 may not be used here"));
  EXPECT_EQ(outcome.out, "");
}

TEST_F(LaunchBindingTest, TheProgramIsToldWhereItRuns) {
  const Outcome outcome =
      run_command(act({"-n", "2", "--topo-file", two_places(), "--bind", "core"},
                      {"write-environment", directory_}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  const std::vector<std::string> lines = lines_of(read_file(path("1")));
  EXPECT_THAT(lines, ::testing::Contains("GANTRY_CPUS=" + std::to_string(last())));
  EXPECT_THAT(lines, ::testing::Contains("GANTRY_NUMA=0"));
  EXPECT_THAT(lines, ::testing::Contains("OMP_NUM_THREADS=1"));
}

TEST_F(LaunchBindingTest, AMemoryNodeThatIsNotThereIsAWarning) {
  machine::Topology machine = machine::parse_topology_json(read_file(two_places()));
  machine.nodes[0].id = 1000;
  for (machine::Topology::Gpu& gpu : machine.gpus) gpu.node.value = 1000;
  std::ofstream(path("machine.json")) << machine::topology_json(machine);
  const Outcome outcome = run_command(
      act({"-n", "2", "--topo-file", path("machine.json"), "--bind", "numa"}, {"tell-binding"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  // Once for all ranks, which are bound to their CPUs all the same.
  const std::string warning = "warning: failed to set the memory policy: Invalid argument; ";
  const auto at = outcome.err.find(warning);
  ASSERT_NE(at, std::string::npos) << outcome.describe();
  EXPECT_EQ(outcome.err.find(warning, at + 1), std::string::npos);
  EXPECT_EQ(bindings(outcome.out)[1], "cpus " + std::to_string(last()) + " policy 0 nodes ");
}

TEST_F(LaunchBindingTest, AMalformedTopologyFileIsAnError) {
  std::ofstream(path("bad.json")) << "{\"kind\": \"gantry topology\", \"schema\": 7}";
  Outcome outcome = run_command(act({"--topo-file", path("bad.json")}, {"tell-binding"}));
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_EQ(outcome.err, "glaunch: topology file '" + path("bad.json") +
                             "': $.schema: expected schema 1, but got 7\n");
  outcome = run_command(act({"--dry-run", "--topo-file", path("bad.json")}, {"tell-binding"}));
  EXPECT_EQ(outcome.exit_code, 2);
}

}  // namespace
}  // namespace gantry::testing
