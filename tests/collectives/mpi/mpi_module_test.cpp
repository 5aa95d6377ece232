// The module that contains MPI, and its absence.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include <gantry/core/error.hpp>

#include "collectives/bootstrap/bootstrap.hpp"
#include "collectives/host/links/links.hpp"
#include "collectives/mpi/library.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kRemedy =
    "; build gantry with GANTRY_MPI=ON, and install the MPI of that build";

// The first test of this process: no other one may have loaded MPI before.
TEST(MpiModuleTest, NothingLoadsMpiOutsideOfItsJobs) {
  ASSERT_FALSE(has_loaded_mpi());
  EXPECT_FALSE(can_link_by_mpi());
  EXPECT_FALSE(has_loaded_mpi());
}

TEST(MpiModuleTest, AnAbsentModuleIsNamedWithTheRemedy) {
  const MpiModule module({"/no/such/libgantry_mpi.so.0"});
  const std::string problem =
      std::string("failed to load /no/such/libgantry_mpi.so.0: No such file or directory") +
      kRemedy;
  EXPECT_EQ(module.problem(), problem);
  testing::expect_throws<NotSupported>([&] { module.require("Communicator::world"); },
                                       "Communicator::world: " + problem);
  testing::expect_throws<NotSupported>([&] { (void)module.functions(); }, "MPI: " + problem);
}

TEST(MpiModuleTest, AModuleOfAnotherVersionIsRefused) {
  const std::string version = std::to_string(kMpiFunctionsVersion);
  const std::string other = std::to_string(kMpiFunctionsVersion + 1);
  EXPECT_EQ(MpiModule({GANTRY_TEST_FAKE_MPI_MODULE}).problem(),
            "failed to load " GANTRY_TEST_FAKE_MPI_MODULE ": expected version " + version +
                " of the module, but got " + other + " in " GANTRY_TEST_FAKE_MPI_MODULE + kRemedy);
}

TEST(MpiModuleTest, AModuleInAProgramWithAnotherMpiIsRefused) {
  setenv("FAKE_MPI_MODULE", "bound", 1);
  EXPECT_EQ(MpiModule({GANTRY_TEST_FAKE_MPI_MODULE}).problem(),
            std::string("failed to load " GANTRY_TEST_FAKE_MPI_MODULE
                        ": the program uses another MPI library than the one gantry was built "
                        "with") +
                kRemedy);
  unsetenv("FAKE_MPI_MODULE");
}

TEST(MpiModuleTest, ALibraryThatIsNoModuleIsRefused) {
  const MpiModule module({"libm.so.6"});
  EXPECT_THAT(module.problem(), StartsWith("failed to load libm.so.6: "));
  EXPECT_THAT(module.problem(), HasSubstr(" lacks gantry_mpi_functions"));
}

TEST(MpiModuleTest, TheModuleOfThisBuildIsComplete) {
  if (!has_mpi()) GTEST_SKIP() << "needs a build with MPI: " << mpi_module().problem();
  EXPECT_TRUE(has_loaded_mpi());
  int is_initialized = -1;
  EXPECT_EQ(mpi().initialized(&is_initialized), 0);
  EXPECT_EQ(is_initialized, 0);
  EXPECT_FALSE(can_link_by_mpi());
}

}  // namespace
}  // namespace gantry
