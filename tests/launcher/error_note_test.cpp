// What ranks say about their failures.
#include "launcher/failures/error_note.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "launcher/failures/report.hpp"

namespace gantry::launcher {
namespace {

std::string read_back(const std::string& path) { return read_error_note(path).message; }

TEST(ErrorNoteTest, ARanksMessageKeepsItsLinesAndNothingElseThatATerminalActsOn) {
  const std::string path = ::testing::TempDir() + "rank_error.json";
  const auto reported = [&] {
    JobResult job;
    job.ranks.resize(1);
    enter_notes(job, {read_error_note(path)});
    return job.ranks[0].error;
  };
  std::ofstream(path) << R"({"message":"out of\n\tmemory \u001b[2J\u009b1m\r"})";
  EXPECT_EQ(reported(), "out of\n\tmemory \\x1b[2J\\x9b1m\\x0d");
  std::ofstream(path) << "plain \x1b]0;title\x07 \xff\n";
  EXPECT_EQ(reported(), "plain \\x1b]0;title\\x07 \\xff");
  unlink(path.c_str());
}

TEST(ErrorNoteTest, WhatIsNoRegularFileIsNoMessage) {
  const std::string path = ::testing::TempDir() + "rank_error_pipe";
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(read_back(path), "");
  unlink(path.c_str());
  EXPECT_EQ(read_back("/dev/zero"), "");
  EXPECT_EQ(read_back(path), "") << "it is not there";
}

}  // namespace
}  // namespace gantry::launcher
