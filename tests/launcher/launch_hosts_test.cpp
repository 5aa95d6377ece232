// Jobs on several machines. mpirun reaches pretended ones through a remote shell that runs its
// command here; a stand-in for srun follows Slurm's environment.
#include <gmock/gmock.h>
#include <signal.h>

#include <iostream>
#include <map>
#include <optional>

#include "core/text/json.hpp"
#include "tests/launcher/launch_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchHostsTest : public LaunchTest {
 protected:
  /// A job on pretended machines, which mpirun starts.
  Command by_mpirun(Command command) {
    const char* const shell = GANTRY_TEST_DATA_DIR "/remote_shell";
    command.environment["OMPI_MCA_plm_rsh_agent"] = shell;  // Open MPI 4
    command.environment["PRTE_MCA_plm_ssh_agent"] = shell;  // Open MPI 5
    command.environment["PRTE_ALLOW_RUN_AS_ROOT"] = "1";
    command.environment["PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
    command.environment["SLURM_JOB_ID"] = std::nullopt;
    by_mpirun_ = command;
    return command;
  }
  /// What mpirun makes of two machines here, for the log of a test that failed.
  void TearDown() override {
    if (!HasFailure() || !by_mpirun_) return;
    Command probe = *by_mpirun_;
    probe.argv = {"sh", "-c",
                  "set -x; mpirun --version; hostname; nproc; env | grep -E "
                  "'^(OMPI|PMIX|PRTE|SLURM|PBS|LSB)'; getent hosts node0 node1; "
                  "mpirun -n 4 --host node0:2,node1:2 --map-by slot:OVERSUBSCRIBE --bind-to none "
                  "--display-allocation --mca ras_base_verbose 10 --mca rmaps_base_verbose 10 "
                  "--mca plm_base_verbose 5 hostname"};
    std::cout << "What mpirun says on this machine:\n" << run_command(probe).describe() << "\n";
  }
  /// The same in a Slurm allocation of two nodes.
  static Command by_srun(Command command) {
    command.environment["PATH"] = std::string(GANTRY_TEST_DATA_DIR) + ":" + std::getenv("PATH");
    command.environment["SLURM_JOB_ID"] = "7";
    command.environment["SLURM_JOB_NODELIST"] = "node[0-1]";
    return command;
  }
  static bool has_mpirun() {
    return run_command({.argv = {"sh", "-c", "command -v mpirun"}}).exit_code == 0;
  }
  /// Four ranks on two machines have written their environment.
  void expect_two_machines() const {
    std::string token;
    for (int rank = 0; rank < 4; ++rank) {
      auto got = environment_of(rank);
      const std::string local = std::to_string(rank % 2);
      const std::map<std::string, std::string> expected{
          {"GANTRY_RANK", std::to_string(rank)},
          {"GANTRY_WORLD_SIZE", "4"},
          {"GANTRY_LOCAL_RANK", local},
          {"GANTRY_LOCAL_SIZE", "2"},
          {"GANTRY_NODE_RANK", std::to_string(rank / 2)},
          {"GANTRY_NODE_COUNT", "2"},
          {"GANTRY_DEVICE", local},
          {"GANTRY_RESTART", "0"},
          {"RANK", std::to_string(rank)},
          {"LOCAL_RANK", local},
          {"MODE", "fast"}};
      for (const auto& [name, value] : expected) EXPECT_EQ(got[name], value) << name;
      EXPECT_THAT(got["GANTRY_RDZV"], ::testing::MatchesRegex("tcp:[0-9.]+:[0-9]+"));
      EXPECT_THAT(got["GANTRY_RDZV_TOKEN"], ::testing::MatchesRegex("[0-9a-f]{32}"));
      if (rank == 0) token = got["GANTRY_RDZV_TOKEN"];
      EXPECT_EQ(got["GANTRY_RDZV_TOKEN"], token);
      EXPECT_FALSE(got.contains("GANTRY_SHIM_RANKS"));
      EXPECT_FALSE(got.contains("GANTRY_LIFELINE_FD"));
    }
  }

 private:
  std::optional<Command> by_mpirun_;  // the last one
};

