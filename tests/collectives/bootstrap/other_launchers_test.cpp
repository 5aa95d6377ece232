// Ranks of launchers that give no address, that give different sizes, or that hide devices.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/flight_folder.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using testing::Command;
using testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::Outcome;
using testing::run_command;
using testing::Subprocess;

using Variables = std::map<std::string, std::optional<std::string>>;

const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/caller_actor";
// The ranks do not end together, so a deadline would be waited for.
const Variables kAnyRank{{"GANTRY_SIM_DEVICES", "8"}, {"GANTRY_COLL_TIMEOUT", "50"}};

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

std::vector<Outcome> outcomes_of(std::vector<Command> commands) {
  std::vector<Subprocess> ranks;
  for (Command& command : commands) ranks.emplace_back(std::move(command));
  std::vector<Outcome> outcomes;
  for (Subprocess& rank : ranks) outcomes.push_back(rank.wait());
  return outcomes;
}

// The side of a PMI launcher: a socket for each rank, from which nothing is to be read.
class PmiServer {
 public:
  explicit PmiServer(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) ADD_FAILURE() << "socketpair";
      own_.push_back(ends[0]);
      theirs_.push_back(ends[1]);
    }
  }
  ~PmiServer() {
    for (const int fd : own_) close(fd);
    for (const int fd : theirs_) close(fd);
  }
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  std::string fd(int rank) const { return std::to_string(theirs_[static_cast<std::size_t>(rank)]); }
  // What a rank has asked.
  std::string received(int rank) const {
    char text[100];
    const ssize_t bytes =
        recv(own_[static_cast<std::size_t>(rank)], text, sizeof text, MSG_DONTWAIT);
    return {text, static_cast<std::size_t>(bytes < 0 ? 0 : bytes)};
  }

 private:
  std::vector<int> own_;
  std::vector<int> theirs_;
};

Variables hydra(int rank, int ranks) {
  return {{"PMI_RANK", std::to_string(rank)},
          {"PMI_SIZE", std::to_string(ranks)},
          {"MPI_LOCALRANKID", std::to_string(rank)},
          {"MPI_LOCALNRANKS", std::to_string(ranks)}};
}

TEST(PmiLauncherTest, RanksOfOneMachineMeetByTheMakerOfTheirSockets) {
  const FlightFolder folder;
  constexpr int kRanks = 3;
  const PmiServer server(kRanks);
  // Each rank has a parent of its own.
  for (const std::vector<std::string>& argv :
       {std::vector<std::string>{"sh", "-c", "$actor world sum; exit $?"}, {kActor, "world"}}) {
    std::vector<Command> commands;
    for (int rank = 0; rank < kRanks; ++rank) {
      commands.push_back(
          {.argv = argv,
           .environment = kAnyRank + hydra(rank, kRanks) +
                          Variables{{"PMI_FD", server.fd(rank)}, {"actor", kActor}}});
    }
    for (const Outcome& outcome : outcomes_of(std::move(commands))) {
      EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
      EXPECT_THAT(outcome.out, HasSubstr("did world\n"));
    }
    // MPICH's launcher kills ranks that ask and do not call MPI_Finalize.
    for (int rank = 0; rank < kRanks; ++rank) EXPECT_THAT(server.received(rank), IsEmpty());
  }
}

// Two jobs at one time: the ranks of each have one parent.
TEST(PmiLauncherTest, WithoutSocketsTheyMeetByTheirParent) {
  const FlightFolder folder;
  std::vector<Command> jobs;
  for (const int ranks : {2, 3}) {
    std::string script;
    for (int rank = 0; rank < ranks; ++rank) {
      script += fmt::format("PMI_RANK={0} PMI_LOCAL_RANK={0} $actor world sum & ", rank);
    }
    jobs.push_back(
        {.argv = {"sh", "-c", script + "wait"},
         .environment = kAnyRank + Variables{{"actor", kActor},
                                             {"PMI_SIZE", std::to_string(ranks)},
                                             {"PMI_LOCAL_SIZE", std::to_string(ranks)}}});
  }
  const std::vector<Outcome> outcomes = outcomes_of(std::move(jobs));
  for (std::size_t job = 0; job < outcomes.size(); ++job) {
    const std::string& out = outcomes[job].out;
    std::size_t sums = 0;
    for (std::size_t at = 0; (at = out.find("did sum\n", at)) != std::string::npos; ++at) ++sums;
    EXPECT_EQ(sums, job + 2) << outcomes[job].describe();
  }
}

