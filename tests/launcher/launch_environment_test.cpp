// What ranks find in their environment, on real and pretended machines.
#include <gmock/gmock.h>

#include <map>

#include "core/text/json.hpp"
#include "tests/launcher/launch_fixture.hpp"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* kTwoGpus =
    "NVIDIA H200,GPU-aaaa,00000000:06:00.0;NVIDIA H200,GPU-bbbb,00000000:1B:00.0";

class LaunchEnvironmentTest : public LaunchTest {
 protected:
  Command on_gpus(Command command, const std::string& devices) const {
    command.environment["GANTRY_SIM_DEVICES"] = std::nullopt;
    command.environment["GANTRY_NVML_PATH"] = GANTRY_TEST_FAKE_NVML;
    command.environment["FAKE_NVML"] = devices;
    command.environment["CUDA_VISIBLE_DEVICES"] = std::nullopt;
    command.environment["CUDA_DEVICE_ORDER"] = std::nullopt;
    return command;
  }
};

TEST_F(LaunchEnvironmentTest, RanksGetTheirIdentity) {
  Command command = act({"-n", "3"}, {"write-environment", directory_});
  command.environment["NCCL_NVLS_ENABLE"] = "0";
  command.environment["OMP_NUM_THREADS"] = "7";
  const Outcome outcome = run_command(command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  for (int rank = 0; rank < 3; ++rank) {
    auto got = environment_of(rank);
    for (const char* name :
         {"GANTRY_RANK", "GANTRY_LOCAL_RANK", "RANK", "LOCAL_RANK", "GANTRY_DEVICE"}) {
      EXPECT_EQ(got[name], std::to_string(rank)) << name;
    }
    EXPECT_EQ(got["GANTRY_WORLD_SIZE"], "3");
    EXPECT_THAT(got["GANTRY_JOB_ID"], MatchesRegex("[0-9a-f]{16}"));
    EXPECT_THAT(got["GANTRY_RDZV"], MatchesRegex("unix:@gantry-[0-9]+-[0-9a-f]{16}"));
    EXPECT_THAT(got["GANTRY_RDZV_TOKEN"], MatchesRegex("[0-9a-f]{32}"));
    EXPECT_THAT(got["MASTER_PORT"], MatchesRegex("[0-9]+"));
    EXPECT_EQ(got["MASTER_PORT"], environment_of(0)["MASTER_PORT"]);
    EXPECT_EQ(got["GANTRY_SIM_DEVICES"], "4");
    EXPECT_EQ(got["NCCL_NVLS_ENABLE"], "0");
    EXPECT_EQ(got["OMP_NUM_THREADS"], "7");
    EXPECT_FALSE(got.contains("CUDA_VISIBLE_DEVICES"));
  }
}

TEST_F(LaunchEnvironmentTest, ExportedVariablesReachRanksAndThePlanner) {
  const Outcome outcome = run_command(act({"-x", "GREETING=a=b", "-x", "CUDA_VISIBLE_DEVICES=2",
                                           "-x", "OMP_NUM_THREADS=3", "--standalone"},
                                          {"write-environment", directory_}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: note: --standalone has no effect"));
  auto got = environment_of(0);
  EXPECT_EQ(got["GANTRY_WORLD_SIZE"], "1");
  EXPECT_EQ(got["GREETING"], "a=b");
  EXPECT_EQ(got["CUDA_VISIBLE_DEVICES"], "2");
  EXPECT_EQ(got["OMP_NUM_THREADS"], "3");
}

TEST_F(LaunchEnvironmentTest, GpusComeFromNvml) {
  const Outcome outcome =
      run_command(on_gpus(act({}, {"write-environment", directory_}), kTwoGpus));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  auto got = environment_of(1);
  EXPECT_EQ(got["GANTRY_WORLD_SIZE"], "2");
  EXPECT_EQ(got["GANTRY_DEVICE"], "1");
  EXPECT_EQ(got["GANTRY_DEVICE_UUID"], "GPU-bbbb");
  EXPECT_EQ(got["GANTRY_DEVICE_BUSID"], "0000:1b:00.0");
  EXPECT_EQ(got["CUDA_VISIBLE_DEVICES"], "GPU-aaaa,GPU-bbbb");
}

TEST_F(LaunchEnvironmentTest, VisibleDevicesChooseAndOrderTheGpus) {
  Command command = on_gpus(launch({"--dry-run", "--json", "app"}), kTwoGpus);
  command.environment["CUDA_VISIBLE_DEVICES"] = "1,0";
  auto plan = Json::parse(run_command(command).out);
  EXPECT_EQ(plan.at("devices"), "nvml");
  EXPECT_EQ(plan.at("ranks").at(0).at("device_uuid"), "GPU-bbbb");
  EXPECT_EQ(plan.at("ranks").at(0).at("environment").at("CUDA_VISIBLE_DEVICES"),
            "GPU-bbbb,GPU-aaaa");
  command.environment["CUDA_VISIBLE_DEVICES"] = "GPU-b";
  plan = Json::parse(run_command(command).out);
  EXPECT_EQ(plan.at("world_size"), 1);
}

TEST_F(LaunchEnvironmentTest, VisibleDevicesChooseAndOrderTheSimulatedDevices) {
  Command command = act({}, {"write-environment", directory_});
  command.environment["CUDA_VISIBLE_DEVICES"] = "2,0";
  const Outcome outcome = run_command(command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  auto got = environment_of(0);
  EXPECT_EQ(got["GANTRY_WORLD_SIZE"], "2");
  EXPECT_EQ(got["GANTRY_DEVICE"], "0");
  EXPECT_EQ(got["GANTRY_DEVICE_UUID"], "GPU-51a051a0-0000-4000-8000-000000000002");
  EXPECT_EQ(got["GANTRY_DEVICE_BUSID"], "0000:12:00.0");
  EXPECT_EQ(got["CUDA_VISIBLE_DEVICES"], "2,0");
  command = launch({"--dry-run", "--json", "app"});
  command.environment["CUDA_VISIBLE_DEVICES"] = got["GANTRY_DEVICE_UUID"];
  const auto plan = Json::parse(run_command(command).out);
  EXPECT_EQ(plan.at("devices"), "simulated");
  EXPECT_EQ(plan.at("world_size"), 1);
}

TEST_F(LaunchEnvironmentTest, ASimulatedDeviceThatIsNotThereIsAnError) {
  Command command = launch({"true"});
  command.environment["CUDA_VISIBLE_DEVICES"] = "0,9";
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: CUDA_VISIBLE_DEVICES=0,9: '9' shows no device ("));
  command.environment["CUDA_VISIBLE_DEVICES"] = "0,0";
  EXPECT_THAT(run_command(command).err, HasSubstr("a device is named twice"));
  command.environment["CUDA_VISIBLE_DEVICES"] = "";
  EXPECT_THAT(run_command(command).err,
              HasSubstr("no device is visible (CUDA_VISIBLE_DEVICES is '')"));
}

TEST_F(LaunchEnvironmentTest, ADeviceThatIsNotThereIsAnError) {
  Command command = on_gpus(launch({"true"}), kTwoGpus);
  command.environment["CUDA_VISIBLE_DEVICES"] = "0,7";
  Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: CUDA_VISIBLE_DEVICES=0,7: '7' shows no device ("));
  command.environment["CUDA_VISIBLE_DEVICES"] = "0,0";
  EXPECT_THAT(run_command(command).err, HasSubstr("a device is named twice"));
  command.environment["CUDA_VISIBLE_DEVICES"] = "";
  outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 125);
  EXPECT_THAT(outcome.err, HasSubstr("no device is visible (CUDA_VISIBLE_DEVICES is '')"));
  command.environment["CUDA_VISIBLE_DEVICES"] = std::nullopt;
  command.environment["CUDA_DEVICE_ORDER"] = "bogus";
  EXPECT_THAT(run_command(command).err, HasSubstr("but got 'bogus'"));
}

TEST_F(LaunchEnvironmentTest, NoDeviceNamesTheWayOut) {
  Command command = on_gpus(launch({"true"}), "");
  EXPECT_EQ(run_command(command).err,
            "glaunch: no device is visible (NVML shows no GPU); set GANTRY_SIM_DEVICES=N for N "
            "simulated devices, or use --cpu-only -n N\n");
  command.environment["FAKE_NVML_FAILS"] = "1";
  EXPECT_THAT(run_command(command).err, HasSubstr("NVML does not start: Driver Not Loaded"));
  command.environment["GANTRY_NVML_PATH"] = "/no/such/library.so";
  const Outcome absent = run_command(command);
  EXPECT_EQ(absent.exit_code, 125);
  EXPECT_THAT(absent.err,
              HasSubstr("(failed to load /no/such/library.so: No such file or directory)"));
  // A plan that cannot be made is 2.
  Command dry = on_gpus(launch({"--dry-run", "app"}), "");
  EXPECT_EQ(run_command(dry).exit_code, 2);
  command.environment["GANTRY_SIM_DEVICES"] = "many";
  EXPECT_THAT(run_command(command).err,
              HasSubstr("GANTRY_SIM_DEVICES: expected a whole number from 1 to 64"));
}

TEST_F(LaunchEnvironmentTest, MigInstancesAndForbiddenGpus) {
  const Outcome outcome =
      run_command(on_gpus(launch({"--dry-run", "--json", "app"}),
                          "forbidden,x,y;NVIDIA H200,GPU-aaaa,00000000:06:00.0,MIG-1,MIG-2"));
  const auto plan = Json::parse(outcome.out);
  EXPECT_EQ(plan.at("world_size"), 2);
  EXPECT_EQ(plan.at("ranks").at(1).at("environment").at("CUDA_VISIBLE_DEVICES"), "MIG-2");
  EXPECT_EQ(plan.at("ranks").at(1).at("environment").at("GANTRY_DEVICE"), "0");
  EXPECT_EQ(plan.at("warnings").at(0), "GPU 0 cannot be used: No Permission");
}

TEST_F(LaunchEnvironmentTest, InsideMpirunRanksAreGlaunchs) {
  if (run_command({.argv = {"sh", "-c", "command -v mpirun"}}).exit_code != 0) {
    GTEST_SKIP() << "mpirun is not installed";
  }
  Command command{.argv = {"mpirun", "-np", "1", "--oversubscribe", GANTRY_TEST_GLAUNCH, "-n", "2",
                           std::string(GANTRY_TEST_PROGRAM_DIR) + "/launch_actor",
                           "write-environment", directory_},
                  .environment = {{"GANTRY_SIM_DEVICES", "4"},
                                  {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                  {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}};
  const Outcome outcome = run_command(command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& [name, value] : environment_of(rank)) {
      EXPECT_THAT(name, Not(MatchesRegex("(PMIX_|PMI_|OMPI_COMM_WORLD_|OMPI_MCA_ess|OMPI_MCA_orte)"
                                         ".*")));
    }
    EXPECT_EQ(environment_of(rank)["GANTRY_RANK"], std::to_string(rank));
  }
}

TEST_F(LaunchEnvironmentTest, EnvPrintsEveryVariable) {
  const Outcome text = run_command(launch({"env"}));
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("  GANTRY_RDZV            address of the job's key/value store"));
  EXPECT_THAT(text.out, HasSubstr("GANTRY_SIM_DEVICES"));
  EXPECT_THAT(text.out, HasSubstr("(here: 4)"));
  Command secret = launch({"env"});
  secret.environment["GANTRY_RDZV_TOKEN"] = "do not tell";
  EXPECT_THAT(run_command(secret).out, ::testing::Not(HasSubstr("do not tell")));
  const auto json = Json::parse(run_command(launch({"env", "--json"})).out);
  EXPECT_EQ(json.at("variables").at(0).at("name"), "GANTRY_RANK");
}

}  // namespace
}  // namespace gantry::testing