TEST_F(LaunchHostsTest, MpirunStartsAShimForEachRank) {
  if (!has_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  const Outcome outcome = run_command(by_mpirun(
      act({"--hosts", "node0:2,node1:2", "-x", "MODE=fast"}, {"write-environment", directory_})));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: mpirun -n 4 --host node0:2,node1:2 "));
  expect_two_machines();
  EXPECT_EQ(environment_of(3)["GANTRY_BOOT_ID"], "node1");
  EXPECT_TRUE(scratch_is_clean());
}

// Images of containers set it. It would make mpirun say that all nodes are filled.
TEST_F(LaunchHostsTest, AnMpirunThatKeepsToThisMachineStartsRanksOnOthersAllTheSame) {
  if (!has_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  Command command = by_mpirun(
      act({"--hosts", "node0:2,node1:2", "-x", "MODE=fast"}, {"write-environment", directory_}));
  command.environment["OMPI_MCA_plm"] = "isolated";  // Open MPI 4
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(
      outcome.err,
      HasSubstr("glaunch: ignoring OMPI_MCA_plm=isolated, with which mpirun starts ranks on "
                "this machine only\n"));
  expect_two_machines();
}

TEST_F(LaunchHostsTest, SrunStartsAShimForEachRank) {
  const Outcome outcome =
      run_command(by_srun(act({"-n", "4", "-x", "MODE=fast"}, {"write-environment", directory_})));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: srun --nodes=2 --ntasks=4 "));
  expect_two_machines();
  EXPECT_EQ(environment_of(1)["GANTRY_BOOT_ID"], "node0");
  EXPECT_TRUE(scratch_is_clean());
}

TEST_F(LaunchHostsTest, RanksOfSeveralMachinesMeet) {
  const std::vector<std::string> bench{
      GANTRY_TEST_BENCH, "-o", "all_reduce", "-b", "4K", "-e", "4K", "-n", "2", "--batches", "1"};
  std::vector<std::string> arguments{"-n", "4", "--hosts", "node0,node1"};
  arguments.insert(arguments.end(), bench.begin(), bench.end());
  const Outcome slurm = run_command(by_srun(launch(arguments)));
  EXPECT_EQ(slurm.exit_code, 0) << slurm.describe();
  EXPECT_THAT(slurm.out, HasSubstr("0: # wrong elements: 0"));
  if (!has_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  const Outcome mpi = run_command(by_mpirun(launch(arguments)));
  EXPECT_EQ(mpi.exit_code, 0) << mpi.describe();
  EXPECT_THAT(mpi.out, HasSubstr("# wrong elements: 0"));
}

TEST_F(LaunchHostsTest, AFailureOfARankIsThatOfTheJob) {
  const Outcome slurm = run_command(by_srun(
      launch({"-n", "4", "--report", path("report"), "sh", "-c", "exit $((RANK == 2 ? 7 : 0))"})));
  EXPECT_EQ(slurm.exit_code, 7) << slurm.describe();
  EXPECT_THAT(slurm.err, ::testing::EndsWith("glaunch: srun exited with code 7: a rank failed; its "
                                             "messages are above\n"));
  const Json report = Json::parse(read_file(path("report")));
  EXPECT_EQ(report.at("launcher"), "srun");
  EXPECT_EQ(report.at("exit_code"), 7);
  EXPECT_EQ(report.at("ranks").size(), 0U);
  if (!has_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  const Outcome mpi = run_command(
      by_mpirun(launch({"--hosts", "node0:2,node1:2", "sh", "-c", "exit $((RANK == 2 ? 7 : 0))"})));
  EXPECT_EQ(mpi.exit_code, 7) << mpi.describe();
}

TEST_F(LaunchHostsTest, AHostThatDoesNotAnswerIsOneSentence) {
  const Outcome slurm = run_command(
      by_srun(launch({"--hosts", "node0:2,unreachable:2", "--max-restarts", "3", "true"})));
  EXPECT_EQ(slurm.exit_code, 125) << slurm.describe();
  EXPECT_THAT(slurm.err, ::testing::MatchesRegex(
                             "(.|\n)*\nglaunch: srun exited with code 1 before ranks 0-3 on node0, "
                             "unreachable had started; its messages are above; each host must be "
                             "reachable from here and have /.*/glaunch\n"));
  EXPECT_THAT(slurm.err, Not(HasSubstr("restart 1 of")));
  if (!has_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  const Outcome mpi = run_command(by_mpirun(launch({"--hosts", "node0:2,unreachable:2", "true"})));
  EXPECT_EQ(mpi.exit_code, 125) << mpi.describe();
  // Open MPI 5 ends its own text with a NUL, where a regular expression would stop.
  std::string text = mpi.err;
  std::erase(text, '\0');
  EXPECT_THAT(text, ContainsRegex("\nglaunch: mpirun exited with code [0-9]+ before ranks "
                                  "[-0-9]+ on (node0, )?unreachable had started; its messages"));
}

TEST_F(LaunchHostsTest, AProgramThatIsMissingThereIsToldByTheShim) {
  const Outcome outcome = run_command(by_srun(launch({"-n", "2", "no-such-program"})));
  EXPECT_EQ(outcome.exit_code, 127) << outcome.describe();
  EXPECT_THAT(outcome.err, ContainsRegex("glaunch: shim: rank [01] on .*: cannot start "
                                         "'no-such-program': No such file or directory in PATH"));
}

TEST_F(LaunchHostsTest, RestartsReachTheRanks) {
  const Outcome outcome = run_command(by_srun(
      act({"-n", "2", "--max-restarts", "2", "--restart-delay", "0"}, {"restart", "1", "7"})));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(lines_of(outcome.out),
              ::testing::UnorderedElementsAre("0: run 0", "1: run 0", "0: run 1", "1: run 1"));
  EXPECT_THAT(outcome.err, HasSubstr("glaunch: restart 1 of 2 in 0 s\n"));
}

TEST_F(LaunchHostsTest, SignalsAndTheTimeoutEndTheJob) {
  Subprocess job(by_srun(act({"-n", "2"}, {"wait"})));
  ASSERT_TRUE(job.wait_for_output("0: pid rank"));
  ASSERT_TRUE(job.wait_for_output("1: pid rank"));
  job.send_signal(SIGINT);
  const Outcome outcome = job.wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.describe();
  for (const int pid : pids_in(outcome.out, "rank")) EXPECT_TRUE(ends(pid));
  EXPECT_TRUE(scratch_is_clean());
  const Outcome late = run_command(by_srun(launch({"-n", "2", "--timeout", "1s", "sleep", "99"})));
  EXPECT_EQ(late.exit_code, 124) << late.describe();
}

TEST_F(LaunchHostsTest, ALauncherThatIsKilledLeavesNothing) {
  const auto kill_it = [&](Command command, const std::string& launcher) {
    Subprocess job(std::move(command));
    ASSERT_TRUE(eventually([&] { return job.wait_for_output("pid rank"); })) << launcher;
    // All four have met before one of them speaks; each says its number when it is there.
    ASSERT_TRUE(job.wait_for_output("all here")) << launcher;
    job.send_signal(SIGKILL);
    const Outcome outcome = job.wait();
    const std::vector<int> pids = pids_in(outcome.out, "rank");
    EXPECT_FALSE(pids.empty()) << launcher;
    for (const int pid : pids) EXPECT_TRUE(ends(pid)) << launcher;
    EXPECT_TRUE(eventually([&] { return scratch_is_clean(); })) << launcher;
  };
  const std::vector<std::string> script{
      "sh", "-c",
      "echo pid rank $$; : > " + path("here") +
          "$RANK; [ $RANK = 0 ] || exec sleep 1000; until [ "
          "-e " +
          path("here") + "1 -a -e " + path("here") + "2 -a -e " + path("here") +
          "3 ]; do sleep 0.02; done; echo all here; exec sleep 1000"};
  std::vector<std::string> arguments{"--hosts", "node0:2,node1:2"};
  arguments.insert(arguments.end(), script.begin(), script.end());
  kill_it(by_srun(launch(arguments)), "srun");
  if (!has_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  for (const char* rank : {"1", "2", "3"}) std::filesystem::remove(path("here") + rank);
  kill_it(by_mpirun(launch(arguments)), "mpirun");
}

TEST_F(LaunchHostsTest, TheShimAloneChoosesADevice) {
  if (!has_mpirun()) GTEST_SKIP() << "mpirun is not installed";
  Command command = launch({});
  command.argv = {"mpirun",
                  "--oversubscribe",
                  "--bind-to",
                  "none",
                  "-n",
                  "2",
                  GANTRY_TEST_GLAUNCH,
                  "shim",
                  "sh",
                  "-c",
                  "echo $OMPI_COMM_WORLD_RANK on $GANTRY_DEVICE [$GANTRY_RANK]"};
  EXPECT_THAT(lines_of(run_command(command).out),
              ::testing::UnorderedElementsAre("0 on 0 []", "1 on 1 []"));
  const Outcome inner = run_command(launch({"-n", "1", GANTRY_TEST_GLAUNCH, "shim", "true"}));
  EXPECT_EQ(inner.exit_code, 125);
  EXPECT_THAT(inner.err, HasSubstr("glaunch: shim: expected a task of srun or mpirun, but "
                                   "GANTRY_RANK is set already\n"));
}

TEST_F(LaunchHostsTest, OneHostThatIsThisMachineNeedsNoOtherLauncher) {
  const Outcome outcome = run_command(by_srun(launch({"--hosts", "localhost:2", "echo", "x"})));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(lines_of(outcome.out), ::testing::UnorderedElementsAre("[0] x", "[1] x"));
  const Outcome plan =
      run_command(by_srun(launch({"--hosts", "localhost:2", "--dry-run", "echo", "x"})));
  EXPECT_THAT(plan.out, ::testing::StartsWith("2 ranks on "));
}

}  // namespace
}  // namespace gantry::testing