TEST(PmiLauncherTest, SaysWhatIsMissing) {
  const FlightFolder folder;
  const auto error_of = [](const Variables& variables) {
    const Outcome outcome =
        run_command({.argv = {kActor, "world"}, .environment = kAnyRank + variables});
    EXPECT_NE(outcome.exit_code, 0) << outcome.describe();
    return outcome.out + outcome.err;
  };
  EXPECT_THAT(error_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}),
              HasSubstr("Communicator::world: failed to find where the ranks of the PMI job meet: "
                        "the launcher does not say how many of the ranks are on this machine; set "
                        "GANTRY_RDZV"));
  EXPECT_THAT(error_of(hydra(0, 4) + Variables{{"MPI_LOCALNRANKS", "2"}}),
              HasSubstr("the ranks are on several machines; set GANTRY_RDZV"));
  EXPECT_THAT(error_of({{"MV2_COMM_WORLD_RANK", "2"},
                        {"MV2_COMM_WORLD_SIZE", "4"},
                        {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
                        {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}}),
              HasSubstr("the ranks of the MVAPICH job meet: the ranks are on several machines"));
}

TEST(PmiLauncherTest, MpichsLauncher) {
  if (std::string(HYDRA_PROGRAM).empty()) GTEST_SKIP() << "needs mpiexec.hydra, but there is none";
  const FlightFolder folder;
  for (const char* script : {"exec $actor world sum", "$actor world sum; exit $?"}) {
    const Outcome outcome = run_command({.argv = {HYDRA_PROGRAM, "-n", "3", "sh", "-c", script},
                                         .environment = kAnyRank + Variables{{"actor", kActor}}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("did sum\n"));
  }
}

TEST(PmixLauncherTest, ARankAloneIsNoSilentWorld) {
  const FlightFolder folder;
  const auto outcome_of = [](const char* rank, const Variables& more = {}) {
    return run_command(
        {.argv = {kActor, "world"},
         .environment = kAnyRank +
                        Variables{{"PMIX_RANK", rank}, {"PMIX_NAMESPACE", "prterun-host-1@1"}} +
                        more});
  };
  const Outcome first = outcome_of("0");
  EXPECT_EQ(first.exit_code, 0) << first.describe();
  EXPECT_THAT(first.err,
              HasSubstr("Communicator::world: this process is the only rank of its world: "
                        "PMIX_RANK=0 is set, but no variable tells how many ranks the job "
                        "prterun-host-1@1 has; if there are several, start"));
  const Outcome second = outcome_of("1");
  EXPECT_NE(second.exit_code, 0) << second.describe();
  EXPECT_THAT(second.out + second.err,
              HasSubstr("Communicator::world: failed to find the number of ranks: PMIX_RANK=1 is "
                        "set, but no variable tells how many ranks the job prterun-host-1@1 has; "
                        "start the ranks with glaunch"));
  // What the remedies give, and a launcher that says that there is one rank.
  for (const Variables& known : {Variables{{"SLURM_JOB_ID", "7"},
                                           {"SLURM_STEP_ID", "0"},
                                           {"SLURM_STEP_NUM_TASKS", "1"},
                                           {"SLURM_PROCID", "0"}},
                                 Variables{{"GANTRY_RANK", "0"}, {"GANTRY_WORLD_SIZE", "1"}}}) {
    const Outcome outcome = outcome_of("0", known);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.err, Not(HasSubstr("PMIX_RANK")));
  }
}

