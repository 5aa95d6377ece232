#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/text/json.hpp"
#include "launcher/check/bandwidth_findings.hpp"
#include "launcher/check/bandwidth_run.hpp"
#include "tests/launcher/launch_fixture.hpp"
#include "tests/machine/machines.hpp"

namespace gantry::launcher {
namespace {

using testing::Command;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::machine_named;
using testing::Outcome;
using testing::Subprocess;

Bandwidth rate(double gigabytes_per_second) {
  Bandwidth way;
  way.gigabytes_per_second = gigabytes_per_second;
  way.bytes = 1 << 20;
  way.is_by_kernel = true;
  return way;
}

// All pairs and all ways to the host measured, with equal numbers.
Bandwidths measured(const machine::Topology& machine, double pairs, double host) {
  std::vector<int> nodes;
  for (const machine::Topology::NumaNode& node : machine.nodes) nodes.push_back(node.id);
  Bandwidths all = Bandwidths::of(machine.gpus.size(), nodes);
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    for (std::size_t j = 0; j < machine.gpus.size(); ++j) {
      if (i == j) continue;
      all.write[i][j] = all.read[i][j] = rate(pairs);
    }
    for (Bandwidths::Host& way : all.host[i]) way = {rate(host), rate(host)};
  }
  return all;
}

machine::Topology hgx() {
  machine::Topology hgx = machine_named("hgx_h100");
  for (machine::Topology::Gpu& gpu : hgx.gpus) {
    gpu.compute_capability.offer("9.0", machine::FactSource::nvml);
    gpu.max_pcie_generation.offer(5, machine::FactSource::nvml);
    gpu.pcie_generation.offer(1, machine::FactSource::nvml);  // idle
    gpu.pcie_width.offer(16, machine::FactSource::nvml);
  }
  return hgx;
}

// "warning bandwidth: text", without what is fine.
std::vector<std::string> problems(const machine::Topology& machine, const Bandwidths& bandwidths) {
  std::vector<std::string> texts;
  for (const Finding& finding : find_slow_ways(machine, bandwidths)) {
    if (finding.severity == Severity::fine) continue;
    EXPECT_NE(finding.remedy, "") << finding.text;
    texts.push_back(std::string(name(finding.severity)) + " " + finding.subject + ": " +
                    finding.text);
  }
  return texts;
}

TEST(BandwidthTest, AHealthyMachineHasNoProblem) {
  EXPECT_THAT(problems(hgx(), measured(hgx(), 365, 55)), IsEmpty());
  const auto findings = find_slow_ways(hgx(), measured(hgx(), 365, 55));
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_EQ(findings[0].text, "365 GB/s written between GPUs");
  EXPECT_EQ(findings[1].text, "365 GB/s read between GPUs");
  EXPECT_EQ(findings[2].text, "55 GB/s to and from GPUs");
}

TEST(BandwidthTest, LinksAreComparedWithWhatTheyPromise) {
  EXPECT_DOUBLE_EQ(promised_between(hgx(), 0, 1).value(), 450);
  EXPECT_DOUBLE_EQ(promised_by_pcie(hgx().gpus[0]).value(), 3.938 * 16);
  Bandwidths slow = measured(hgx(), 365, 55);
  slow.write[0][3] = rate(180);
  slow.write[5][3] = rate(150.4);
  slow.host[2][0] = slow.host[2][1] = {rate(12), rate(24)};
  EXPECT_THAT(
      problems(hgx(), slow),
      ElementsAre("warning bandwidth: 150 to 180 GB/s written by GPUs 0 to 3, 5 to 3, but NV18 "
                  "promises 450 GB/s",
                  "warning GPU 2: 12 GB/s between it and the host, but its PCIe link promises 63 "
                  "GB/s"));
}

TEST(BandwidthTest, WithoutAPromisePairsAreComparedWithEqualOnes) {
  machine::Topology unknown = hgx();
  for (machine::Topology::Gpu& gpu : unknown.gpus) gpu.compute_capability = {};
  EXPECT_EQ(promised_between(unknown, 0, 1), std::nullopt);
  Bandwidths slow = measured(unknown, 365, 55);
  slow.read[1][2] = rate(200);
  slow.read[2][1] = rate(300);  // less than most, but not much
  EXPECT_THAT(problems(unknown, slow),
              ElementsAre("warning bandwidth: 200 GB/s read by GPUs 1 from 2, but 365 GB/s by most "
                          "pairs with NV18"));
  // Pairs with one and with two NVLinks are not equal.
  const machine::Topology cube = machine_named("dgx1v");
  Bandwidths mixed = measured(cube, 40, 12);
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      if (i == j || cube.links[i][j].nvlinks.value.value_or(0) == 2) continue;
      mixed.write[i][j] = mixed.read[i][j] = rate(20);
    }
  }
  EXPECT_THAT(problems(cube, mixed), IsEmpty());
}

