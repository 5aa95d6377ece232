#include "launcher/check/check_command.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "core/text/json.hpp"
#include "tests/launcher/launch_fixture.hpp"
#include "tests/machine/machines.hpp"

namespace gantry::launcher {
namespace {

using testing::Command;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::machine_named;
using testing::Outcome;

CheckInput healthy(const std::string& name) {
  CheckInput input;
  input.machine = machine_named(name);
  input.machine.gpu_source = machine::FactSource::nvml;
  input.machine.shm_bytes.offer(std::uint64_t{64} << 30U, machine::FactSource::system);
  input.states.resize(input.machine.gpus.size());
  return input;
}

// "warning GPU 0: text", without those that are fine.
std::vector<std::string> problems(const CheckInput& input, const CheckRequest& request = {}) {
  std::vector<std::string> texts;
  for (const Finding& finding : find_problems(input, request)) {
    if (finding.severity == Severity::fine) continue;
    EXPECT_NE(finding.remedy, "") << finding.text;
    texts.push_back(std::string(name(finding.severity)) + " " + finding.subject + ": " +
                    finding.text);
  }
  return texts;
}

TEST(CheckTest, AHealthyMachineHasNoProblem) {
  EXPECT_THAT(problems(healthy("hgx_h100")), IsEmpty());
  EXPECT_EQ(exit_code(find_problems(healthy("hgx_h100"), {})), 0);
}

TEST(CheckTest, NoDeviceIsAnError) {
  CheckInput input;
  input.machine.why_no_gpu = "NVML shows no GPU";
  const auto findings = find_problems(input, {});
  EXPECT_EQ(findings[0].subject, "devices");
  EXPECT_EQ(findings[0].text, "no device is visible: NVML shows no GPU");
  EXPECT_EQ(exit_code(findings), 2);
  input.visible_problem = "CUDA_VISIBLE_DEVICES=9: '9' shows no device";
  EXPECT_EQ(find_problems(input, {})[0].subject, "visible devices");
}

TEST(CheckTest, TheStateOfAGpuIsTold) {
  CheckInput input = healthy("hgx_h100");
  input.states[0].processes = {17, 18};
  input.states[1].is_exclusive = true;
  input.states[2].needs_reset = true;
  input.states[3].throttle_reasons = 0x40;
  input.states[3].temperature = 91;
  input.states[4].throttle_reasons = 0x1;  // idle
  input.machine.gpus[5].used_memory_bytes.value = *input.machine.gpus[5].memory_bytes / 4;
  input.machine.gpus[6].pcie_width.offer(8, machine::FactSource::nvml);
  input.machine.gpus[6].max_pcie_width.offer(16, machine::FactSource::nvml);
  input.machine.gpus[7].inactive_nvlinks.offer(2, machine::FactSource::nvml);
  EXPECT_THAT(
      problems(input),
      ElementsAre("warning GPU 0: in use by several processes (17, 18)",
                  "warning GPU 1: its compute mode admits one process",
                  "warning GPU 2: it waits for a reset to replace bad memory",
                  "warning GPU 3: its clocks are lowered for heat, at 91 °C",
                  "warning GPU 5: 20.0 of 80.0 GiB used, 0 processes, though no process is seen",
                  "warning GPU 6: PCIe has 8 of 16 lanes",
                  "warning GPU 7: 2 NVLinks are inactive"));
  EXPECT_EQ(exit_code(find_problems(input, {})), 1);
  input.states[7].is_prohibited = true;
  input.states[6].has_failed_rows = true;
  const auto all = problems(input);
  EXPECT_EQ(all[0], "error GPU 6: a row of its memory could not be replaced");
  EXPECT_EQ(all[1], "error GPU 7: its compute mode is prohibited");
  EXPECT_EQ(exit_code(find_problems(input, {})), 2);
}

TEST(CheckTest, PlacesAndPeersAreLookedAt) {
  CheckInput input = healthy("hgx_h100");
  input.machine.links[2][3].peer_access.value = false;
  EXPECT_THAT(problems(input), ElementsAre("warning peer access: not between GPUs 2-3"));
  EXPECT_THAT(
      problems(healthy("unknown_places")),
      ElementsAre("warning NUMA: the nodes of GPUs 0, 1, 2, 3 are unknown, so ranks are not "
                  "bound"));
  EXPECT_THAT(problems(healthy("container")),
              ElementsAre("warning NUMA: no CPU near GPUs 1 may be used here"));
  EXPECT_THAT(problems(healthy("mig")),
              ElementsAre(HasSubstr("peer access: not between GPUs 0-1, 0-2, 0-3, 1-2")));
}

TEST(CheckTest, LimitsAreThoseOfTheJob) {
  CheckInput input = healthy("hgx_h100");
  EXPECT_THAT(problems(input, {.ranks = 100}), ElementsAre("note CPUs: 112 cores for 100 ranks"));
  input.machine.cpu_quota.offer(4, machine::FactSource::sysfs);
  input.machine.shm_bytes.value = std::uint64_t{64} << 20U;
  input.limits.open_files = 64;
  input.limits.locked_memory = 65536;
  EXPECT_THAT(problems(input),
              ElementsAre("error open files: the limit is 64, and 8 ranks need 96",
                          "warning CPUs: a quota of 4 CPUs for 8 ranks",
                          "warning /dev/shm: 64 MiB are free, for 8 ranks",
                          "warning locked memory: the limit is 64 KiB, and RDMA registers memory"));
}

class CheckCommandTest : public testing::LaunchTest {};

TEST_F(CheckCommandTest, LooksAtNvml) {
  Command command = launch({"check", "--json"});
  command.environment["GANTRY_SIM_DEVICES"] = std::nullopt;
  command.environment["CUDA_VISIBLE_DEVICES"] = std::nullopt;
  command.environment["GANTRY_NVML_PATH"] = GANTRY_TEST_FAKE_NVML;
  command.environment["FAKE_NVML"] = "H200,GPU-a,00000000:06:00.0;H200,GPU-b,00000000:1B:00.0";
  command.environment["FAKE_NVML_FACTS"] = "1 processes 4711 100;0-1 p2p 0 0;1-0 p2p 0 0;1 mode 2";
  Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("findings").at(0).at("subject"), "GPU 1");
  EXPECT_EQ(json.at("findings").at(0).at("severity"), "error");
  EXPECT_THAT(outcome.out, HasSubstr("in use by a process (4711)"));
  // The state belongs to the GPU, whatever number it has for the program.
  command.environment["CUDA_VISIBLE_DEVICES"] = "1";
  outcome = run_command(command);
  EXPECT_EQ(Json::parse(outcome.out).at("findings").at(0).at("subject"), "GPU 0");
  command.environment["CUDA_VISIBLE_DEVICES"] = "0,7";
  outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, HasSubstr("'7' shows no device"));
}

TEST_F(CheckCommandTest, SimulatedDevicesAreFine) {
  Command command = launch({"check", "-n", "1"});
  const Outcome outcome = run_command(command);
  EXPECT_THAT(outcome.out, HasSubstr("ok       devices: 4 visible by simulated\n"));
  EXPECT_LT(outcome.exit_code, 2) << outcome.describe();
}

TEST_F(CheckCommandTest, BadOptionsAreErrors) {
  const Outcome outcome = run_command(launch({"check", "--bogus"}));
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_THAT(outcome.err, HasSubstr("to start a program called check: glaunch -- check"));
  EXPECT_EQ(run_command(launch({"check", "--topo-file", "/nowhere"})).exit_code, 125);
  EXPECT_THAT(run_command(launch({"check", "--help"})).out, HasSubstr("Usage: glaunch check"));
}

}  // namespace
}  // namespace gantry::launcher
