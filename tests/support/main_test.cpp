// How a test binary tells ctest that nothing could run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;

Outcome run_probe(const std::string& filter,
                  std::map<std::string, std::optional<std::string>> environment = {}) {
  return run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/skip_probe", "--gtest_filter=" + filter},
                      .environment = std::move(environment)});
}

TEST(MainTest, ExitsWithZeroWhenATestPassed) {
  EXPECT_EQ(run_probe("SkipProbe.Passes").exit_code, 0);
  EXPECT_EQ(run_probe("SkipProbe.Passes:SkipProbe.Skips").exit_code, 0);
}

TEST(MainTest, ExitsWithSeventySevenAndTheReasonWhenEveryTestWasSkipped) {
  const Outcome outcome = run_probe("SkipProbe.Skips");
  EXPECT_EQ(outcome.exit_code, 77) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("for a reason"));
  EXPECT_THAT(outcome.out, HasSubstr("every test of this binary was skipped"));
}

TEST(MainTest, ExitsWithOneWhenATestFailed) {
  EXPECT_EQ(run_probe("SkipProbe.Fails:SkipProbe.Skips").exit_code, 1);
}

TEST(MainTest, RunsNothingAndSaysWhyWhenThereIsNoCudaDevice) {
  const Outcome outcome = run_probe("SkipProbe.Fails", {{"GANTRY_TEST_PLATFORM", "cuda"},
                                                        {"GANTRY_SIM_DEVICES", std::nullopt},
                                                        {"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(outcome.exit_code, 77) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("no CUDA device is visible"));
}

void require_devices(int count) { GANTRY_REQUIRE_DEVICES(count); }

TEST(DeviceFixtureTest, RequireDevicesLetsATestRunWhenThereAreEnough) {
  require_devices(device_count());
  EXPECT_FALSE(IsSkipped());
}

TEST(DeviceFixtureTest, ThePlatformIsSimulatedHere) {
  ASSERT_EQ(platform(), Platform::simulated);
  EXPECT_EQ(device_count(), 4);
}

TEST_F(DeviceTest, StartsOnTheFirstDevice) { EXPECT_EQ(current_device(), Device::cuda(0)); }

}  // namespace
}  // namespace gantry::testing