TEST(BandwidthTest, WrongBytesAreAnError) {
  Bandwidths wrong = measured(hgx(), 365, 55);
  wrong.write[6][7].wrong_bytes = 4096;
  wrong.host[1][0].to_device.wrong_bytes = 1;
  EXPECT_THAT(problems(hgx(), wrong),
              ElementsAre("error GPU 6 to 7: 4096 of 1048576 bytes were written wrongly",
                          "error GPU 1 and NUMA node 0: 1 of 1048576 bytes were copied to it "
                          "wrongly"));
}

TEST(BandwidthTest, NodesOfTheHostAreCompared) {
  // GPU 0 is near node 0.
  Bandwidths nodes = measured(hgx(), 365, 55);
  nodes.host[0][1] = {rate(40), rate(55)};
  EXPECT_THAT(problems(hgx(), nodes),
              ElementsAre("note GPU 0: 55 GB/s with NUMA node 0, 40 GB/s with NUMA node 1"));
  std::swap(nodes.host[0][0], nodes.host[0][1]);
  EXPECT_THAT(problems(hgx(), nodes),
              ElementsAre("warning GPU 0: 40 GB/s with NUMA node 0, though node 0 is said to be "
                          "near; 55 GB/s with NUMA node 1"));
  machine::Topology unknown = hgx();
  unknown.gpus[0].node = {};
  EXPECT_THAT(
      problems(unknown, nodes),
      ElementsAre("note GPU 0: 55 GB/s with NUMA node 1, 40 GB/s with NUMA node 0; its node "
                  "is unknown"));
  // Memory that lies elsewhere says nothing about the node.
  nodes.host[0][0].to_device.host_node = 1;
  EXPECT_THAT(problems(hgx(), nodes),
              ElementsAre("note GPU 0 and NUMA node 0: the memory was on NUMA node 1 instead"));
}

TEST(BandwidthTest, SimulatedDevicesAreNeverSlow) {
  machine::Topology simulated = hgx();
  simulated.gpu_source = machine::FactSource::simulated;
  Bandwidths slow = measured(simulated, 10, 5);
  slow.write[0][1] = rate(1);
  slow.host[0][1] = {rate(1), rate(1)};
  EXPECT_THAT(problems(simulated, slow), IsEmpty());
  EXPECT_EQ(find_slow_ways(simulated, slow)[0].text,
            "1.0 to 10 GB/s written, between simulated devices");
}

TEST(BandwidthTest, WhatWasNotMeasuredIsNamed) {
  Bandwidths part = measured(hgx(), 365, 55);
  part.read[0][1] = {};
  part.read[0][1].failure = "cudaErrorUnknown";
  part.failures = {"cannot start"};
  EXPECT_THAT(problems(hgx(), part),
              ElementsAre("warning bandwidth: not all was measured: cannot start",
                          "warning GPU 0 from 1: not measured: cudaErrorUnknown"));
  Bandwidths none = Bandwidths::of(8, {-1});
  none.no_devices = "no driver";
  EXPECT_THAT(problems(hgx(), none),
              ElementsAre("error bandwidth: the devices cannot be used: no driver"));
}

// --- What the measuring program prints ---

