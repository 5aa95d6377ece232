// The completion scripts, read by the shells they are for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "command_line/command_line.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using testing::Outcome;
using testing::run_command;

// The options of a launcher with one command.
struct Launcher {
  CommandLine line{"Starts programs.", "start-it"};
  CommandLine dump{"Prints \"what\" `they` do: [all].", "start-it dump"};
  int ranks = 0;
  bool json = false;
  std::string color = "auto";
  std::string folder;

  Launcher() {
    line.stop_at_first_argument();
    line.add_option("-n,--ranks", ranks, "how many [it's a number]");
    line.add_option("--color", color, "colours").one_of({"auto", "always", "never"});
    line.add_option("--log-dir", folder, "where").value("DIR", ValueKind::directory);
    dump.add_flag("--json", json, "print JSON");
    line.add_command(dump.description());
  }
};

class CompletionTest : public ::testing::Test {
 protected:
  CompletionTest() {
    std::string name = (std::filesystem::temp_directory_path() / "completion-XXXXXX").string();
    directory_ = mkdtemp(name.data());
  }
  ~CompletionTest() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name) << text;
    return directory_ + "/" + name;
  }
  // What bash offers for the words, the last of which is being typed, separated by spaces.
  std::string complete(const std::vector<std::string>& words) const {
    const std::string script = write("script", Launcher().line.parse({"--generate", "bash"}));
    std::filesystem::create_directories(directory_ + "/here/folder");
    std::ofstream(directory_ + "/here/file") << "x";
    std::string array;
    for (const std::string& word : words) array += "'" + word + "' ";
    const Outcome outcome = run_command(
        {.argv = {"bash", "-uc",
                  "source '" + script + "'; cd '" + directory_ + "/here'; COMP_WORDS=(" + array +
                      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _start-it; "
                      "echo \"${COMPREPLY[*]-}\""}});
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  }

  std::string directory_;
};

TEST_F(CompletionTest, BashOffersOptionsValuesAndCommands) {
  EXPECT_EQ(complete({"start-it", "--"}), "--ranks --color --log-dir --help --version\n");
  EXPECT_EQ(complete({"start-it", "--color", "a"}), "auto always\n");
  EXPECT_EQ(complete({"start-it", "--color", "=", "n"}), "never\n");
  EXPECT_EQ(complete({"start-it", "--color", "="}), "auto always never\n");
  EXPECT_EQ(complete({"start-it", "--log-dir", "f"}), "folder\n");
  EXPECT_EQ(complete({"start-it", "-n", ""}), "\n");
  EXPECT_THAT(complete({"start-it", "-n", "2", "dum"}), ::testing::HasSubstr("dump"));
  EXPECT_EQ(complete({"start-it", "-n", "2", "dump", "--j"}), "--json\n");
}

TEST_F(CompletionTest, BashLeavesTheProgramsArgumentsAlone) {
  EXPECT_EQ(complete({"start-it", "app", "f"}), "file folder\n");
  EXPECT_EQ(complete({"start-it", "app", "--col"}), "\n");
  EXPECT_EQ(complete({"start-it", "--color", "=", "never", "app", "fi"}), "file\n");
  EXPECT_THAT(complete({"start-it", "--", "bas"}), ::testing::HasSubstr("bash"));
}

TEST_F(CompletionTest, ZshReadsItsScript) {
  const std::string text = Launcher().line.parse({"--generate", "zsh"});
  EXPECT_THAT(text, ::testing::StartsWith("#compdef start-it\n"));
  EXPECT_THAT(
      text, ::testing::HasSubstr("{-n+,--ranks=}'[how many \\[it'\\''s a number\\]]:N: ' \\\n"
                                 "  --color='[colours]:auto|always|never:(auto always never)' \\\n"
                                 "  --log-dir='[where]:DIR:_files -/' \\\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("'dump:Prints \"what\" \\`they\\` do\\: \\[all\\].'"));
  if (run_command({.argv = {"sh", "-c", "command -v zsh"}}).exit_code != 0) {
    GTEST_SKIP() << "zsh is not installed: the script was only compared";
  }
  const Outcome outcome = run_command({.argv = {"zsh", "-n", write("_start-it", text)}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
}

TEST_F(CompletionTest, RoffReadsTheManualPage) {
  if (run_command({.argv = {"sh", "-c", "command -v groff"}}).exit_code != 0) {
    GTEST_SKIP() << "groff is not installed";
  }
  const std::string page = write("page.1", Launcher().line.parse({"--generate", "man"}));
  const Outcome outcome =
      run_command({.argv = {"groff", "-man", "-Tutf8", "-ww", "-P-cbou", page}});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("--color auto|always|never"));
}

}  // namespace
}  // namespace gantry
