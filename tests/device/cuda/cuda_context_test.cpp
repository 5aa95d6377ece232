// No call creates a context on a GPU that it was not asked to use: each case in a fresh process.
#include <gtest/gtest.h>

#include <string>

#include <gantry/device/device.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

class CudaContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GANTRY_REQUIRE_CUDA();
    GANTRY_REQUIRE_DEVICES(2);
  }

  static std::string probe(const std::string& command) {
    const testing::Outcome outcome =
        testing::run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/context_probe", command}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    return outcome.out;
  }

  const std::string last_ = std::to_string(device_count() - 1);
};

TEST_F(CudaContextTest, QuestionsCreateNone) { EXPECT_EQ(probe("ask"), "contexts\n"); }

TEST_F(CudaContextTest, WorkCreatesOneOnItsDeviceOnly) {
  EXPECT_EQ(probe("use-last"), "current 0\ncontexts " + last_ + "\n");
}

TEST_F(CudaContextTest, WorkOnAFreshThreadCreatesOneOnItsDeviceOnly) {
  EXPECT_EQ(probe("use-last-on-thread"), "contexts " + last_ + "\n");
}

TEST_F(CudaContextTest, LeavingAGuardCreatesNoneOnTheDeviceBefore) {
  EXPECT_EQ(probe("guard-last"),
            "inside " + last_ + " " + last_ + "\ncurrent 0\ncontexts " + last_ + "\n");
}

TEST_F(CudaContextTest, GuardOfTheDeviceThatIsCurrentOnPaperMakesItReal) {
  EXPECT_EQ(probe("guard-twice"), "inside 0 0\ncurrent 0\ncontexts 0 " + last_ + "\n");
}

TEST_F(CudaContextTest, GuardsRestoreWhatForeignCodeSet) {
  EXPECT_EQ(probe("foreign"), "current " + last_ + " " + last_ + "\ncurrent " + last_ + " " +
                                  last_ + "\ncontexts 0 " + last_ + "\n");
}

TEST_F(CudaContextTest, ForeignSetDeviceWinsOverWhatAGuardRemembered) {
  EXPECT_EQ(probe("foreign-after-guard"),
            "current 0 0\nthen " + last_ + " " + last_ + "\ncontexts 0 " + last_ + "\n");
}

}  // namespace
}  // namespace gantry
