// Texts of variables, arguments and files reach no terminal as commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gantry/core/env.hpp>

#include "core/text/escaped_text.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

namespace fs = std::filesystem;
using testing::Command;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run_command;

// ESC, a C1 control character, and a mark that changes the direction of text.
const std::string kCommands =
    "x\x1b[31mX\xc2\x9b"
    "2J\xe2\x80\xae";

class TerminalTextTest : public ::testing::Test {
 protected:
  [[nodiscard]] static std::string tool(const std::string& name) {
    return (fs::path(GANTRY_TEST_GLAUNCH).parent_path() / name).string();
  }
  Outcome run(std::vector<std::string> line,
              std::map<std::string, std::optional<std::string>> environment = {}) const {
    line.front() = tool(line.front());
    environment.try_emplace("GANTRY_SIM_DEVICES", "4");
    const std::string shown =
        ::testing::PrintToString(line) + ::testing::PrintToString(environment);
    const Outcome outcome = run_command({.argv = std::move(line), .environment = environment});
    for (const std::string& text : {outcome.out, outcome.err}) {
      EXPECT_EQ(escape_control_characters(text, LineEnds::keep), text) << shown;
    }
    return outcome;
  }
  [[nodiscard]] std::string file(const std::string& text) const {
    const fs::path path = folder_ / "file";
    std::ofstream(path, std::ios::trunc) << text;
    return path.string();
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TerminalTextTest, VariablesAreEscaped) {
  std::vector<std::string> names{"SLURM_JOB_NODELIST",
                                 "OMPI_COMM_WORLD_RANK",
                                 "MASTER_PORT",
                                 "RANK",
                                 "CUDA_DEVICE_ORDER",
                                 "CXX",
                                 "GANTRY_SIM_DEVICE\x1b[31m"};
  for (const env::Variable& variable : env::variables()) names.emplace_back(variable.name);
  for (const std::string& name : names) {
    std::map<std::string, std::optional<std::string>> environment{{name, kCommands},
                                                                  {"SLURM_JOB_ID", "1"}};
    for (const std::vector<std::string>& line :
         {std::vector<std::string>{"glaunch", "env"},
          {"glaunch", "dump"},
          {"glaunch", "-n", "1", "true"},
          {"glaunch", "--dry-run", "-n", "2", "true"},
          {"glaunch", "--dry-run", "--hosts", "a:1,b:1", "true"},
          {"gantry-top", "--once"}}) {
      run(line, environment);
    }
  }
  const Outcome shown = run({"glaunch", "env"}, {{"GANTRY_COLL_TABLE", kCommands}});
  EXPECT_THAT(shown.out, HasSubstr("(here: x\\x1b[31mX\\x9b2J\\u202e)"));
}

TEST_F(TerminalTextTest, ArgumentsAreEscaped) {
  for (const char* option : {"-n", "-x", "--wrap", "--prefix", "--log-dir", "--report", "--hosts",
                             "--hostfile", "--topo-file", "--timeout", "--bind", "--"}) {
    run({"glaunch", option, kCommands, "true"});
    run({"glaunch", "--dry-run", option, kCommands, "true"});
  }
  run({"glaunch", kCommands});
  run({"glaunch", "./" + kCommands});
  run({"glaunch", "--" + kCommands});
  run({"glaunch", "dump", kCommands});
  for (const char* name : {"gantry-bench", "gantry-replay", "gantry-snapshot", "gantry-top",
                           "gantry-trace", "gantry-tune"}) {
    run({name, kCommands});
    run({name, "--" + kCommands});
    run({name, kCommands, "-o", kCommands});
  }
}

TEST_F(TerminalTextTest, FilesAreEscaped) {
  for (const std::string& text :
       {kCommands, "a:" + kCommands, kCommands + ":2", "a\n" + kCommands}) {
    run({"glaunch", "--hostfile", file(text), "true"});
    for (const char* command : {"topo", "check"}) {
      run({"glaunch", command, "--topo-file", file(text)});
    }
    for (const char* name : {"gantry-replay", "gantry-trace", "gantry-snapshot"}) {
      run({name, file(text), "-o", (folder_ / "x.html").string()});
    }
  }
  const fs::path named = folder_ / (kCommands + ".csv");
  std::ofstream(named) << "Thread,Time,Action,Pointer,Size,Stream\n1,2,allocate,0x1,256,0\n"
                          "1,3,free,0x1,256,0\n";
  EXPECT_EQ(run({"gantry-replay", named.string(), "-b", "native"}).exit_code, 0);
}

// The printed line is what a shell takes back.
TEST_F(TerminalTextTest, TheLineOfAnotherLauncherStaysACommand) {
  const std::string word = kCommands + " 'a' \\ \xff";
  const Outcome printed =
      run({"glaunch", "--dry-run", "--hosts", "a:1,b:1", "printf", "<%s>", word});
  ASSERT_EQ(printed.exit_code, 0) << printed.describe();
  const std::size_t begin = printed.out.find("printf");
  ASSERT_NE(begin, std::string::npos) << printed.describe();
  const Outcome evaluated =
      run_command({.argv = {"bash", "-c", printed.out.substr(begin)}, .environment = {}});
  EXPECT_EQ(evaluated.out, "<" + word + ">") << printed.out;
}

}  // namespace
}  // namespace gantry
