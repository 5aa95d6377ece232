// Runs sim_race_program under ThreadSanitizer: it must find every missing wait and nothing else.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/support/subprocess.hpp"

namespace gantry::testing {
namespace {

constexpr bool kThreadSanitizer = std::string_view(GANTRY_SANITIZE) == "thread";
constexpr int kRuns = 5;

Outcome run_case(const std::string& name) {
  // The program's own report decides, not the first of several.
  return run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/sim_race_program", name},
                      .environment = {{"TSAN_OPTIONS", "halt_on_error=0:exitcode=66"}}});
}

class SimRaceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!kThreadSanitizer) GTEST_SKIP() << "needs ThreadSanitizer";
  }
};

using SimOrderedTest = SimRaceTest;
using SimUnorderedTest = SimRaceTest;

TEST_P(SimOrderedTest, IsSilent) {
  for (int i = 0; i < kRuns; ++i) {
    const Outcome outcome = run_case(GetParam());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
    ASSERT_EQ(outcome.err, "") << outcome.describe();
  }
}

TEST_P(SimUnorderedTest, IsReported) {
  for (int i = 0; i < kRuns; ++i) {
    const Outcome outcome = run_case(GetParam());
    ASSERT_EQ(outcome.exit_code, 66) << outcome.describe();
    ASSERT_NE(outcome.err.find("data race"), std::string::npos) << outcome.describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Program, SimOrderedTest,
                         ::testing::Values("ordered", "ordered_across_devices",
                                           "ordered_by_event_query", "ordered_by_host",
                                           "ordered_by_query", "ordered_by_word", "ordered_many"));
INSTANTIATE_TEST_SUITE_P(Program, SimUnorderedTest,
                         ::testing::Values("unordered", "unordered_behind_event",
                                           "unordered_busy_host", "unordered_destroyed_stream",
                                           "unordered_early_wait", "unordered_failed_query",
                                           "unordered_host_read"));

}  // namespace
}  // namespace gantry::testing
