// Groups of the ranks of MPI communicators, in programs that use MPI themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_command;

class MpiCommTest : public testing::DeviceTest {
 protected:
  static constexpr int kRanks = 4;
  // `before` is what a rank's shell does first.
  static Outcome run(const std::string& what, const std::string& before = "true") {
    return run_command(
        {.argv = {MPIRUN_PROGRAM, "--oversubscribe", "-n", std::to_string(kRanks), "sh", "-c",
                  before + "; exec " + std::string(GANTRY_TEST_PROGRAM_DIR) + "/mpi_comm_actor " +
                      what},
         .timeout = std::chrono::seconds(100)});
  }
  static void expect_done(const std::string& what, const std::string& before = "true") {
    GANTRY_REQUIRE_DEVICES(kRanks);
    const Outcome outcome = run(what, before);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    std::size_t done = 0;
    for (std::size_t at = 0; (at = outcome.out.find("did " + what, at)) != std::string::npos; ++at)
      ++done;
    EXPECT_EQ(done, static_cast<std::size_t>(kRanks)) << outcome.describe();
  }
};

TEST_F(MpiCommTest, PartsOfTheJobAreGroups) { expect_done("parts"); }

TEST_F(MpiCommTest, TheProgramMayChooseTheDevice) { expect_done("devices"); }

TEST_F(MpiCommTest, AGroupFreesItsCommunicator) { expect_done("many"); }

TEST_F(MpiCommTest, MpiAloneKnowsTheRanks) {
  expect_done("unnamed",
              "unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK "
              "OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_NODE_RANK");
}

TEST_F(MpiCommTest, RanksMayBeOnSeveralMachines) {
  GANTRY_REQUIRE_SIM();
  expect_done("machines", "export GANTRY_BOOT_ID=host-$OMPI_COMM_WORLD_RANK");
}

TEST_F(MpiCommTest, BadCommunicatorsAreRefusedOnEveryRank) {
  GANTRY_REQUIRE_DEVICES(kRanks);
  const Outcome outcome = run("bad-input");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  for (const char* text :
       {"refused: Communicator(MPI_Comm): expected a communicator, but got MPI_COMM_NULL",
        "refused: Communicator(MPI_Comm): expected a device, but got cpu",
        "refused: Communicator(MPI_Comm): expected an intracommunicator, but got an "
        "intercommunicator"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
}

TEST_F(MpiCommTest, TheProgramInitializesMpi) {
  const Outcome outcome =
      run_command({.argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/mpi_comm_actor", "early"}});
  EXPECT_THAT(outcome.out,
              HasSubstr("Communicator(MPI_Comm): expected MPI in use, but got MPI before MPI_Init"))
      << outcome.describe();
}

}  // namespace
}  // namespace gantry
