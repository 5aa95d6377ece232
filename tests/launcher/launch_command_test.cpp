// What glaunch puts around the program: wrappers, files of the output, hints about options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/text/json.hpp"
#include "launcher/run/job_line.hpp"
#include "launcher/run/options/job_options.hpp"
#include "launcher/run/options/wrapper.hpp"
#include "tests/launcher/launch_fixture.hpp"

namespace gantry::testing {
namespace {

using launcher::parse_rank_wrapper;
using launcher::parse_wrapper;
using launcher::wrapper_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class LaunchCommandTest : public LaunchTest {};

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    (void)launcher::parse_job(arguments);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST_F(LaunchCommandTest, WrappersAreWordsOfAShell) {
  EXPECT_THAT(parse_wrapper("gdb --args").words, ElementsAre("gdb", "--args"));
  EXPECT_THAT(parse_wrapper("  a 'b c' \"d 'e'\" f\\ g '' ").words,
              ElementsAre("a", "b c", "d 'e'", "f g", ""));
  EXPECT_THAT(parse_rank_wrapper("0,2-3=nsys -o \"a=b\"").ranks, ElementsAre(0, 2, 3));
  EXPECT_THAT(parse_rank_wrapper("0,2-3=nsys -o \"a=b\"").words, ElementsAre("nsys", "-o", "a=b"));
  EXPECT_EQ(refusal({"--wrap", "a 'b", "app"}), "--wrap: expected a closing ', but got 'a 'b'");
  EXPECT_EQ(refusal({"--wrap", " ", "app"}),
            "--wrap: expected a command such as 'gdb --args', but got ' '");
  for (const std::string bad : {"gdb", "=gdb", "x=gdb", "-1=gdb"}) {
    EXPECT_EQ(
        refusal({"--wrap-rank", bad, "app"}),
        "--wrap-rank: expected ranks and a command such as 0='gdb --args', but got '" + bad + "'");
  }
  EXPECT_EQ(refusal({"--wrap-rank", "0=", "app"}),
            "--wrap-rank: expected a command such as 'gdb --args', but got ''");
}

TEST_F(LaunchCommandTest, AWrapperOfARankReplacesTheOneOfAll) {
  const std::vector<launcher::Wrapper> wrappers{parse_rank_wrapper("1=gdb r%r"),
                                                parse_wrapper("nsys -o %r.%l.%p.%%r%")};
  EXPECT_THAT(wrapper_of(wrappers, 0, 0), ElementsAre("nsys", "-o", "0.0.%p.%r%"));
  EXPECT_THAT(wrapper_of(wrappers, 12, 3), ElementsAre("nsys", "-o", "12.3.%p.%r%"));
  EXPECT_THAT(wrapper_of(wrappers, 1, 1), ElementsAre("gdb", "r1"));
  EXPECT_THAT(wrapper_of({}, 0, 0), IsEmpty());
}

TEST_F(LaunchCommandTest, RanksRunBehindTheirWrappers) {
  const Outcome outcome =
      run_command(launch({"-n", "3", "--wrap", "env 'WRAP=all %r'", "--wrap-rank",
                          "1=env 'WRAP=own %r'", "sh", "-c", "echo $WRAP"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("[0] all 0\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[1] own 1\n"));
  EXPECT_THAT(outcome.out, HasSubstr("[2] all 2\n"));
  const Outcome dry = run_command(
      launch({"-n", "2", "--wrap-rank", "1=gdb --args", "--dry-run", "--json", "app", "x"}));
  const Json ranks = Json::parse(dry.out).at("ranks");
  EXPECT_EQ(ranks.at(0).find("command"), nullptr);
  EXPECT_EQ(ranks.at(1).at("command").dump(), R"(["gdb","--args","app","x"])");
}

TEST_F(LaunchCommandTest, AWrapperThatCannotRunStartsNothing) {
  const Outcome absent =
      run_command(launch({"-n", "2", "--wrap-rank", "1=/nowhere/gdb", "sh", "-c", "echo ran"}));
  EXPECT_EQ(absent.exit_code, 127) << absent.describe();
  EXPECT_THAT(absent.err, HasSubstr("/nowhere/gdb"));
  EXPECT_THAT(absent.out, Not(HasSubstr("ran")));
  const Outcome many = run_command(launch({"-n", "2", "--wrap-rank", "2=env", "true"}));
  EXPECT_EQ(many.exit_code, 125);
  EXPECT_THAT(many.err, HasSubstr("--wrap-rank 2: the job has ranks 0 to 1"));
}

TEST_F(LaunchCommandTest, TheShimWrapsItsRank) {
  Command shim = launch({"shim", "--wrap", "env WRAP=r%r", "sh", "-c", "echo $WRAP"});
  shim.environment["OMPI_COMM_WORLD_RANK"] = "3";
  shim.environment["OMPI_COMM_WORLD_SIZE"] = "4";
  shim.environment["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  shim.environment["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  const Outcome outcome = run_command(shim);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, "r3\n");
  const Outcome line = run_command(launch(
      {"--hosts", "a:1,b:1", "--wrap", "nsys -o r%r", "--wrap-rank", "1=gdb", "--dry-run", "app"}));
  EXPECT_THAT(line.out, HasSubstr("--wrap=nsys -o r%r"));
  EXPECT_THAT(line.out, HasSubstr("--wrap-rank=1=gdb"));
}

TEST_F(LaunchCommandTest, TeeKeepsTheOutputInFilesOfANewDirectory) {
  Command command = launch({"-n", "2", "--tee", "sh", "-c", "echo said; echo complained >&2"});
  command.argv.insert(command.argv.begin(), {"sh", "-c", "cd \"$0\" && exec \"$@\"", directory_});
  const Outcome outcome = run_command(command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("[1] said\n"));
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    folders.push_back(entry.path().filename().string());
  }
  ASSERT_EQ(folders.size(), 1U);
  EXPECT_THAT(folders[0], ::testing::StartsWith("glaunch-"));
  EXPECT_THAT(outcome.err, HasSubstr("output of each rank: " + folders[0]));
  EXPECT_EQ(read_file(path(folders[0] + "/rank1.out")), "said\n");
  EXPECT_EQ(read_file(path(folders[0] + "/rank0.err")), "complained\n");
  const Outcome named =
      run_command(launch({"-n", "1", "--tee", "--log-dir", path("logs"), "sh", "-c", "echo said"}));
  EXPECT_THAT(named.out, HasSubstr("said"));
  EXPECT_EQ(read_file(path("logs/rank0.out")), "said\n");
}

// ---- Options and variables of other launchers, and misspelled ones ----

TEST_F(LaunchCommandTest, OptionsOfOtherLaunchersGetAHint) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--nprocs", "-n N"},
      {"--nprocs=2", "-n N"},
      {"--ntasks", "-n N"},
      {"--num_gpus", "--gpus best:N"},
      {"--nnodes", "--hosts A:4,B:4"},
      {"--node-rank", "--hosts A:4,B:4"},
      {"--rdzv-backend", "own rendezvous"},
      {"--rdzv_endpoint=h:1", "own rendezvous"},
      {"--master-port", "own rendezvous"},
      {"--bind-to", "--bind auto, numa, core or none"},
      {"--map-by", "--bind and --order"},
      {"--oversubscribe", "--ranks-per-device K"},
      {"--redirects", "--log-dir DIR"},
      {"--tag-output", "--prefix"},
      {"--numa-binding", "--bind numa"},
      {"--cpu-bind", "--bind"},
      {"--gpus-per-task", "one GPU"},
  };
  for (const auto& [option, hint] : cases) {
    const std::string text = refusal({option, "2", "app"});
    EXPECT_THAT(text, HasSubstr("unknown option '" + option.substr(0, option.find('=')) + "'"));
    EXPECT_THAT(text, HasSubstr(hint)) << option;
  }
  // A misspelled option of glaunch's own still gets its name.
  EXPECT_EQ(refusal({"--gpsu", "2", "app"}), "unknown option '--gpsu' (did you mean '--gpus'?)");
  EXPECT_EQ(launcher::parse_job({"--nproc-per-node", "2", "app"}).placement.ranks, 2);
}

TEST_F(LaunchCommandTest, MisspelledVariablesAreNamedOnce) {
  Command command = launch({"-n", "2", "true"});
  command.environment["GANTRY_SIM_DEVICE"] = "4";
  command.environment["GANTRY_MY_OWN_SETTING"] = "1";
  command.environment["GANTRY_LGO"] = "info";
  const Outcome outcome = run_command(command);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  const std::string warning =
      "GANTRY_SIM_DEVICE is no variable of gantry; did you mean GANTRY_SIM_DEVICES?";
  const auto first = outcome.err.find(warning);
  ASSERT_NE(first, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find(warning, first + 1), std::string::npos) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("did you mean GANTRY_LOG?"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("GANTRY_MY_OWN_SETTING")));
}

