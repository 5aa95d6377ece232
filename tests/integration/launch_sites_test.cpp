// The places of a program's own launches in a report of the stream sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Optimized, so that gantry's functions are inlined, and not.
class LaunchSitesTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LaunchSitesTest, ReportsNameTheCallersLines) {
  if (GANTRY_TEST_HAS_SYMBOLS == 0) GTEST_SKIP() << "this build has no libbacktrace";
  const testing::Outcome outcome = testing::run_command(
      {.argv = {GANTRY_TEST_PROGRAM_DIR + std::string("/") + GetParam()},
       .environment = {{"GANTRY_SIM_DEVICES", "1"},
                       {"GANTRY_SANITIZER", "warn"},
                       {"GANTRY_LOG", "warn"},
                       // The race is planted: ThreadSanitizer may not report it.
                       {"TSAN_OPTIONS", "report_bugs=0"}}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  std::istringstream lines(outcome.out);
  std::string name;
  int count = 0;
  for (int line = 0; lines >> name >> line; ++count) {
    EXPECT_THAT(outcome.err, HasSubstr("launch_sites_program.cpp:" + std::to_string(line) + " "))
        << name;
    EXPECT_THAT(outcome.err, HasSubstr(name));
  }
  EXPECT_EQ(count, 2);
  EXPECT_THAT(outcome.err, Not(HasSubstr("launch.hpp")));
}

INSTANTIATE_TEST_SUITE_P(Optimization, LaunchSitesTest,
                         ::testing::Values("launch_sites_plain", "launch_sites_inlined"));

}  // namespace
}  // namespace gantry
