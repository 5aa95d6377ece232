#include "launcher/run/hosts/delegation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/core/error.hpp>

#include "core/text/json.hpp"
#include "launcher/run/job_line.hpp"
#include "launcher/shim/shim_command.hpp"

namespace gantry::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const Environment kAllocation{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "gpu[1-2]"}};

JobOptions options_for(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--", "app", "--flag"});
  return parse_job(arguments);
}

Delegation delegate(const std::vector<std::string>& arguments, const Environment& environment,
                    int ranks_per_host = 8) {
  const JobOptions options = options_for(arguments);
  return make_delegation(options, environment, job_hosts(options, environment), ranks_per_host,
                         "/bin/glaunch");
}

std::string line(const std::vector<std::string>& arguments, const Environment& environment,
                 int ranks_per_host = 8) {
  return shell_text(delegate(arguments, environment, ranks_per_host).command);
}

std::string error_of(const std::vector<std::string>& arguments, const Environment& environment) {
  try {
    (void)delegate(arguments, environment);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(DelegationTest, OneMachineNeedsNone) {
  EXPECT_THAT(job_hosts(options_for({}), {}), IsEmpty());
  EXPECT_THAT(job_hosts(options_for({"--hosts", "localhost:4"}), kAllocation), IsEmpty());
  EXPECT_THAT(job_hosts(options_for({}), {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "gpu1"}}),
              IsEmpty());
  // A task of a step is a rank already, or runs glaunch once a node.
  Environment task = kAllocation;
  task["SLURM_STEP_ID"] = "0";
  EXPECT_THAT(job_hosts(options_for({}), task), IsEmpty());
  for (const char* step : {"-5", "4294967291"}) {  // a batch script
    task["SLURM_STEP_ID"] = step;
    EXPECT_EQ(job_hosts(options_for({}), task).size(), 2U) << step;
  }
}

TEST(DelegationTest, BuildsTheLineOfMpirun) {
  EXPECT_EQ(
      line({"--hosts", "a:4,b:2", "-x", "MODE=fast"},
           {{"NCCL_DEBUG", "INFO"}, {"GANTRY_LOG", "info"}, {"GANTRY_RANK", "3"}, {"HOME", "/"}}),
      "mpirun -n 6 --host a:4,b:2 --map-by slot:OVERSUBSCRIBE --bind-to none --tag-output -x "
      "GANTRY_JOB_ID "
      "-x GANTRY_LOG -x GANTRY_RDZV -x GANTRY_RDZV_TOKEN -x GANTRY_RESTART -x "
      "GANTRY_SHIM_RANKS -x MASTER_ADDR -x MASTER_PORT -x MODE -x NCCL_DEBUG /bin/glaunch "
      "shim -- app --flag");
  // No secret on a command line that every user of the machine can read.
  EXPECT_THAT(line({"--hosts", "a:4,b:2"}, {{"GANTRY_RDZV_TOKEN", "a secret"}}),
              Not(HasSubstr("secret")));
  EXPECT_THAT(line({"--hosts", "a,b", "-n", "4", "--cpu-only", "--no-prefix"}, {}),
              ::testing::AllOf(HasSubstr("--host a:2,b:2 "), HasSubstr("shim --cpu-only -- app"),
                               Not(HasSubstr("--tag-output"))));
  EXPECT_THAT(line({"--hosts", "a,b", "--ranks-per-device", "2"}, {}, 16),
              ::testing::AllOf(HasSubstr("--host a:16,b:16 "),
                               HasSubstr("shim --ranks-per-device=2 -- app")));
}

TEST(DelegationTest, BuildsTheLineOfSrun) {
  EXPECT_EQ(line({}, kAllocation, 4),
            "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --distribution=block --export=ALL "
            "--kill-on-bad-exit=1 --quit-on-interrupt --cpu-bind=none --gpu-bind=none --input=0 "
            "--label /bin/glaunch shim -- app --flag");
  EXPECT_THAT(line({"--hosts", "gpu2:3,gpu1:3", "--stdin", "none"}, kAllocation),
              ::testing::AllOf(HasSubstr("--ntasks=6 --ntasks-per-node=3 "),
                               HasSubstr(" --nodelist=gpu2,gpu1 --input=none ")));
}

TEST(DelegationTest, RefusesContradictions) {
  const std::vector<std::string> hosts{"--hosts", "a:4,b:2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), hosts.begin(), hosts.end());
    return more;
  };
  EXPECT_EQ(error_of(with({"-n", "4"}), {}), "-n 4: the hosts have 6 ranks; leave one of both out");
  EXPECT_EQ(error_of({"--hosts", "a,b", "-n", "3"}, {}),
            "-n 3: expected a multiple of the 2 hosts, or a number for each: --hosts a:4,b:2");
  EXPECT_EQ(error_of(with({"--log-dir", "d"}), {}),
            "--log-dir: expected one machine, but got a job on several");
  EXPECT_THAT(error_of(with({"--only-rank", "1"}), {}), HasSubstr("--only-rank: expected one"));
  EXPECT_THAT(error_of(with({"--prefix", "x"}), {}), HasSubstr("--prefix: expected one"));
  EXPECT_THAT(error_of(with({"--keep-going"}), {}), HasSubstr("--keep-going: expected one"));
  EXPECT_EQ(error_of(hosts, kAllocation),
            "--hosts: expected equally many ranks on every node of a Slurm allocation, but got a:4 "
            "and b:2");
  EXPECT_THAT(error_of({"--hosts", "a:4096,b:4096"}, {}), HasSubstr("at most 4096 ranks"));
  EXPECT_THROW((void)options_for({"--hosts", "a", "--hostfile", "f"}), InvalidArgument);
}

TEST(DelegationTest, TheJobTravelsInTheEnvironment) {
  const Environment inherited{{"PMIX_RANK", "0"},       {"SLURM_PROCID", "0"},
                              {"GANTRY_RANK", "0"},     {"GANTRY_LOG", "info"},
                              {"PATH", "/bin"},         {"OMPI_MCA_plm_rsh_agent", "rsh"},
                              {"PRTE_LAUNCHED", "1"},   {"PRTE_MCA_plm_ssh_agent", "rsh"},
                              {"PRTE_MCA_ess", "env"},  {"OMPI_MCA_plm", "isolated"},
                              {"PRTE_MCA_plm", "slurm"}};
  EXPECT_EQ(delegation_environment(inherited, delegate({"--hosts", "127.0.0.1:4,localhost:2"}, {}),
                                   {"job", "tcp:127.0.0.1:9", "secret", "1234", 2}),
            (Environment{{"GANTRY_JOB_ID", "job"},
                         {"GANTRY_RDZV", "tcp:127.0.0.1:9"},
                         {"GANTRY_RDZV_TOKEN", "secret"},
                         {"GANTRY_RESTART", "2"},
                         {"GANTRY_SHIM_RANKS", "4,2"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", "1234"},
                         {"GANTRY_LOG", "info"},
                         {"PATH", "/bin"},
                         {"OMPI_MCA_plm_rsh_agent", "rsh"},
                         {"PRTE_MCA_plm", "slurm"},
                         {"PRTE_MCA_plm_ssh_agent", "rsh"}}));
  const Delegation here = delegate({"--hosts", "127.0.0.1:4,localhost:2"}, {});
  EXPECT_EQ(here.listen_address(), "tcp:127.0.0.1:0");
  EXPECT_EQ(here.rank_address("tcp:127.0.0.1:77"), "tcp:127.0.0.1:77");
  // Where ranks connect, and nowhere else.
  const Delegation others = delegate({"--hosts", "a:4,b:2"}, {});
  EXPECT_EQ(others.listen_address(), others.rank_address("tcp:127.0.0.1:0"));
  EXPECT_THAT(others.listen_address(), ::testing::Not(HasSubstr("0.0.0.0")));
  EXPECT_THAT(delegate({"--hosts", "a:4,b:2,c:1"}, {}).hosts_of({0, 3, 6}), ElementsAre("a", "c"));
}

TEST(DelegationTest, DryRunShowsTheLine) {
  const Delegation delegation = delegate({"--hosts", "a:4,b:2"}, {});
  EXPECT_THAT(describe_delegation(delegation, false),
              ::testing::AllOf(HasSubstr("6 ranks on 2 hosts, started by mpirun\na: 4 ranks\n"),
                               HasSubstr("\nmpirun -n 6 ")));
  const Json json = Json::parse(describe_delegation(delegation, true));
  EXPECT_EQ(json.at("world_size"), 6);
  EXPECT_EQ(json.at("hosts").at(1).at("host"), "b");
  EXPECT_EQ(json.at("launcher_command").at(0), "mpirun");
  EXPECT_EQ(shell_text({"a b", "", "it's", "x=1"}), "'a b' '' 'it'\\''s' x=1");
}

Machine machine_with(std::vector<std::string> uuids) {
  Machine machine;
  machine.host = "node";
  machine::Topology& topology = machine.inventory.machine;
  topology.allowed_cpus.offer(machine::CpuSet::parse("0-7"), machine::FactSource::system);
  topology.gpu_source = machine::FactSource::nvml;
  for (const std::string& uuid : uuids) {
    machine::Topology::Gpu gpu;
    gpu.name = "H200";
    gpu.uuid = gpu.bus_id = uuid;
    topology.gpus.push_back(gpu);
  }
  topology.links.assign(uuids.size(), std::vector<machine::Topology::Link>(uuids.size()));
  topology.nic_paths.resize(uuids.size());
  return machine;
}

ProcessIdentity task(int rank, int world, int local_rank, int local_size) {
  ProcessIdentity identity;
  identity.rank = rank;
  identity.world_size = world;
  identity.local_rank = local_rank;
  identity.local_size = local_size;
  return identity;
}

TEST(ShimTest, UnderAnotherLauncherOnlyTheDeviceIsChosen) {
  const Environment inherited{{"OMPI_COMM_WORLD_RANK", "5"}, {"PATH", "/bin"}};
  const ShimPlan plan =
      plan_shim({}, machine_with({"GPU-a", "GPU-b"}), task(5, 8, 1, 2), inherited);
  EXPECT_EQ(plan.environment, (Environment{{"OMPI_COMM_WORLD_RANK", "5"},
                                           {"PATH", "/bin"},
                                           {"GANTRY_DEVICE", "1"},
                                           {"GANTRY_DEVICE_UUID", "GPU-b"},
                                           {"GANTRY_DEVICE_BUSID", "GPU-b"},
                                           {"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"},
                                           {"OMP_NUM_THREADS", "4"}}));
  EXPECT_EQ(plan.rank.device, 1);
  EXPECT_THROW((void)plan_shim({}, machine_with({"GPU-a"}), task(5, 8, 1, 2), inherited),
               InvalidArgument);
}

TEST(ShimTest, TheCommandLineIsChecked) {
  const ShimOptions options =
      parse_shim({"--cpu-only", "--wrap", "nice", "--wrap-rank", "1=gdb", "--", "app", "--flag"});
  EXPECT_TRUE(options.placement.cpu_only);
  EXPECT_THAT(options.command, ElementsAre("app", "--flag"));
  ASSERT_EQ(options.placement.wrappers.size(), 2U);
  EXPECT_THAT(options.placement.wrappers[1].ranks, ElementsAre(1));
  EXPECT_THAT(parse_shim({"--help"}).help, HasSubstr("--wrap-rank"));
  for (const auto& [arguments, text] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "shim: no program to start"},
           {{"--cpu-onl", "app"}, "shim: unknown option '--cpu-onl' (did you mean '--cpu-only'?)"},
           {{"--gpus", "best:x", "app"}, "(to start a program called shim: glaunch -- shim)"}}) {
    try {
      (void)parse_shim(arguments);
      ADD_FAILURE() << "accepted: " << ::testing::PrintToString(arguments);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
}

TEST(ShimTest, UnderGlaunchTheIdentityIsSet) {
  const Environment inherited{
      {"GANTRY_JOB_ID", "job"}, {"GANTRY_RDZV", "tcp:h:1"},     {"GANTRY_RDZV_TOKEN", "secret"},
      {"GANTRY_RESTART", "1"},  {"GANTRY_SHIM_RANKS", "4,2,2"}, {"MASTER_ADDR", "a"},
      {"MASTER_PORT", "2"},     {"OMP_NUM_THREADS", "3"}};
  PlacementOptions options;
  options.cpu_only = true;
  const ShimPlan plan = plan_shim(options, machine_with({}), task(5, 8, 1, 2), inherited);
  EXPECT_EQ(plan.environment, (Environment{{"GANTRY_RANK", "5"},
                                           {"GANTRY_WORLD_SIZE", "8"},
                                           {"GANTRY_LOCAL_RANK", "1"},
                                           {"GANTRY_LOCAL_SIZE", "2"},
                                           {"GANTRY_NODE_RANK", "1"},
                                           {"GANTRY_NODE_COUNT", "3"},
                                           {"GANTRY_JOB_ID", "job"},
                                           {"GANTRY_RDZV", "tcp:h:1"},
                                           {"GANTRY_RDZV_TOKEN", "secret"},
                                           {"GANTRY_RESTART", "1"},
                                           {"RANK", "5"},
                                           {"WORLD_SIZE", "8"},
                                           {"LOCAL_RANK", "1"},
                                           {"LOCAL_WORLD_SIZE", "2"},
                                           {"MASTER_ADDR", "a"},
                                           {"MASTER_PORT", "2"},
                                           {"OMP_NUM_THREADS", "3"}}));
}

TEST(ShimTest, ADeviceThatTheSchedulerChoseStays) {
  const Environment inherited{{"CUDA_VISIBLE_DEVICES", "3"}};
  const ShimPlan plan = plan_shim({}, machine_with({"GPU-d"}), task(3, 4, 3, 4), inherited);
  EXPECT_EQ(plan.environment.at("GANTRY_DEVICE"), "0");
  EXPECT_EQ(plan.environment.at("CUDA_VISIBLE_DEVICES"), "GPU-d");
  EXPECT_EQ(plan.environment.at("OMP_NUM_THREADS"), "2");
}

}  // namespace
}  // namespace gantry::launcher
