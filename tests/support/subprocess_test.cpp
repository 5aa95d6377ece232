#include "tests/support/subprocess.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <system_error>

namespace gantry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StrEq;

Command shell(const std::string& script) { return {.argv = {"/bin/sh", "-c", script}}; }

TEST(SubprocessTest, ReportsExitCodeAndBothOutputs) {
  const Outcome outcome = run_command(shell("echo to-out; echo to-err >&2; exit 7"));
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_EQ(outcome.signal, 0);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_THAT(outcome.out, StrEq("to-out\n"));
  EXPECT_THAT(outcome.err, StrEq("to-err\n"));
  EXPECT_THAT(outcome.describe(), HasSubstr("exited with 7"));
}

TEST(SubprocessTest, ReportsTheSignalThatEndedIt) {
  const Outcome outcome = run_command(shell("kill -9 $$"));
  EXPECT_EQ(outcome.signal, SIGKILL);
  EXPECT_EQ(outcome.exit_code, -1);
}

TEST(SubprocessTest, PassesInputLargerThanAPipe) {
  Command command{.argv = {"cat"}};
  command.input = std::string(1 << 20, 'x');
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, command.input);
}

TEST(SubprocessTest, SurvivesAProgramThatDoesNotReadItsInput) {
  Command command = shell("exit 3");
  command.input = std::string(1 << 20, 'x');
  EXPECT_EQ(run_command(command).exit_code, 3);
}

TEST(SubprocessTest, ChangesTheEnvironment) {
  ASSERT_EQ(setenv("GANTRY_PROBE_REMOVED", "here", 1), 0);
  Command command = shell("echo [$GANTRY_PROBE_SET][$GANTRY_PROBE_REMOVED]");
  command.environment = {{"GANTRY_PROBE_SET", "value"}, {"GANTRY_PROBE_REMOVED", std::nullopt}};
  EXPECT_THAT(run_command(command).out, StrEq("[value][]\n"));
  unsetenv("GANTRY_PROBE_REMOVED");
}

TEST(SubprocessTest, KillsTheWholeGroupWhenTheTimeIsOver) {
  // The grandchild keeps the output open; only its death lets wait() return.
  Command command = shell("sleep 600 & echo started; wait");
  command.timeout = std::chrono::milliseconds(300);
  const Outcome outcome = run_command(command);
  EXPECT_TRUE(outcome.timed_out);
  EXPECT_EQ(outcome.signal, SIGKILL);
  EXPECT_THAT(outcome.describe(), HasSubstr("its time was over"));
}

TEST(SubprocessTest, DeliversSignalsWhileItRuns) {
  Subprocess process(
      shell("trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(process.wait_for_output("ready"));
  process.send_signal(SIGTERM);
  const Outcome outcome = process.wait();
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.out, HasSubstr("caught"));
}

TEST(SubprocessTest, WaitForOutputGivesUpWhenTheProgramEnds) {
  Subprocess process(shell("echo something else"));
  EXPECT_FALSE(process.wait_for_output("ready"));
}

TEST(SubprocessTest, ThrowsWhenTheProgramDoesNotExist) {
  EXPECT_THROW(run_command({.argv = {"/nonexistent/program"}}), std::system_error);
}

}  // namespace
}  // namespace gantry::testing