TEST(BandwidthReaderTest, DevicesAreFoundByUuid) {
  const machine::Topology two = machine::keep_gpus(hgx(), std::vector<int>{0, 1});
  BandwidthReader reader(two);
  reader.read(R"({"devices": [")" + two.gpus[1].uuid + R"(", ")" + two.gpus[0].uuid +
              R"("], "platform": "cuda", "measurements": 3})");
  reader.read("a line of the driver");
  reader.read("[1, 2]");
  reader.read(R"({"begin": 0, "route": "write", "device": 0, "other": 1})");
  reader.read(
      R"({"done": 0, "gigabytes_per_second": 300, "bytes": 8, "wrong_bytes": 2, "by": "kernel"})");
  reader.read(R"({"begin": 1, "route": "to_host", "device": 1, "other": 1})");
  reader.read(R"({"failed": 1, "cause": "no memory"})");
  reader.read(R"({"begin": 2, "route": "read", "device": 1, "other": 7})");  // no such device
  reader.read(R"({"done": 2, "gigabytes_per_second": "fast"})");
  EXPECT_EQ(reader.end(""), std::nullopt);
  const Bandwidths all = reader.take();
  EXPECT_EQ(all.write[1][0].gigabytes_per_second, 300);
  EXPECT_EQ(all.write[1][0].wrong_bytes, 2U);
  EXPECT_TRUE(all.write[1][0].is_by_kernel);
  EXPECT_EQ(all.host[0][1].to_host.failure, "no memory");
  EXPECT_THAT(all.failures, IsEmpty());
}

TEST(BandwidthReaderTest, ARunGoesOnBehindTheMeasurementThatEndedIt) {
  const machine::Topology two = machine::keep_gpus(hgx(), std::vector<int>{0, 1});
  BandwidthReader reader(two);
  EXPECT_EQ(reader.end("it was killed"), std::nullopt);  // before there was a device
  BandwidthReader other(two);
  other.read(R"({"devices": [")" + two.gpus[0].uuid + R"(", ")" + two.gpus[1].uuid +
             R"("], "platform": "cuda", "measurements": 3})");
  other.read(R"({"begin": 0, "route": "write", "device": 0, "other": 1})");
  EXPECT_EQ(other.end("it was killed"), 1U);
  other.read(R"({"begin": 2, "route": "read", "device": 0, "other": 1})");
  EXPECT_EQ(other.end(""), std::nullopt);
  const Bandwidths all = other.take();
  EXPECT_EQ(all.write[0][1].failure, "it was killed");
  EXPECT_EQ(all.read[0][1].failure, "the measuring process ended early");
}

// --- The command ---

// glaunch in a folder of its own, beside a measuring program of the test.
class FullCheckTest : public testing::LaunchTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(path("bin"));
    std::filesystem::create_directories(path("libexec/gantry"));
    std::filesystem::copy_file(GANTRY_TEST_GLAUNCH, path("bin/glaunch"));
  }

  // `script` is shell; $real is the true program.
  void install_program(const std::string& script) const {
    const std::string program = path("libexec/gantry/gantry-check-devices");
    std::ofstream(program) << "#!/bin/sh\nreal=" << GANTRY_TEST_CHECK_DEVICES << "\n" << script;
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  }

  Command check(std::vector<std::string> arguments) const {
    Command command = launch({"check", "--full"});
    command.argv[0] = path("bin/glaunch");
    command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
    command.environment["GANTRY_SIM_DEVICES"] = "3";
    return command;
  }
};

TEST_F(FullCheckTest, SimulatedDevicesAreMeasured) {
  Command command = launch({"check", "--full", "--json"});
  const Outcome outcome = run_command(command);
  EXPECT_LT(outcome.exit_code, 2) << outcome.describe();
  const Json json = Json::parse(outcome.out);
  const Json& bandwidths = json.at("bandwidths");
  for (const char* route : {"write", "read"}) {
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t j = 0; j < 4; ++j) {
        const Json& cell = bandwidths.at(route).at(i).at(j);
        EXPECT_EQ(cell.is_number(), i != j) << route << " " << i << " " << j << " " << cell;
      }
    }
  }
  ASSERT_GE(bandwidths.at("host").size(), 4U);
  for (const Json& host : bandwidths.at("host").elements()) {
    EXPECT_GT(host.at("to_device").as<double>(), 0);
    EXPECT_GT(host.at("to_host").as<double>(), 0);
  }
  EXPECT_THAT(outcome.out, HasSubstr("written, between simulated devices"));
  EXPECT_THAT(run_command(launch({"check", "--full"})).out,
              HasSubstr("GB/s that the GPU of the line writes to the GPU of the column:\n"));
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(FullCheckTest, AnAbsentProgramIsAFinding) {
  const Outcome outcome = run_command(check({}));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("warning  bandwidth: not all was measured: cannot start '" +
                                     path("libexec/gantry/gantry-check-devices") +
                                     "': No such file or directory\n"));
}

