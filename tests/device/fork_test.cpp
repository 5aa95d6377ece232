// Devices do not survive fork(): a fresh process forks, and both sides say what works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <gantry/device/device.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const char* const kCalls[] = {"init",         "driver",   "current_device", "set_device",
                              "synchronize",  "resolved", "guard",          "properties",
                              "device_count", "devices",  "is_available",   "peer_matrix"};

std::string probe(const std::string& command) {
  const testing::Outcome outcome =
      testing::run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/device_probe", command}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  return outcome.out;
}

class ForkTest : public ::testing::Test {
 protected:
  void SetUp() override { GANTRY_REQUIRE_DEVICES(1); }
};

TEST_F(ForkTest, ForkBeforeTheFirstCallIsFine) {
  const std::string out = probe("fork-before");
  EXPECT_THAT(out, HasSubstr("child in_bad_fork no"));
  EXPECT_THAT(out, HasSubstr("child done"));
  EXPECT_THAT(out, Not(HasSubstr("ForkError")));
  for (const char* call : kCalls) {
    const auto first = out.find(std::string(call) + " ok");
    ASSERT_NE(first, std::string::npos) << call << " in\n" << out;
    EXPECT_NE(out.find(std::string(call) + " ok", first + 1), std::string::npos)
        << call << " worked in one process only:\n"
        << out;
  }
}

TEST_F(ForkTest, EveryDeviceCallOfABadChildThrowsForkError) {
  const std::string out = probe("fork-after-init");
  EXPECT_THAT(out, HasSubstr("child in_bad_fork yes"));
  for (const char* call : kCalls) {
    EXPECT_THAT(out, HasSubstr(std::string(call) +
                               " ForkError Cannot use devices in a forked process: this process "
                               "was forked after its parent initialised them. Fork before the "
                               "first device call, or start the child with exec"));
  }
  EXPECT_THAT(out, HasSubstr("child done"));
}

TEST_F(ForkTest, ParentOfABadChildWorksOn) {
  const std::string out = probe("fork-after-init");
  EXPECT_THAT(out, HasSubstr("parent in_bad_fork no"));
  EXPECT_THAT(out, HasSubstr("parent ok"));
}

TEST_F(ForkTest, GuardOfABadChildEndsQuietly) {
  EXPECT_THAT(probe("fork-inside-guard"), HasSubstr("child done"));
}

TEST_F(ForkTest, CountingIsForkSafeOnSimulatedDevicesOnly) {
  const std::string out = probe("fork-after-count");
  // Counting GPUs initialises the CUDA driver, which no child can use.
  const bool simulated = platform() == Platform::simulated;
  EXPECT_THAT(out, HasSubstr(simulated ? "child in_bad_fork no" : "child in_bad_fork yes"));
  EXPECT_THAT(out, HasSubstr(simulated ? "set_device ok" : "set_device ForkError"));
}

}  // namespace
}  // namespace gantry
