#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/core/error.hpp>

#include "core/text/json.hpp"
#include "launcher/command/rank_list.hpp"
#include "launcher/dump/dump_command.hpp"
#include "launcher/env/env_command.hpp"
#include "launcher/run/failures/report.hpp"
#include "launcher/run/job_line.hpp"
#include "launcher/run/output/output.hpp"
#include "launcher/run/plan/plan.hpp"
#include "launcher/topo/topo_command.hpp"
#include "tests/launcher/launch_fixture.hpp"

namespace gantry::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::read_file;

JobOptions options_for(std::vector<std::string> arguments) {
  arguments.push_back("app");
  return parse_job(std::move(arguments));
}

Machine simulated(int devices, int cpus = 8) {
  Machine machine;
  machine.host = "node";
  machine::Topology& topology = machine.inventory.machine;
  std::vector<int> numbers;
  for (int cpu = 0; cpu < cpus; ++cpu) numbers.push_back(cpu);
  topology.allowed_cpus.offer(machine::CpuSet(numbers), machine::FactSource::system);
  topology.gpus.resize(static_cast<std::size_t>(devices));
  for (machine::Topology::Gpu& gpu : topology.gpus) gpu.name = "Simulated GPU";
  topology.gpu_source = machine::FactSource::simulated;
  topology.links.assign(topology.gpus.size(),
                        std::vector<machine::Topology::Link>(topology.gpus.size()));
  topology.nic_paths.resize(topology.gpus.size());
  machine.inventory.why_none = "reason";
  return machine;
}

Machine gpus(const std::vector<std::string>& uuids) {
  Machine machine = simulated(static_cast<int>(uuids.size()));
  machine::Topology& topology = machine.inventory.machine;
  topology.gpu_source = machine::FactSource::nvml;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    topology.gpus[i].name = "NVIDIA H200";
    topology.gpus[i].uuid = uuids[i];
    topology.gpus[i].bus_id = "0000:0" + std::to_string(i + 6) + ":00.0";
  }
  return machine;
}

// Two NUMA nodes with `cores` cores each, and two GPUs at each of them.
Machine two_nodes(int cores) {
  Machine machine = gpus({"GPU-a", "GPU-b", "GPU-c", "GPU-d"});
  machine::Topology& topology = machine.inventory.machine;
  topology.allowed_cpus = {};
  for (int node = 0; node < 2; ++node) {
    machine::Topology::NumaNode entry;
    entry.id = node;
    for (int core = node * cores; core < (node + 1) * cores; ++core) {
      entry.cpus = entry.cpus | machine::CpuSet{core};
      topology.cores.push_back({machine::CpuSet{core}, node, node, node});
    }
    for (std::size_t gpu = 0; gpu < 2; ++gpu) {
      const auto at = static_cast<std::size_t>(2 * node) + gpu;
      topology.gpus[at].node.offer(node, machine::FactSource::hwloc);
      topology.gpus[at].cpus.offer(entry.cpus, machine::FactSource::hwloc);
    }
    topology.nodes.push_back(std::move(entry));
  }
  return machine;
}

std::vector<int> devices_of(const Plan& plan) {
  std::vector<int> devices;
  for (const RankPlan& rank : plan.ranks) devices.push_back(rank.device.value_or(-1));
  return devices;
}

