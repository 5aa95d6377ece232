#include <gantry/job/process_identity.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

using Environment = std::map<std::string, std::string>;
using testing::HasSubstr;

ProcessIdentity detect(const Environment& environment) {
  return detect_process_identity([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

std::string error_text(const Environment& environment) {
  try {
    (void)detect(environment);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

Environment operator+(Environment a, const Environment& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

const std::string kOwnFolder = "unix:/dev/shm/gantry-" + std::to_string(geteuid()) + "/";

const Environment kGlaunch{{"GANTRY_RANK", "5"},       {"GANTRY_WORLD_SIZE", "8"},
                           {"GANTRY_LOCAL_RANK", "1"}, {"GANTRY_LOCAL_SIZE", "4"},
                           {"GANTRY_NODE_RANK", "1"},  {"GANTRY_NODE_COUNT", "2"},
                           {"GANTRY_JOB_ID", "job"},   {"GANTRY_RDZV", "unix:@there"}};
const Environment kTorchrun{{"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "3"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"GROUP_RANK", "0"},
                            {"GROUP_WORLD_SIZE", "1"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "run"}};
const Environment kTorchrunTwoNodes = kTorchrun + Environment{{"LOCAL_RANK", "1"},
                                                              {"LOCAL_WORLD_SIZE", "2"},
                                                              {"GROUP_RANK", "1"},
                                                              {"GROUP_WORLD_SIZE", "2"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                           {"PMIX_NAMESPACE", "123.1"},
                           {"PMIX_RANK", "1"}};
const Environment kHydra{
    {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}};
const Environment kCray{
    {"PMI_RANK", "6"}, {"PMI_SIZE", "8"}, {"PMI_LOCAL_RANK", "2"}, {"PMI_LOCAL_SIZE", "4"}};
const Environment kMvapich{{"MV2_COMM_WORLD_RANK", "0"},
                           {"MV2_COMM_WORLD_SIZE", "2"},
                           {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                           {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}};
const Environment kSlurm{{"SLURM_JOB_ID", "77"},        {"SLURM_STEP_ID", "3"},
                         {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "1"},
                         {"SLURM_PROCID", "2"},         {"SLURM_LOCALID", "2"},
                         {"SLURM_NODEID", "0"}};
const Environment kSlurmThreeNodes = kSlurm + Environment{{"SLURM_STEP_NUM_TASKS", "11"},
                                                          {"SLURM_STEP_NUM_NODES", "3"},
                                                          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                                                          {"SLURM_STEP_NODELIST", "gpu[003-005]"},
                                                          {"SLURM_PROCID", "9"},
                                                          {"SLURM_LOCALID", "1"},
                                                          {"SLURM_NODEID", "2"}};

struct Case {
  const char* name;
  Environment environment;
  std::string source;
  std::vector<int> numbers;  // rank, world, local rank, local size, node rank, node count
  std::string job_id;
  std::string rendezvous;
  bool serves = false;
};

class ProcessIdentityTest : public testing::TestWithParam<Case> {};

TEST_P(ProcessIdentityTest, ReadsTheLaunchersVariables) {
  const Case& expected = GetParam();
  const ProcessIdentity got = detect(expected.environment);
  EXPECT_EQ(got.source, expected.source);
  EXPECT_EQ((std::vector<int>{got.rank, got.world_size, got.local_rank, got.local_size,
                              got.node_rank, got.node_count}),
            expected.numbers);
  EXPECT_EQ(got.job_id, expected.job_id);
  EXPECT_EQ(got.rendezvous, expected.rendezvous);
  EXPECT_EQ(got.serves_rendezvous(), expected.serves);
  EXPECT_EQ(got.rendezvous_token, "");
  const Environment secret{{"GANTRY_RDZV_TOKEN", "a secret"}};
  EXPECT_EQ(detect(expected.environment + secret).rendezvous_token, "a secret");
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, ProcessIdentityTest,
    testing::Values(
        Case{"Nothing", {}, "single", {0, 1, 0, 1, 0, 1}, "", ""},
        Case{"Glaunch", kGlaunch, "glaunch", {5, 8, 1, 4, 1, 2}, "job", "unix:@there"},
        Case{"GlaunchRankZeroDoesNotServe",
             {{"GANTRY_RANK", "0"},
              {"GANTRY_WORLD_SIZE", "2"},
              {"GANTRY_JOB_ID", "job"},
              {"GANTRY_RDZV", "unix:@there"}},
             "glaunch",
             {0, 2, 0, 2, 0, 1},
             "job",
             "unix:@there"},
        Case{"ByHandRankZeroServes",
             {{"GANTRY_RANK", "0"}, {"GANTRY_WORLD_SIZE", "2"}, {"GANTRY_RDZV", "unix:@there"}},
             "environment",
             {0, 2, 0, 2, 0, 1},
             "environment",
             "unix:@there",
             true},
        Case{"ByHandWithTorchsAddress",
             {{"GANTRY_RANK", "1"},
              {"GANTRY_WORLD_SIZE", "2"},
              {"MASTER_ADDR", "10.0.0.1"},
              {"MASTER_PORT", "29500"}},
             "environment",
             {1, 2, 1, 2, 0, 1},
             "environment-29500",
             kOwnFolder + "job-environment-29500"},
        Case{"ByHandWithoutAnAddress",
             {{"GANTRY_RANK", "1"}, {"GANTRY_WORLD_SIZE", "2"}},
             "environment",
             {1, 2, 1, 2, 0, 1},
             "environment",
             ""},
        Case{"GlaunchOverTorchNames",
             kGlaunch + Environment{{"RANK", "5"}, {"WORLD_SIZE", "8"}},
             "glaunch",
             {5, 8, 1, 4, 1, 2},
             "job",
             "unix:@there"},
        Case{"Torchrun",
             kTorchrun,
             "torchrun",
             {3, 4, 3, 4, 0, 1},
             "run-29500",
             kOwnFolder + "job-run-29500"},
        Case{"TorchrunTwoNodes",
             kTorchrunTwoNodes,
             "torchrun",
             {3, 4, 1, 2, 1, 2},
             "run-29500",
             "tcp:10.0.0.1:29500"},
        Case{"TorchrunAgentHoldsThePort",
             kTorchrunTwoNodes + Environment{{"TORCHELASTIC_USE_AGENT_STORE", "True"}},
             "torchrun",
             {3, 4, 1, 2, 1, 2},
             "run-29500",
             ""},
        Case{
            "TorchrunUserRendezvous",
            kTorchrun + Environment{{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"GANTRY_RDZV", "tcp:h:1"}},
            "torchrun",
            {0, 4, 0, 4, 0, 1},
            "run-29500",
            "tcp:h:1",
            true},
        Case{"RankAloneIsNobody", {{"RANK", "3"}}, "single", {0, 1, 0, 1, 0, 1}, "", ""},
        Case{"OpenMpi", kOpenMpi, "openmpi", {1, 2, 1, 2, 0, 1}, "123.1", kOwnFolder + "job-123.1"},
        Case{"OpenMpiRankZeroServes",
             kOpenMpi +
                 Environment{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
             "openmpi",
             {0, 2, 0, 2, 0, 1},
             "123.1",
             kOwnFolder + "job-123.1",
             true},
        Case{"OpenMpiTwoNodes",
             kOpenMpi + Environment{{"OMPI_COMM_WORLD_SIZE", "4"}},
             "openmpi",
             {1, 4, 1, 2, -1, -1},
             "123.1",
             ""},
        Case{"OpenMpiOverTorchNames",
             kOpenMpi + Environment{{"RANK", "1"}, {"WORLD_SIZE", "2"}},
             "openmpi",
             {1, 2, 1, 2, 0, 1},
             "123.1",
             kOwnFolder + "job-123.1"},
        // A wrapper under mpirun says where to meet, but not who is on which node.
        Case{"OpenMpiTwoNodesMeetWhereTorchNamesSay",
             kOpenMpi + Environment{{"OMPI_COMM_WORLD_SIZE", "4"},
                                    {"RANK", "1"},
                                    {"WORLD_SIZE", "4"},
                                    {"MASTER_ADDR", "10.0.0.1"},
                                    {"MASTER_PORT", "29500"}},
             "openmpi",
             {1, 4, 1, 2, -1, -1},
             "123.1",
             "tcp:10.0.0.1:29500"},
        Case{"HydraMeetsWhereTorchNamesSay",
             kHydra + Environment{{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_PORT", "29500"}},
             "pmi",
             {2, 3, 2, 3, 0, 1},
             "torchrun-29500",
             kOwnFolder + "job-torchrun-29500"},
        // PMI alone does not say who is on one node.
        Case{"PmiNodesAreWhatTorchNamesSay",
             kTorchrunTwoNodes + Environment{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}},
             "pmi",
             {3, 4, 1, 2, 1, 2},
             "run-29500",
             "tcp:10.0.0.1:29500"},
        Case{"SlurmOverTorchNames",
             kSlurm + Environment{{"RANK", "2"}, {"WORLD_SIZE", "4"}},
             "slurm",
             {2, 4, 2, 4, 0, 1},
             "77.3",
             kOwnFolder + "job-slurm-77.3"},
        Case{"OpenMpiInsideASlurmJob",
             kOpenMpi + kSlurm,
             "openmpi",
             {1, 2, 1, 2, 0, 1},
             "123.1",
             kOwnFolder + "job-123.1"},
        Case{"Hydra", kHydra, "pmi", {2, 3, 2, 3, 0, 1}, "", ""},
        Case{"Cray", kCray, "pmi", {6, 8, 2, 4, -1, -1}, "", ""},
        Case{"SlurmWithPmi2",
             kSlurmThreeNodes + Environment{{"PMI_RANK", "9"}, {"PMI_SIZE", "11"}},
             "pmi",
             {9, 11, 1, 3, 2, 3},
             "77.3",
             "tcp:gpu003:20542"},
        Case{"Mvapich", kMvapich, "mvapich", {0, 2, 0, 2, 0, 1}, "", ""},
        Case{"Slurm", kSlurm, "slurm", {2, 4, 2, 4, 0, 1}, "77.3", kOwnFolder + "job-slurm-77.3"},
        Case{"SlurmThreeNodes",
             kSlurmThreeNodes,
             "slurm",
             {9, 11, 1, 3, 2, 3},
             "77.3",
             "tcp:gpu003:20542"},
        // Ranks of the first two nodes, which share an entry of the list.
        Case{"SlurmFirstOfThreeNodes",
             kSlurmThreeNodes +
                 Environment{{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "3"}, {"SLURM_NODEID", "0"}},
             "slurm",
             {3, 11, 3, 4, 0, 3},
             "77.3",
             "tcp:gpu003:20542"},
        Case{"SlurmSecondOfThreeNodes",
             kSlurmThreeNodes +
                 Environment{{"SLURM_PROCID", "7"}, {"SLURM_LOCALID", "3"}, {"SLURM_NODEID", "1"}},
             "slurm",
             {7, 11, 3, 4, 1, 3},
             "77.3",
             "tcp:gpu003:20542"},
        Case{"SlurmBatchScript",
             kSlurm + Environment{{"SLURM_STEP_ID", "4294967291"}},
             "single",
             {0, 1, 0, 1, 0, 1},
             "",
             ""},
        Case{"SlurmBatchScriptSigned",
             kSlurm + Environment{{"SLURM_STEP_ID", "-5"}},
             "single",
             {0, 1, 0, 1, 0, 1},
             "",
             ""},
        Case{"SlurmInteractive",
             kSlurm + Environment{{"SLURM_STEP_ID", "4294967290"}},
             "single",
             {0, 1, 0, 1, 0, 1},
             "",
             ""},
        Case{"SlurmOneTask",
             kSlurm + Environment{{"SLURM_STEP_NUM_TASKS", "1"}},
             "single",
             {0, 1, 0, 1, 0, 1},
             "",
             ""},
        Case{"PmixAlone",
             {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-1@1"}},
             "pmix",
             {0, 1, 0, 1, 0, 1},
             "prterun-1@1",
             ""},
        Case{"PmixOfASlurmStepOfOneTask",
             kSlurm + Environment{{"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}},
             "single",
             {0, 1, 0, 1, 0, 1},
             "",
             ""},
        Case{"PmixBesideOtherVariables",
             kTorchrun + Environment{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prterun-1@1"}},
             "torchrun",
             {3, 4, 3, 4, 0, 1},
             "run-29500",
             kOwnFolder + "job-run-29500"},
        Case{"EmptyMeansUnset",
             {{"GANTRY_RANK", ""}, {"GANTRY_WORLD_SIZE", ""}},
             "single",
             {0, 1, 0, 1, 0, 1},
             "",
             ""}),
    [](const auto& info) { return info.param.name; });

TEST(ProcessIdentityErrorTest, NamesTheMalformedVariableAndItsValue) {
  EXPECT_EQ(error_text(kGlaunch + Environment{{"GANTRY_RANK", "five"}}),
            "GANTRY_RANK: expected a whole number from 0 to 7, but got 'five'");
  EXPECT_EQ(error_text(kGlaunch + Environment{{"GANTRY_RANK", "8"}}),
            "GANTRY_RANK: expected a whole number from 0 to 7, but got '8'");
  EXPECT_EQ(error_text(kGlaunch + Environment{{"GANTRY_WORLD_SIZE", "0"}}),
            "GANTRY_WORLD_SIZE: expected a whole number from 1 to 1048576, but got '0'");
  EXPECT_EQ(error_text(kOpenMpi + Environment{{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}),
            "OMPI_COMM_WORLD_LOCAL_RANK: expected a whole number from 0 to 1, but got '2'");
  EXPECT_EQ(error_text(kTorchrun + Environment{{"MASTER_PORT", "70000"}}),
            "MASTER_PORT: expected a whole number from 1 to 65535, but got '70000'");
  EXPECT_EQ(error_text(kSlurm + Environment{{"SLURM_PROCID", "1x"}}),
            "SLURM_PROCID: expected a whole number from 0 to 3, but got '1x'");
  EXPECT_EQ(error_text(kHydra + Environment{{"MPI_LOCALNRANKS", "9"}}),
            "MPI_LOCALNRANKS: expected a whole number from 1 to 3, but got '9'");
}

TEST(ProcessIdentityErrorTest, NamesTheMissingHalfOfAPair) {
  EXPECT_EQ(error_text({{"GANTRY_RANK", "1"}}),
            "GANTRY_WORLD_SIZE: expected a number, because GANTRY_RANK=1 is set, but got nothing");
  EXPECT_EQ(error_text({{"PMI_SIZE", "2"}}),
            "PMI_RANK: expected a number, because PMI_SIZE=2 is set, but got nothing");
  EXPECT_EQ(error_text({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
            "SLURM_PROCID: expected a number, because SLURM_STEP_NUM_TASKS=2 is set, but got "
            "nothing");
}

TEST(ProcessIdentityErrorTest, ContradictionsNameBothSources) {
  EXPECT_EQ(error_text(kGlaunch + kOpenMpi),
            "process identity: expected glaunch and openmpi to agree, but got GANTRY_WORLD_SIZE=8 "
            "and OMPI_COMM_WORLD_SIZE=2; unset the variables of the launcher that did not start "
            "this process");
  EXPECT_THAT(error_text(kTorchrun + kHydra), HasSubstr("PMI_SIZE=3 and WORLD_SIZE=4"));
  EXPECT_THAT(error_text(kTorchrun + Environment{{"RANK", "1"}} + kSlurm),
              HasSubstr("SLURM_PROCID=2 and RANK=1"));
}

TEST(ProcessIdentityErrorTest, ReadsTheProcessEnvironmentByDefault) {
  const ProcessIdentity identity = detect_process_identity();
  EXPECT_GE(identity.world_size, 1);
}

}  // namespace
}  // namespace gantry