TEST_F(LaunchCommandTest, AMalformedLogLevelIsAnErrorAtOnce) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"-n", "1", "true"}, {"--dry-run", "true"}, {"topo"}, {"check"}}) {
    Command command = launch(arguments);
    command.environment["GANTRY_LOG"] = "loud";
    const Outcome outcome = run_command(command);
    EXPECT_EQ(outcome.exit_code, 125) << outcome.describe();
    EXPECT_THAT(outcome.err, HasSubstr("GANTRY_LOG: expected trace, debug, info, warn, error or "
                                       "off, but got 'loud'"));
  }
  Command help = launch({"--help"});
  help.environment["GANTRY_LOG"] = "loud";
  EXPECT_EQ(run_command(help).exit_code, 0);
}

TEST_F(LaunchCommandTest, NamesOfAFileDoNotReachTheTerminal) {
  std::ofstream(path("names.xml"))
      << "<system><cpu numaid=\"0\" affinity=\"1\"><pci busid=\"0000:01:00.0\" "
         "class=\"0x030200\"/><pci busid=\"0000:02:00.0\" class=\"0x020000\"><nic><net "
         "name=\"e\xe2\x80\xae\xc2\x9bth0\"/></nic></pci></cpu></system>";
  for (const std::vector<std::string>& form : {std::vector<std::string>{"topo"},
                                               {"topo", "--tree"},
                                               {"topo", "--svg"},
                                               {"topo", "--json"},
                                               {"--dry-run", "app"},
                                               {"--dry-run", "--json", "app"}}) {
    std::vector<std::string> arguments = form;
    const auto program = arguments.back() == "app" ? arguments.end() - 1 : arguments.end();
    arguments.insert(program, {"--topo-file", path("names.xml")});
    Command command = launch(arguments);
    command.environment["GANTRY_SIM_DEVICES"] = std::nullopt;
    command.environment["GANTRY_NVML_PATH"] = "/nowhere/libnvidia-ml.so.1";
    const Outcome outcome = run_command(command);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, Not(HasSubstr("\u202e"))) << outcome.describe();
    EXPECT_THAT(outcome.out, Not(HasSubstr("\u009b"))) << outcome.describe();
    EXPECT_THAT(outcome.out, HasSubstr("u202e")) << outcome.describe();
  }
}

}  // namespace
}  // namespace gantry::testing