std::string plan_error(std::vector<std::string> arguments, const Machine& machine) {
  try {
    (void)make_plan(options_for(std::move(arguments)), machine, {});
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(LaunchPlanTest, OneRankPerDevice) {
  EXPECT_THAT(devices_of(make_plan(options_for({}), simulated(4), {})), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(devices_of(make_plan(options_for({"-n", "2"}), simulated(4), {})), ElementsAre(0, 1));
}

TEST(LaunchPlanTest, SharingIsExplicitAndEven) {
  EXPECT_THAT(devices_of(make_plan(options_for({"--ranks-per-device", "2"}), simulated(2), {})),
              ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(
      devices_of(make_plan(options_for({"--ranks-per-gpu", "2", "-n", "3"}), simulated(2), {})),
      ElementsAre(0, 1, 0));
  EXPECT_THAT(devices_of(make_plan(options_for({"--cpu-only", "-n", "2"}), simulated(0), {})),
              ElementsAre(-1, -1));
}

TEST(LaunchPlanTest, ErrorsSayWhatToDo) {
  EXPECT_EQ(plan_error({}, simulated(0)),
            "no device is visible (reason); set GANTRY_SIM_DEVICES=N for N simulated devices, or "
            "use --cpu-only -n N");
  EXPECT_EQ(plan_error({"-n", "5"}, simulated(2)),
            "-n 5: only 2 devices are visible; ranks share devices only with --ranks-per-device 3, "
            "or use --cpu-only");
  EXPECT_EQ(plan_error({"-n", "5", "--ranks-per-device", "2"}, simulated(2)),
            "-n 5: 2 devices with --ranks-per-device 2 hold at most 4 ranks");
  EXPECT_EQ(plan_error({"--ranks-per-device", "4096"}, simulated(2)),
            "--ranks-per-device 4096: 2 devices would get 8192 ranks; a job has at most 4096");
  EXPECT_EQ(plan_error({"-n", "3", "--gpus", "best:2"}, simulated(4)),
            "-n 3: only 2 devices are chosen; ranks share devices only with --ranks-per-device 2, "
            "or use --cpu-only");
  EXPECT_EQ(plan_error({"--gpus", "0,4"}, simulated(4)),
            "--gpus: '4' is no visible GPU; GPUs 0 to 3 are visible");
  EXPECT_EQ(plan_error({"--only-rank", "2"}, simulated(2)),
            "--only-rank 2: the job has ranks 0 to 1");
}

TEST(LaunchPlanTest, ThreadsAreTheRanksShareOfTheCores) {
  EXPECT_EQ(make_plan(options_for({}), simulated(4, 8), {}).ranks[0].omp_threads, 2);
  EXPECT_EQ(make_plan(options_for({}), simulated(4, 3), {}).ranks[0].omp_threads, 1);
  EXPECT_EQ(
      make_plan(options_for({}), simulated(4, 8), {{"OMP_NUM_THREADS", "5"}}).ranks[0].omp_threads,
      std::nullopt);
}

TEST(LaunchPlanTest, EveryRankSeesEveryGpu) {
  const Plan plan = make_plan(options_for({"-n", "2"}), gpus({"GPU-a", "GPU-b", "GPU-c"}), {});
  for (const RankPlan& rank : plan.ranks) EXPECT_EQ(rank.visible_devices, "GPU-a,GPU-b,GPU-c");
  EXPECT_EQ(plan.ranks[1].device, 1);
  EXPECT_EQ(plan.ranks[1].device_uuid, "GPU-b");
  EXPECT_EQ(plan.ranks[1].device_bus_id, "0000:07:00.0");
}

TEST(LaunchPlanTest, AMigInstanceIsSeenByItsRankAlone) {
  const Plan plan = make_plan(options_for({}), gpus({"MIG-a", "MIG-b"}), {});
  EXPECT_THAT(devices_of(plan), ElementsAre(0, 0));
  EXPECT_EQ(plan.ranks[1].visible_devices, "MIG-b");
}

TEST(LaunchPlanTest, WholeGpusAreSeenWithoutTheMigInstancesBesideThem) {
  const Plan plan = make_plan(options_for({}), gpus({"MIG-x", "GPU-b", "MIG-y", "GPU-c"}), {});
  EXPECT_THAT(devices_of(plan), ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(plan.ranks[0].visible_devices, "MIG-x");
  EXPECT_EQ(plan.ranks[1].visible_devices, "GPU-b,GPU-c");
  EXPECT_EQ(plan.ranks[2].visible_devices, "MIG-y");
  EXPECT_EQ(plan.ranks[3].visible_devices, "GPU-b,GPU-c");
}

TEST(LaunchPlanTest, ChosenGpusAreSeenInTheOrderOfTheRanks) {
  const Plan plan =
      make_plan(options_for({"--gpus", "2,0"}), gpus({"GPU-a", "GPU-b", "GPU-c"}), {});
  EXPECT_THAT(devices_of(plan), ElementsAre(0, 1));
  EXPECT_EQ(plan.ranks[0].visible_devices, "GPU-c,GPU-a");
  EXPECT_EQ(plan.ranks[0].device_uuid, "GPU-c");
  EXPECT_EQ(plan.ranks[1].visible_devices, "GPU-c,GPU-a");
}

TEST(LaunchPlanTest, RanksAreBoundNearTheirGpus) {
  const Plan plan = make_plan(options_for({}), two_nodes(4), {});
  EXPECT_EQ(plan.ranks[1].cpus->str(), "0-3");
  EXPECT_EQ(plan.ranks[1].memory_node, 0);
  EXPECT_EQ(plan.ranks[2].cpus->str(), "4-7");
  EXPECT_EQ(plan.ranks[2].memory_node, 1);
  EXPECT_EQ(plan.ranks[2].omp_threads, 2);
  EXPECT_EQ(make_plan(options_for({"--bind", "none"}), two_nodes(4), {}).ranks[0].cpus,
            std::nullopt);
  EXPECT_EQ(make_plan(options_for({"--bind", "core"}), two_nodes(4), {}).ranks[3].cpus->str(),
            "6-7");
}

TEST(LaunchPlanTest, AMachineOfAFileIsForDryRunsOnly) {
  Machine machine = gpus({"GPU-a", "GPU-b"});
  machine.inventory.machine.gpu_source = machine::FactSource::file;
  EXPECT_THAT(plan_error({}, machine), HasSubstr("no device is visible (reason)"));
  EXPECT_EQ(make_plan(options_for({"--dry-run"}), machine, {}).source, "file");
}

TEST(LaunchPlanTest, TheEnvironmentIsExactlyTheContract) {
  const Plan plan = make_plan(options_for({}), two_nodes(4), {});
  const JobValues values{"job", "unix:@there", "secret", "9", "/tmp/x/rank", "1234"};
  EXPECT_EQ(rank_variables_of(plan, plan.ranks[1], values),
            (Environment{{"GANTRY_RANK", "1"},
                         {"GANTRY_WORLD_SIZE", "4"},
                         {"GANTRY_LOCAL_RANK", "1"},
                         {"GANTRY_LOCAL_SIZE", "4"},
                         {"GANTRY_NODE_RANK", "0"},
                         {"GANTRY_NODE_COUNT", "1"},
                         {"GANTRY_DEVICE", "1"},
                         {"GANTRY_DEVICE_UUID", "GPU-b"},
                         {"GANTRY_DEVICE_BUSID", "0000:07:00.0"},
                         {"GANTRY_JOB_ID", "job"},
                         {"GANTRY_RDZV", "unix:@there"},
                         {"GANTRY_RDZV_TOKEN", "secret"},
                         {"GANTRY_LIFELINE_FD", "9"},
                         {"GANTRY_RESTART", "0"},
                         {"GANTRY_ERROR_FILE", "/tmp/x/rank1.error"},
                         {"RANK", "1"},
                         {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", "1234"},
                         {"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d"},
                         {"GANTRY_CPUS", "0-3"},
                         {"GANTRY_NUMA", "0"},
                         {"OMP_NUM_THREADS", "2"}}));
  // Every variable that is set is documented, and the other way round.
  std::vector<std::string> documented;
  for (const RankVariable& variable : rank_variables()) documented.emplace_back(variable.name);
  std::vector<std::string> set;
  Plan elastic = plan;
  elastic.elastic = ElasticRange{2, 4};
  for (const auto& [name, value] : rank_variables_of(elastic, elastic.ranks[1], values)) {
    set.push_back(name);
  }
  EXPECT_THAT(documented, ::testing::UnorderedElementsAreArray(set));
}

TEST(LaunchPlanTest, AnotherLaunchersIdentityIsNotInherited) {
  const Environment inherited{{"PMIX_RANK", "0"},
                              {"PMIX_NAMESPACE", "x"},
                              {"PMI_RANK", "0"},
                              {"PMI_FD", "3"},
                              {"OMPI_COMM_WORLD_RANK", "0"},
                              {"OMPI_MCA_ess_base_jobid", "1"},
                              {"OMPI_MCA_orte_num_nodes", "1"},
                              {"MPI_LOCALRANKID", "0"},
                              {"MPI_LOCALNRANKS", "1"},
                              {"MV2_COMM_WORLD_RANK", "0"},
                              {"SLURM_PROCID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "2"},
                              {"TORCHELASTIC_RUN_ID", "r"},
                              {"GANTRY_DEVICE_UUID", "GPU-of-an-outer-job"},
                              {"GANTRY_RANK", "3"},
                              {"NCCL_NVLS_ENABLE", "0"},
                              {"NCCL_DEBUG", "INFO"},
                              {"OMPI_MCA_btl", "self"},
                              {"SLURM_JOB_ID", "7"},
                              {"CUDA_VISIBLE_DEVICES", "5"},
                              {"GANTRY_LOG", "info"},
                              {"OMP_NUM_THREADS", "3"},
                              {"PATH", "/bin"}};
  const Plan plan = make_plan(options_for({"--cpu-only", "-n", "1"}), simulated(0), inherited);
  Environment got =
      rank_environment(inherited, plan, plan.ranks[0], {"j", "r", "t", "1", "e", "2"});
  for (const auto& [name, value] :
       rank_variables_of(plan, plan.ranks[0], {"j", "r", "t", "1", "e", "2"})) {
    EXPECT_EQ(got[name], value) << name;
    got.erase(name);
  }
  EXPECT_EQ(got, (Environment{{"NCCL_NVLS_ENABLE", "0"},
                              {"NCCL_DEBUG", "INFO"},
                              {"OMPI_MCA_btl", "self"},
                              {"SLURM_JOB_ID", "7"},
                              {"CUDA_VISIBLE_DEVICES", "5"},
                              {"GANTRY_LOG", "info"},
                              {"OMP_NUM_THREADS", "3"},
                              {"PATH", "/bin"}}));
}

TEST(LaunchPlanTest, DryRunJsonEqualsTheGoldenFile) {
  const Environment environment{{"PMIX_RANK", "0"}, {"PATH", "/bin"}};
  const JobOptions options = parse_job({"-n", "2", "--", "app", "--flag", "a b"});
  Machine machine = two_nodes(4);
  machine.inventory.warnings.emplace_back("something");
  const Plan plan = make_plan(options, machine, environment);
  EXPECT_EQ(describe_plan(plan, environment, true),
            read_file(GANTRY_TEST_DATA_DIR "/dry_run.json"));
  EXPECT_EQ(describe_plan(plan, environment, false),
            "2 ranks on node, devices: nvml\n"
            "command: app --flag a b\n"
            "GPUs 0,1,2,3: all 4 visible\n"
            "order: by PCI bus id\n"
            "binding auto: 2 of 2 ranks bound to CPUs and memory near their GPUs\n"
            "threads: 2 a rank, of 8 cores that may be used\n"
            "rank 0    cuda:0  GPU-a  0000:06:00.0  cpus 0-3  memory 0\n"
            "          near GPU 0 (NUMA node 0 by hwloc), 4 cores for 2 ranks\n"
            "rank 1    cuda:1  GPU-b  0000:07:00.0  cpus 0-3  memory 0\n"
            "          near GPU 1 (NUMA node 0 by hwloc), 4 cores for 2 ranks\n"
            "OMP_NUM_THREADS=2\n"
            "not inherited: PMIX_RANK\n"
            "warning: something\n");
}

TEST(LaunchPlanTest, JsonTakesAnyBytes) {
  const JobOptions options = parse_job({"-n", "1", "--cpu-only", "--", "caf\xe9"});
  const auto plan =
      Json::parse(describe_plan(make_plan(options, simulated(0), {}), {{"PMIX_\xff", "0"}}, true));
  EXPECT_EQ(plan.at("command").at(0), "caf\ufffd");
  EXPECT_EQ(plan.at("unset").at(0), "PMIX_\ufffd");
  const auto variables = Json::parse(describe_environment({{"GANTRY_RANK", "\xff"}}, true));
  EXPECT_EQ(variables.at("variables").at(0).at("value"), "\ufffd");
}

TEST(LaunchOptionsTest, TheProgramsArgumentsAreItsOwn) {
  const JobOptions options = parse_job({"-n", "3", "app", "-n", "7", "--", "--dry-run"});
  EXPECT_EQ(options.placement.ranks, 3);
  EXPECT_FALSE(options.dry_run);
  EXPECT_THAT(options.command, ElementsAre("app", "-n", "7", "--", "--dry-run"));
  EXPECT_THAT(parse_job({"--", "--odd"}).command, ElementsAre("--odd"));
  EXPECT_THAT(parse_job({"--", "env"}).command, ElementsAre("env"));
  EXPECT_THAT(parse_job({"env", "A=1", "app"}).command, ElementsAre("env", "A=1", "app"));
  EXPECT_TRUE(kEnvCommand.takes({}));
  EXPECT_TRUE(kEnvCommand.takes({"--json"}));
  EXPECT_FALSE(kEnvCommand.takes({"A=1", "app"}));
}

TEST(LaunchOptionsTest, ReadsEveryOption) {
  const JobOptions options = parse_job({"--ranks-per-device",
                                        "2",
                                        "--prefix",
                                        "p",
                                        "--only-rank",
                                        "1",
                                        "--log-dir",
                                        "d",
                                        "--tail",
                                        "3",
                                        "--stdin",
                                        "none",
                                        "--grace",
                                        "2m",
                                        "--timeout",
                                        "90",
                                        "--forward",
                                        "USR1,SIGUSR2",
                                        "--keep-going",
                                        "--report",
                                        "f",
                                        "--dry-run",
                                        "--json",
                                        "app"});
  EXPECT_EQ(options.placement.ranks_per_device, 2);
  EXPECT_EQ(options.output.prefix, "p");
  EXPECT_EQ(options.output.only_rank, 1);
  EXPECT_EQ(options.output.log_dir, "d");
  EXPECT_EQ(options.output.tail, 3);
  EXPECT_EQ(options.output.stdin_mode, StdinMode::none);
  EXPECT_EQ(options.failure.grace, std::chrono::minutes(2));
  EXPECT_EQ(options.failure.timeout, std::chrono::seconds(90));
  EXPECT_THAT(options.failure.forward, ElementsAre(SIGUSR1, SIGUSR2));
  EXPECT_TRUE(options.failure.keep_going);
  EXPECT_EQ(options.failure.report, "f");
  EXPECT_TRUE(options.dry_run);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(parse_job({"--no-prefix", "app"}).output.prefix, std::nullopt);
}

TEST(LaunchOptionsTest, AcceptsTheHabitsOfOtherLaunchers) {
  for (const std::vector<std::string>& spelling : {std::vector<std::string>{"-np", "4"},
                                                   {"--np", "4"},
                                                   {"--nproc-per-node=4"},
                                                   {"--nproc_per_node", "4"},
                                                   {"-n4"}}) {
    std::vector<std::string> arguments = spelling;
    arguments.insert(arguments.end(), {"app", "-np", "7"});
    const JobOptions options = parse_job(arguments);
    EXPECT_EQ(options.placement.ranks, 4) << spelling.front();
    EXPECT_THAT(options.command, ElementsAre("app", "-np", "7"));
    EXPECT_THAT(options.notes, ::testing::IsEmpty());
  }
  EXPECT_THAT(parse_job({"--standalone", "app"}).notes,
              ElementsAre("--standalone has no effect: glaunch always serves its own rendezvous"));
}

TEST(LaunchOptionsTest, VariablesAreExported) {
  const JobOptions options = parse_job(
      {"-x", "A=b=c", "-x", "PATH", "-x", "CUDA_VISIBLE_DEVICES=1", "-x", "GANTRY_NO_SUCH", "app"});
  ASSERT_EQ(options.exports.size(), 2U);
  EXPECT_EQ(options.exports[0].name + "|" + options.exports[0].value, "A|b=c");
  EXPECT_EQ(options.exports[1].name, "CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(options.notes,
              ElementsAre("-x GANTRY_NO_SUCH: GANTRY_NO_SUCH is not set, so ranks do not get it"));
}

TEST(LaunchOptionsTest, ReadsThePlacement) {
  const JobOptions options = parse_job(
      {"--gpus", "idle:2", "--order", "ring", "--bind", "0-3:4-7", "--topo-file", "f", "app"});
  EXPECT_EQ(options.placement.choice.gpus, machine::GpuChoice::idle);
  EXPECT_EQ(options.placement.choice.gpu_count, 2);
  EXPECT_EQ(options.placement.choice.order, machine::RankOrder::ring);
  EXPECT_EQ(options.placement.choice.bind, machine::BindMode::listed);
  EXPECT_EQ(options.placement.choice.cpu_lists.at(1).str(), "4-7");
  EXPECT_EQ(options.placement.topo_file, "f");
}

TEST(LaunchOptionsTest, MalformedOptionsAreErrors) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{}, "no program to start (see glaunch --help)"},
      {{"--bogus", "app"}, "unknown option '--bogus'"},
      {{"--log-dri", "d", "app"}, "unknown option '--log-dri' (did you mean '--log-dir'?)"},
      {{"--nproc", "2", "app"}, "unknown option '--nproc' (did you mean '--nproc-per-node'?)"},
      {{"-z", "app"}, "unknown option '-z'"},
      {{"-x", "=B", "app"}, "-x: expected NAME=VALUE or NAME, but got '=B'"},
      {{"-x", "WORLD_SIZE=3", "app"},
       "-x: expected a variable that glaunch does not set itself, but got 'WORLD_SIZE'"},
      {{"-np", "2", "-n", "2", "app"}, "--ranks: At Most 1 required but received 2"},
      {{"-n", "3", "--hosts", "a:2", "app"}, "-n 3 and 2 ranks on a contradict each other"},
      {{"--color", "red", "app"}, "red not in {auto,always,never}"},
      {{"-n", "0", "app"}, "expected a whole number from 1 to 4096, but got '0'"},
      {{"-n", "-3", "app"}, "from 1 to 4096, but got '-3'"},
      {{"-n", "two", "app"}, "two"},
      {{"-n"}, "--ranks: 1 required"},
      {{"-n", "1", "-n", "2", "app"}, "--ranks: At Most 1 required but received 2"},
      {{"--grace", "soon", "app"},
       "--grace: expected a duration such as 300ms, 15s, 2m or 1h, but got 'soon'"},
      {{"--grace", "-1s", "app"}, "but got '-1s'"},
      {{"--forward", "", "app"}, "--forward: expected signals such as USR1,USR2, but got ''"},
      {{"--log-dir", "", "app"}, "--log-dir: expected a directory, but got ''"},
      {{"--grace", "99999999999h", "app"}, "but got '99999999999h'"},
      {{"--timeout", "0", "app"}, "--timeout: expected more than 0"},
      {{"--forward", "USR1,NOPE", "app"},
       "--forward: expected signals such as USR1,USR2, but got 'NOPE'"},
      {{"--forward", "KILL", "app"}, "but got 'KILL' (glaunch handles that one itself)"},
      {{"--stdin", "all", "app"}, "all not in {rank0,none}"},
      {{"--cpu-only", "app"}, "--cpu-only needs -n: there are no devices to count"},
      {{"--cpu-only", "-n", "1", "--ranks-per-device", "2", "app"}, "contradict each other"},
      {{"--prefix", "x", "--no-prefix", "app"}, "contradict each other"},
      {{"--json", "app"}, "--json needs --dry-run"},
      {{"--gpus", "best:x", "app"}, "--gpus best:N: expected a whole number"},
      {{"--order", "best", "app"}, "--order: expected pci, ring or given, but got 'best'"},
      {{"--bind", "socket", "app"}, "--bind: expected auto, numa, core, none or CPUs of each rank"},
      {{"--cpu-only", "-n", "1", "--gpus", "0", "app"},
       "--cpu-only and --gpus contradict each other"},
      {{"--cpu-only", "-n", "1", "--order", "pci", "app"},
       "--cpu-only and --order contradict each other"},
      {{"--tail", "-1", "app"}, "from 0 to 100000, but got '-1'"},
  };
  for (const auto& [arguments, text] : cases) {
    try {
      (void)parse_job(arguments);
      ADD_FAILURE() << "accepted: " << ::testing::PrintToString(arguments);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
}

TEST(LaunchOptionsTest, HelpAndVersionAreInformation) {
  const std::vector<ProgramDescription> commands{kDumpCommand.describe(), kTopoCommand.describe()};
  const std::string help = parse_job({"--help"}, commands).help;
  const std::string all = parse_job({"--help-all"}, commands).help;
  for (const std::string& text : {help, all}) {
    EXPECT_THAT(text, HasSubstr("Usage: glaunch [options] [--] program [arguments…]"));
    for (const char* name : {"-n, --ranks", "-x NAME", "--hosts", "--gpus", "--bind", "--dry-run",
                             "--log-dir", "--timeout", "--elastic", "--max-restarts", "--help-all",
                             "--version", "glaunch dump", "glaunch topo"}) {
      EXPECT_THAT(text, HasSubstr(name));
    }
  }
  // One screen of a terminal with 24 lines.
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 20);
  EXPECT_THAT(help, ::testing::Not(HasSubstr("--only-rank")));
  for (const char* text : {"\nRanks:\n", "\nPlacement:\n", "\nOutput:\n", "\nFailure:\n",
                           "--only-rank", "Exit code:"}) {
    EXPECT_THAT(all, HasSubstr(text));
  }
  EXPECT_THAT(parse_job({"--version"}).help, ::testing::MatchesRegex("glaunch [0-9.]+\n"));
}

TEST(LaunchOptionsTest, PrefixFieldsAreFilledIn) {
  RankPlan rank;
  rank.rank = 12;
  rank.local_rank = 3;
  EXPECT_EQ(expand_prefix("{host}:{rank:>3}/{local_rank}| ", rank, "node"), "node: 12/3| ");
  EXPECT_EQ(expand_prefix("{{}}", rank, "node"), "{}");
  EXPECT_THROW((void)expand_prefix("{nobody}", rank, "node"), InvalidArgument);
  EXPECT_THROW((void)expand_prefix("{rank", rank, "node"), InvalidArgument);
}

TEST(LaunchReportTest, ListsRanksAsRanges) {
  EXPECT_EQ(rank_list({0, 1, 2, 5}), "0-2, 5");
  EXPECT_EQ(rank_list({0, 1}), "0, 1");
  EXPECT_EQ(rank_list({7}), "7");
  EXPECT_EQ(rank_list({1, 3, 4, 5, 6}), "1, 3-6");
}

}  // namespace
}  // namespace gantry::launcher
