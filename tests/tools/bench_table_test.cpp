// The table of gantry-bench: its columns, and what it says of rows that are not there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/sanitized.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_command;

Outcome bench(std::vector<std::string> words, const std::string& algorithm = "") {
  words.insert(words.begin(), GANTRY_TEST_BENCH);
  words.insert(words.end(), {"-n", "1", "-w", "1", "--batches", "1"});
  return run_command({.argv = std::move(words),
                      .environment = {{"GANTRY_SIM_DEVICES", "4"},
                                      {"GANTRY_COLL_ALGO",
                                       algorithm.empty() ? std::nullopt : std::optional(algorithm)},
                                      {"GANTRY_COLL_TABLE", std::nullopt}},
                      .timeout = std::chrono::seconds(testing::kIsSanitized ? 600 : 60)});
}

TEST(BenchTableTest, AnAlgorithmThatDoesNotServeAnOperationIsNamed) {
  for (const char* const algorithm : {"ll", "two_shot", "ll128"}) {
    const std::string sentence = std::string("# barrier: ") + algorithm + " does not serve it\n";
    for (const Outcome& outcome :
         {bench({"-o", "barrier"}, algorithm), bench({"-o", "barrier", "-a", algorithm})}) {
      EXPECT_EQ(outcome.exit_code, 3) << outcome.describe();
      EXPECT_THAT(outcome.out, HasSubstr(sentence));
      EXPECT_THAT(outcome.out, HasSubstr("# nothing was measured\n"));
      EXPECT_THAT(outcome.out, Not(HasSubstr("mean bus bandwidth")));
    }
    // What is measured makes the run a good one.
    const Outcome some =
        bench({"-o", "all_reduce,barrier", "-a", algorithm, "-b", "8K", "-e", "8K"});
    EXPECT_EQ(some.exit_code, 0) << some.describe();
    EXPECT_THAT(some.out, HasSubstr(sentence));
    EXPECT_THAT(some.out, HasSubstr("mean bus bandwidth"));
  }
}

TEST(BenchTableTest, APipeHasNoEarlierResults) {
  const testing::TemporaryFolder folder;
  const std::string pipe = (folder / "pipe.json").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const char* const option : {"--draw", "--compare"}) {
    const Outcome outcome = bench({option, pipe, "--svg", (folder / "x.svg").string()});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("cannot read '" + pipe + "': a named pipe")) << option;
  }
}

// The program has the static library: no part that nothing names may be needed.
TEST(BenchTableTest, WritesTheTraceThatTheEnvironmentWants) {
  const testing::TemporaryFolder folder;
  const std::string trace = (folder / "trace.json").string();
  const Outcome outcome =
      run_command({.argv = {GANTRY_TEST_BENCH, "-o", "all_reduce", "-b", "8K", "-e", "8K", "-n",
                            "1", "-w", "0", "--batches", "1", "-q"},
                   .environment = {{"GANTRY_SIM_DEVICES", "2"}, {"GANTRY_TRACE", trace}},
                   .timeout = std::chrono::seconds(testing::kIsSanitized ? 600 : 60)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(testing::content_of(trace), HasSubstr("all_reduce"));
}

TEST(BenchTableTest, SizesThatAnAlgorithmDoesNotServeAreCounted) {
  // The bound of the low-latency algorithm lies between these sizes.
  const Outcome outcome =
      bench({"-o", "all_reduce", "-a", "ll", "-b", "1K", "-e", "64M", "-f", "65536"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("# all_reduce: ll does not serve 1 of 2 sizes\n"));
}

TEST(BenchTableTest, RowsHaveTheColumnsOfTheHead) {
  const Outcome outcome =
      bench({"-o", "all_reduce", "-a", "two_shot,ll128_two_shot,ll", "-b", "1K", "-e", "1K"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  std::istringstream lines(outcome.out);
  std::size_t column = 0;
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (const auto mode = line.find(" mode "); mode != std::string::npos) column = mode;
    if (!line.starts_with(" ")) continue;
    ++rows;
    EXPECT_EQ(line.find(" eager "), column) << outcome.out;
  }
  EXPECT_EQ(rows, 3) << outcome.out;
}

}  // namespace
}  // namespace gantry::bench