TEST_F(FullCheckTest, GpusOfAFileAreNotMeasured) {
  std::ofstream(path("machine.json")) << machine::topology_json(hgx());
  Command command = check({"--topo-file", path("machine.json")});
  command.environment["GANTRY_SIM_DEVICES"] = std::nullopt;
  command.environment["GANTRY_NVML_PATH"] = "/nowhere/libnvidia-ml.so.1";
  const Outcome outcome = run_command(command);
  EXPECT_THAT(outcome.out, HasSubstr("note     bandwidth: not measured: the GPUs are those of a "
                                     "file\n"));
}

TEST_F(FullCheckTest, ACrashCostsOneMeasurement) {
  // Numbers 0 to 5 belong to the host; 6 is write 0 to 1.
  install_program(R"(
case "$*" in
  "--first 0") "$real" "$@" | while read -r line; do
      printf '%s\n' "$line"
      case "$line" in *'"begin":6,'*) exit 3;; esac
    done
    echo "driver: bad pair" >&2
    kill -SEGV $$;;
esac
exec "$real" "$@"
)");
  const Outcome outcome = run_command(check({"--json"}));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("not measured: the measuring process was killed by SIGSEGV "
                                     "(driver: bad pair)"));
  const Json json = Json::parse(outcome.out);
  EXPECT_TRUE(json.at("bandwidths").at("write").at(0).at(1).is_null());
  EXPECT_TRUE(json.at("bandwidths").at("read").at(0).at(1).is_number());
  EXPECT_TRUE(json.at("bandwidths").at("write").at(2).at(1).is_number());
  EXPECT_EQ(json.at("findings").at(0).at("subject"), "GPU 0 to 1");
}

TEST_F(FullCheckTest, DevicesThatDoNotStartAreAnError) {
  install_program(R"(echo '{"cause":"system not yet initialized"}'; exit 1)");
  const Outcome outcome = run_command(check({}));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("error    bandwidth: the devices cannot be used: system not "
                                     "yet initialized\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("GB/s that")));
}

constexpr const char* kHangs = R"(
echo "{\"devices\":[\"a\"],\"platform\":\"cuda\",\"measurements\":2}"
echo '{"begin":0,"route":"to_host","device":0,"other":-1}'
echo "pid hanging $$" >> hanging
sleep 1000
)";

TEST_F(FullCheckTest, AHangEndsAtTheDeadline) {
  install_program("cd " + directory_ + "\n" + kHangs);
  const Outcome outcome = run_command(check({"--deadline", "100ms"}));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.describe();
  EXPECT_THAT(outcome.out,
              HasSubstr("not all was measured: the measurement was given up after several "
                        "failures"));
  const std::vector<int> pids = testing::pids_in(testing::read_file(path("hanging")), "hanging");
  EXPECT_FALSE(pids.empty());
  for (const int pid : pids) EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(FullCheckTest, AKilledCheckLeavesNothing) {
  install_program("cd " + directory_ + "\n" + kHangs);
  Subprocess process(check({}));
  while (testing::pids_in(testing::read_file(path("hanging")), "hanging").empty()) {
    std::this_thread::yield();
  }
  const int pid = testing::pids_in(testing::read_file(path("hanging")), "hanging").front();
  process.send_signal(SIGKILL);
  EXPECT_EQ(process.wait().signal, SIGKILL);
  EXPECT_TRUE(testing::ends(pid));
}

}  // namespace
}  // namespace gantry::launcher
