// The program gantry-replay, from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "core/text/json.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tools/replay/worker.hpp"

namespace gantry::replay {
namespace {

using ::testing::HasSubstr;

testing::Outcome replay(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), GANTRY_TEST_REPLAY);
  return testing::run_command({.argv = std::move(arguments),
                               .environment = {{"GANTRY_SIM_DEVICES", "1"},
                                               {"GANTRY_SIM_MEMORY", "16G"},
                                               {"GANTRY_ALLOC_CONF", std::nullopt}}});
}

Json json_of(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(std::string{std::istreambuf_iterator<char>(file), {}});
}

TEST(ReplayCommandTest, ComparesAllBackends) {
  const TemporaryFile json(".json");
  const TemporaryFile picture(".svg");
  const testing::Outcome outcome = replay({"--workload", "rmm:300,16", "--compare", "--repeat", "1",
                                           "--json", json.path(), "--picture", picture.path()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  const Json report = json_of(json.path());
  std::vector<std::string> names;
  for (const Json& result : report.at("results").elements()) {
    const auto name = result.at("backend").as<std::string>();
    names.push_back(name);
    EXPECT_THAT(outcome.out, HasSubstr("\n  " + name));
    if (result.at("error") != "") continue;
    EXPECT_EQ(result.at("completed"), true) << name;
    EXPECT_EQ(result.at("leaked_bytes"), 0) << name;
    EXPECT_EQ(result.at("peak_live"), report.at("sequence").at("peak_live_bytes")) << name;
    EXPECT_GE(result.at("peak_reserved").as<std::int64_t>(),
              result.at("peak_live").as<std::int64_t>())
        << name;
    EXPECT_LT(result.at("waste").as<double>(), 0.9) << name;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"vmm", "native", "async", "cuda", "bump"}));
  EXPECT_EQ(report.at("results").at(1).at("error"), "") << "native is always there";
  EXPECT_THAT(outcome.out, HasSubstr("\n→ "));
  std::ifstream svg(picture.path());
  std::ostringstream text;
  text << svg.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("<svg xmlns"));
  EXPECT_THAT(text.str(), HasSubstr("</svg>"));
}

TEST(ReplayCommandTest, DumpsReplayLikeTheirWorkload) {
  const TemporaryFile dump(".gantseq");
  ASSERT_EQ(replay({"-w", "liveset:50,replacements=500", "--dump", dump.path()}).exit_code, 0);
  const TemporaryFile json(".json");
  const testing::Outcome outcome =
      replay({dump.path(), "-b", "native", "-r", "0", "-q", "-j", json.path()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, "");
  const Json report = json_of(json.path());
  EXPECT_EQ(report.at("sequence").at("operations"), 1050);
  EXPECT_EQ(report.at("sequence").at("live_blocks_at_end"), 50);
  EXPECT_EQ(report.at("results").at(0).at("completed"), true);
}

TEST(ReplayCommandTest, OutOfMemoryIsExitCode1) {
  const testing::Outcome outcome =
      replay({"-w", "liveset:50,replacements=100", "-b", "cuda", "--limit", "8M"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("cuda runs out of memory at operation"));
}

TEST(ReplayCommandTest, RefusesBadInputWithCode2) {
  const TemporaryFile file(".csv");
  std::ofstream(file.path()) << "Thread,Time,Action,Pointer,Size,Stream\n1,2,jump,0x1,5,0\n";
  testing::Outcome outcome = replay({file.path(), "-b", "bump"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("line 2: expected the action allocate or free"));
  EXPECT_THAT(outcome.err, HasSubstr(file.path()));
  outcome = replay({"-w", "rmm:10,1", "--device", "3", "-b", "bump"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--device: expected a device below 1, but got 3"));
  outcome = replay({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("--compare"));
}

TEST(ReplayCommandTest, RefusesNumbersThatMakeNoSense) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--limit", "0"}, "--limit: expected a number of bytes greater than 0, but got 0\n"},
      {{"--max-seconds", "nan"},
       "--max-seconds: expected a number greater than 0, but got 'nan'\n"},
      {{"--device", "-1"}, "--device: expected a whole number from 0 to 63, but got '-1'\n"},
      {{"--device", "2147483647", "-s", "4G"}, "from 0 to 63, but got '2147483647'\n"}};
  for (const auto& [arguments, text] : cases) {
    std::vector<std::string> words{"-w", "rmm:10,1"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const testing::Outcome outcome = replay(words);
    EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr(text));
  }
}

TEST(ReplayCommandTest, LooksAtItsOutputsFirst) {
  for (const char* option : {"--json", "--picture", "--dump"}) {
    const testing::Outcome outcome = replay({"/no/such.csv", option, "/no/such.svg"});
    EXPECT_EQ(outcome.exit_code, 2) << option;
    EXPECT_THAT(outcome.err, HasSubstr("failed to write '/no/such.svg'")) << option;
  }
  const TemporaryFile json(".json");
  std::ofstream(json.path()) << "older";
  EXPECT_EQ(replay({"/no/such.csv", "--json", json.path()}).exit_code, 2);
  std::ostringstream text;
  text << std::ifstream(json.path()).rdbuf();
  EXPECT_EQ(text.str(), "older");
}

TEST(ReplayCommandTest, APipeIsNoOutputAndNoInput) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe.svg").c_str(), 0600), 0);
  for (const char* option : {"--json", "--picture", "--dump"}) {
    const testing::Outcome outcome =
        replay({"-w", "rmm:1000,1", option, (folder / "pipe.svg").string()});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("/pipe.svg': a named pipe")) << option;
  }
  const testing::Outcome input = replay({(folder / "pipe.svg").string(), "-b", "bump"});
  EXPECT_EQ(input.exit_code, 2) << input.describe();
  EXPECT_THAT(input.err, HasSubstr("/pipe.svg': a named pipe"));
  const testing::Outcome text = replay({"-w", "rmm:1000,1", "-q", "--json", "/dev/stdout"});
  EXPECT_EQ(text.exit_code, 0) << text.describe();
  EXPECT_THAT(text.out, HasSubstr("\"results\""));
}

TEST(ReplayCommandTest, SimulatesOnRequest) {
  const testing::Outcome outcome = testing::run_command(
      {.argv = {GANTRY_TEST_REPLAY, "-w", "rmm:100,64", "-b", "native", "--simulate", "8GiB"},
       .environment = {{"GANTRY_SIM_DEVICES", std::nullopt}}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("Simulated GPU (cuda:0, 8.00 GiB)"));
}

}  // namespace
}  // namespace gantry::replay
