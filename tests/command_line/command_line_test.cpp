#include "command_line/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>

#include "core/text/nearest_name.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A program with one option of each kind.
struct Program {
  CommandLine line{"Trains a model.", "train"};
  int steps = 0;
  bool quiet = false;
  std::string mode = "fast";
  std::vector<std::string> sets;
  std::string file;

  Program() {
    line.begin_group("Work");
    line.add_option("-s,--steps", steps, "number of steps");
    line.add_alias("-steps", "--steps");
    line.add_option("--mode", mode, "how to do it").one_of({"fast", "exact"});
    line.add_option("-x", sets, "a setting").repeatable().value("A=B");
    line.begin_group("Output");
    line.add_flag("-q,--quiet", quiet, "print nothing");
    bool& unused = quiet;
    line.add_flag("--old-flag", unused, "no more").hidden();
  }
  std::string error(const std::vector<std::string>& arguments) {
    try {
      (void)line.parse(arguments);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  }
};

TEST(CommandLineTest, HelpNamesValuesInGroups) {
  EXPECT_EQ(Program().line.parse({"--help"}),
            "Usage: train [options]\n"
            "Trains a model.\n"
            "\n"
            "Work:\n"
            "  -s, --steps N          number of steps\n"
            "      --mode fast|exact  how to do it\n"
            "  -x A=B                 a setting\n"
            "\n"
            "Output:\n"
            "  -q, --quiet            print nothing\n"
            "\n"
            "  -h, --help             print this\n"
            "      --version          print the version\n");
}

TEST(CommandLineTest, CommonOptionsMakeAShortHelp) {
  Program program;
  EXPECT_THAT(program.error({"--help-all"}), HasSubstr("unknown option '--help-all'"));
  program.line.set_footer("The end.");
  const std::string all = program.line.parse({"--help"});
  program.line.set_common({"--steps", "-x"});
  EXPECT_EQ(program.line.parse({"--help"}),
            "Usage: train [options]\n"
            "Trains a model.\n"
            "\n"
            "  -s, --steps N          number of steps\n"
            "  -x A=B                 a setting\n"
            "  -h, --help             print this\n"
            "      --help-all         print every option\n"
            "      --version          print the version\n");
  std::string expected = all;
  expected.insert(expected.find("      --version"),
                  "      --help-all         print every option\n");
  EXPECT_EQ(program.line.parse({"--help-all"}), expected);
  EXPECT_THAT(program.line.parse({"--generate", "man"}), HasSubstr("help\\-all"));
  EXPECT_THAT(program.line.parse({"--generate", "bash"}), HasSubstr("--help-all"));
  EXPECT_EQ(program.line.parse({"--quiet"}), "");
  EXPECT_TRUE(program.quiet);
}

TEST(CommandLineTest, HelpIsWrappedAtEightyColumns) {
  CommandLine line("Trains.", "train");
  bool flag = false;
  std::string value;
  line.add_flag("--flag", flag, std::string(50, 'a') + " … " + std::string(20, 'b') + " c");
  line.add_option("--an-option-with-a-long-name", value, "help").value("A-LONG-VALUE");
  EXPECT_THAT(line.parse({"-h"}),
              HasSubstr("      --flag                  " + std::string(50, 'a') + "\n" +
                        std::string(30, ' ') + "… " + std::string(20, 'b') +
                        " c\n"
                        "      --an-option-with-a-long-name A-LONG-VALUE  help\n"));
}

TEST(CommandLineTest, AliasesStandForNamesButNotForValues) {
  Program program;
  EXPECT_EQ(program.line.parse({"-x", "-steps", "-steps", "3", "-x", "--quiet"}), "");
  EXPECT_EQ(program.steps, 3);
  EXPECT_FALSE(program.quiet);
  EXPECT_THAT(program.sets, ElementsAre("-steps", "--quiet"));
  Program attached;
  EXPECT_EQ(attached.line.parse({"-steps=4"}), "");
  EXPECT_EQ(attached.steps, 4);
}

TEST(CommandLineTest, WhatFollowsTheProgramIsNotLookedAt) {
  CommandLine line("Starts.", "start");
  int number = 0;
  line.add_option("-n", number, "number");
  line.stop_at_first_argument();
  EXPECT_EQ(line.parse({"-n", "2", "app", "--bogus", "-n", "3"}), "");
  EXPECT_THAT(line.rest(), ElementsAre("app", "--bogus", "-n", "3"));
}

TEST(CommandLineTest, UnknownOptionsNameTheNearest) {
  EXPECT_EQ(Program().error({"--step", "3"}), "unknown option '--step' (did you mean '--steps'?)");
  EXPECT_EQ(Program().error({"--qiuet=1"}), "unknown option '--qiuet' (did you mean '--quiet'?)");
  EXPECT_EQ(Program().error({"--quite"}), "unknown option '--quite' (did you mean '--quiet'?)");
  EXPECT_EQ(Program().error({"--colour"}), "unknown option '--colour'");
  EXPECT_EQ(Program().error({"-z"}), "unknown option '-z'");
  EXPECT_EQ(nearest_name("--log_dri", {"--log-dir"}), "--log-dir");
  EXPECT_EQ(nearest_name("--nproc", {"--np", "--nproc-per-node"}), "--nproc-per-node");
  EXPECT_EQ(nearest_name("", {"--np"}), std::nullopt);
}

// The same with each CLI11: 2.4 by itself takes 1_0, 0b11, '5' and true, and has another text.
TEST(CommandLineTest, WholeNumbersAreDecimalDigitsInTheirRange) {
  CommandLine line("Counts.", "count");
  int device = -1;
  int steps = -1;
  std::optional<int> rank;
  std::vector<int> blocks;
  line.add_option("--device", device, "which one").range(0, 63);
  line.add_option("--steps", steps, "how many");
  line.add_option("--rank", rank, "its number").range(0, 7);
  line.add_option("--blocks", blocks, "how many").comma_separated().range(1, 64);
  const auto error = [&](const std::vector<std::string>& arguments) -> std::string {
    try {
      (void)line.parse(arguments);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  };
  for (const char* const text : {"-1", "64", "x", "", "1_0", "1'0", "0b11", "0o17", "0x10", "+3",
                                 " 3", "3 ", "1.0", "1e1", "true", "'5'", "99999999999999999999"}) {
    EXPECT_EQ(
        error({"--device", text}),
        std::string("--device: expected a whole number from 0 to 63, but got '") + text + "'");
  }
  EXPECT_EQ(error({"--steps", "1_0"}),
            "--steps: expected a whole number from -2147483648 to 2147483647, but got '1_0'");
  EXPECT_EQ(error({"--rank", "8"}), "--rank: expected a whole number from 0 to 7, but got '8'");
  EXPECT_EQ(error({"--blocks", "4,0"}),
            "--blocks: expected a whole number from 1 to 64, but got '0'");
  EXPECT_EQ(error({"--device"}), "--device: 1 required INT missing");
  EXPECT_EQ(error({"--device", "63", "--steps", "-010", "--rank", "0", "--blocks", "64,1"}),
            "(nothing was thrown)");
  EXPECT_EQ(device, 63);
  EXPECT_EQ(steps, -10);
  EXPECT_EQ(rank, 0);
  EXPECT_THAT(blocks, ElementsAre(64, 1));
}

TEST(CommandLineTest, FractionsAreDecimal) {
  CommandLine line("Scales.", "scale");
  double factor = 0;
  line.add_option("--factor", factor, "how much");
  for (const char* const text : {"x", "", "1_0.5", "0x1p3", " 1", "1 ", "+1", "1e999"}) {
    try {
      (void)line.parse({"--factor", text});
      ADD_FAILURE() << "accepted: " << text;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(), std::string("--factor: expected a number, but got '") + text + "'");
    }
  }
  EXPECT_EQ(line.parse({"--factor", "-1.5e2"}), "");
  EXPECT_EQ(factor, -150);
}

TEST(CommandLineTest, AnOptionGreaterThanZeroTakesFiniteNumbersAlone) {
  CommandLine line("Waits.", "wait");
  double seconds = 0;
  line.add_option("--timeout", seconds, "how long").greater_than_zero();
  const auto error = [&](const std::string& text) -> std::string {
    try {
      (void)line.parse({"--timeout=" + text});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(nothing was thrown)";
  };
  for (const char* const text : {"0.5", "7", "1e300", "1e-300"}) {
    EXPECT_EQ(error(text), "(nothing was thrown)") << text;
    EXPECT_GT(seconds, 0) << text;
  }
  for (const char* const text :
       {"0", "0.0", "-0", "-1", "inf", "-inf", "infinity", "nan", "1e999", "1x", "x"}) {
    EXPECT_THAT(error(text),
                HasSubstr(std::string("expected a number greater than 0, but got '") + text + "'"));
  }
}

TEST(CommandLineTest, SizesAreWhatASignedNumberHolds) {
  EXPECT_EQ(parse_size("0", "--end"), 0);
  EXPECT_EQ(parse_size("9223372036854775807", "--end"), INT64_MAX);
  for (const char* const text :
       {"9223372036854775808", "18446744073709551614", "18446744073709551615"}) {
    try {
      (void)parse_size(text, "--end");
      FAIL() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(),
                "--end: expected less than 2^63 bytes, but got '" + std::string(text) + "'");
    }
  }
}

TEST(CommandLineTest, EveryProgramHasAVersion) {
  EXPECT_THAT(Program().line.parse({"--version"}), ::testing::MatchesRegex("train [0-9.]+\n"));
  CommandLine command("Prints.", "train dump");
  EXPECT_THAT(command.parse({"--version"}), ::testing::MatchesRegex("train [0-9.]+\n"));
}

TEST(CommandLineTest, TheManualPageEscapesWhatRoffWouldRead) {
  CommandLine line("Trains a model.", "train-it");
  bool flag = false;
  std::string input;
  line.add_flag("--flag", flag, ".so \\n it's – so");
  line.add_option("FILE", input, "input").required();
  line.set_footer("\n'quoted\n  an indented line");
  const std::string page = line.parse({"--generate", "man"});
  EXPECT_THAT(page, ::testing::StartsWith(".TH TRAIN\\-IT 1 \"\" \"gantry "));
  EXPECT_THAT(page, HasSubstr(".SH NAME\ntrain\\-it \\- Trains a model\n"));
  EXPECT_THAT(page, HasSubstr(".SH SYNOPSIS\n\\fBtrain\\-it\\fR [options] FILE\n"));
  EXPECT_THAT(page, HasSubstr(".TP\n\\fB\\-\\-flag\\fR\n\\&.so \\en it\\(aqs \\[u2013] so\n"));
  EXPECT_THAT(page, HasSubstr(".nf\n\\&\\(aqquoted\n  an indented line\n.fi\n"));
}

TEST(CommandLineTest, HiddenOptionsAreAcceptedButShownNowhere) {
  Program program;
  EXPECT_EQ(program.line.parse({"--old-flag"}), "");
  for (const char* kind : {"man", "bash", "zsh"}) {
    EXPECT_THAT(program.line.parse({"--generate", kind}), Not(HasSubstr("old")));
  }
  EXPECT_EQ(program.error({"--generate", "fish"}),
            "--generate: expected man, bash or zsh, but got 'fish'");
}

}  // namespace
}  // namespace gantry
