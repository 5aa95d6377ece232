// NCCL's library, and its absence.
#include "collectives/nccl/library.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include <gantry/core/error.hpp>

#include "collectives/transport.hpp"
#include "tests/collectives/throws.hpp"

namespace gantry {
namespace {

const std::string kFake = GANTRY_TEST_FAKE_NCCL;
constexpr const char* kRemedy =
    "; install NCCL 2.18 or later, or add its folder to LD_LIBRARY_PATH";

TEST(NcclLibraryTest, AnAbsentLibraryIsNamedWithTheRemedy) {
  const NcclLibrary library({"libnccl.so.absent", "/no/such/libnccl.so.2"});
  const std::string problem =
      std::string(
          "failed to load libnccl.so.absent: cannot open shared object file: No such file "
          "or directory, /no/such/libnccl.so.2: No such file or directory") +
      kRemedy;
  EXPECT_EQ(library.problem(), problem);
  testing::expect_throws<NotSupported>([&] { (void)library.functions(); }, "NCCL: " + problem);
}

TEST(NcclLibraryTest, AnOldLibraryIsRefused) {
  EXPECT_EQ(NcclLibrary({kFake}).problem(),
            "failed to load " + kFake + ": expected version 2.18.0 or later, but got 2.17.3 in " +
                kFake + kRemedy);
  setenv("FAKE_NCCL_VERSION", "2708", 1);
  EXPECT_THAT(NcclLibrary({kFake}).problem(), ::testing::HasSubstr("but got 2.7.8 in"));
  // Then its functions are looked up.
  setenv("FAKE_NCCL_VERSION", "21800", 1);
  EXPECT_EQ(NcclLibrary({kFake}).problem(),
            "failed to load " + kFake + ": " + kFake + " lacks ncclGetUniqueId" + kRemedy);
  unsetenv("FAKE_NCCL_VERSION");
}

TEST(NcclLibraryTest, TheLibraryOfThisMachineIsComplete) {
  if (!has_nccl()) GTEST_SKIP() << "needs NCCL: " << nccl_problem();
  int version = 0;
  EXPECT_EQ(nccl().get_version(&version), ncclSuccess);
  EXPECT_GE(version, 21'800);
}

}  // namespace
}  // namespace gantry