TEST(OpenMpiLauncherTest, VariablesWithoutMpirunAreAnError) {
  const FlightFolder folder;
  const Outcome outcome =
      run_command({.argv = {kActor, "world"},
                   .environment = kAnyRank + Variables{{"OMPI_COMM_WORLD_RANK", "0"},
                                                       {"OMPI_COMM_WORLD_SIZE", "2"},
                                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                       {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                                       {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}});
  const std::string text = outcome.out + outcome.err;
  if (text.find("no MPI: ") != std::string::npos) GTEST_SKIP() << "needs a build with MPI";
  EXPECT_EQ(outcome.signal, 0) << outcome.describe();
  EXPECT_THAT(text, HasSubstr("Communicator::world: expected rank 0 of 2 in MPI_COMM_WORLD, as "
                              "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE say, but got rank 0 "
                              "of 1: MPI does not know the job"));
}

// A world whose rank r was started with sizes[r]; later ranks come once earlier ones wait.
std::vector<Outcome> world_of_sizes(const std::vector<int>& sizes) {
  static int worlds = 0;
  const std::string address = fmt::format("unix:@gantry-sizes-{}-{}", getpid(), ++worlds);
  std::vector<Command> commands;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    commands.push_back(
        {.argv = {kActor, "world"},
         .environment = kAnyRank + Variables{{"RANK", std::to_string(rank)},
                                             {"WORLD_SIZE", std::to_string(sizes[rank])},
                                             {"GANTRY_RDZV", address}}});
  }
  return outcomes_of(std::move(commands));
}

TEST(WorldSizeTest, SizesThatDifferAreNamedByEveryRank) {
  const FlightFolder folder;
  struct Case {
    std::vector<int> sizes;
    std::string text;  // in which two ranks are named
  };
  for (const Case& one :
       {Case{{2, 3}, "2 on rank 0 and 3 on rank 1"}, Case{{3, 2}, "3 on rank 0 and 2 on rank 1"},
        Case{{2, 3, 3}, "2 on rank 0 and 3 on rank 1"},
        Case{{4, 4, 3, 4}, "4 on rank 0 and 3 on rank 2"},
        Case{{4, 5, 4, 4}, "4 on rank 0 and 5 on rank 1"},
        Case{{5, 5, 5, 4}, "5 on rank 0 and 4 on rank 3"}}) {
    const std::vector<Outcome> outcomes = world_of_sizes(one.sizes);
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      EXPECT_THAT(outcomes[rank].out,
                  HasSubstr("mismatch: Communicator::world: expected one number of ranks on all of "
                            "them, but got "))
          << one.text << " rank " << rank << outcomes[rank].describe();
    }
    EXPECT_THAT(outcomes[0].out, HasSubstr(one.text));
  }
}

TEST(SharedDeviceTest, RanksThatAreMaskedToOneGpuAreNamedOnce) {
  const FlightFolder folder;
  const auto errors_of = [](int ranks, const Variables& variables) {
    static int worlds = 0;
    const std::string address = fmt::format("unix:@gantry-shared-{}-{}", getpid(), ++worlds);
    std::vector<Command> commands;
    for (int rank = 0; rank < ranks; ++rank) {
      commands.push_back({.argv = {kActor, "world", "sum"},
                          .environment = kAnyRank +
                                         Variables{{"RANK", std::to_string(rank)},
                                                   {"LOCAL_RANK", std::to_string(rank)},
                                                   {"WORLD_SIZE", std::to_string(ranks)},
                                                   {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                                                   {"GANTRY_RDZV", address}} +
                                         variables});
    }
    std::string errors;
    for (const Outcome& outcome : outcomes_of(std::move(commands))) {
      EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
      errors += outcome.err;
    }
    return errors;
  };
  const std::string text =
      "Communicator::world: expected a GPU of its own for every rank, but ranks 0, 1, 2, 3 use ";
  const std::string errors = errors_of(4, {{"CUDA_VISIBLE_DEVICES", "2"}});
  EXPECT_THAT(errors, HasSubstr(text));
  EXPECT_THAT(errors, HasSubstr(": CUDA_VISIBLE_DEVICES=2 is set for rank 0; unset it"));
  EXPECT_EQ(errors.find(text), errors.rfind(text)) << "one line a job: " << errors;
  // A GPU for each rank, and one simulated device that the user asked for.
  EXPECT_THAT(errors_of(4, {}), Not(HasSubstr("GPU of its own")));
  EXPECT_THAT(errors_of(3, {{"CUDA_VISIBLE_DEVICES", "5,3,1,0"}}),
              Not(HasSubstr("GPU of its own")));
  EXPECT_THAT(errors_of(2, {{"GANTRY_SIM_DEVICES", "1"}}), Not(HasSubstr("GPU of its own")));
}

}  // namespace
}  // namespace gantry
