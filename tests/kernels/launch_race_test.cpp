// Runs launch_race_program under ThreadSanitizer: it must report every missing barrier, and nothing
// else.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tests/support/subprocess.hpp"

namespace gantry::testing {
namespace {

constexpr bool kThreadSanitizer = std::string_view(GANTRY_SANITIZE) == "thread";

class LaunchRaceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!kThreadSanitizer) GTEST_SKIP() << "needs ThreadSanitizer";
  }
};

TEST_P(LaunchRaceTest, IsReportedIfUnordered) {
  const std::string name = GetParam();
  const Outcome outcome = run_command(
      {.argv = {GANTRY_TEST_PROGRAM_DIR "/launch_race_program", name},
       .environment = {{"GANTRY_JIT_CACHE", ""}, {"TSAN_OPTIONS", "halt_on_error=0:exitcode=66"}}});
  if (name.starts_with("unordered")) {
    EXPECT_EQ(outcome.exit_code, 66) << outcome.describe();
    EXPECT_NE(outcome.err.find("data race"), std::string::npos) << outcome.describe();
    const char* where = name == "unordered_jit" ? "jit/function.cpp" : "launch_race_program.cpp";
    EXPECT_NE(outcome.err.find(where), std::string::npos) << outcome.describe();
  } else {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(outcome.err, "") << outcome.describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Program, LaunchRaceTest,
                         ::testing::Values("ordered_by_barrier", "unordered_neighbours",
                                           "ordered_rounds", "unordered_rounds", "ordered_atomics",
                                           "unordered_sum", "ordered_streams", "unordered_streams",
                                           "ordered_jit", "unordered_jit"));

}  // namespace
}  // namespace gantry::testing
