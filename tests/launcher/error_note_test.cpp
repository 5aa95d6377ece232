// What ranks say about their failures.
#include "launcher/run/failures/error_note.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/run/failures/report.hpp"
#include "tests/support/temporary_folder.hpp"

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

TEST(ErrorNoteTest, RanksThatTheJobDoesNotHaveAreNotNamed) {
  ErrorNote note;
  note.cause = FailureCause::timed_out;
  note.ranks = {-2147483647 - 1, -1, 0, 2, 3, 4, 2147483647, 1};
  JobResult job;
  job.outcome = Outcome::rank_failed;
  job.ranks.resize(3);
  for (int rank = 0; rank < 3; ++rank) job.ranks[static_cast<std::size_t>(rank)].rank = rank;
  RankResult& failed = job.ranks[1];
  failed.started = failed.ended = true;
  failed.exit_code = 9;
  enter_notes(job, {ErrorNote{}, note, ErrorNote{}});
  EXPECT_EQ(failed.named_ranks, (std::vector{0, 2, 1}));
  // A note that names no rank of the job names nobody.
  note.ranks = {-1, 3};
  enter_note(failed, note, 3);
  EXPECT_EQ(failed.named_ranks, std::vector<int>{});
  EXPECT_EQ(job.root_failure(), &failed);
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

// glaunch would print a secret of its user, and write it into the report.
TEST(ErrorNoteTest, ALinkOrFileOfAnotherUserIsNoMessage) {
  const testing::TemporaryFolder folder;
  const std::string note = folder / "rank0.error";
  std::ofstream(folder / "secret") << "secret";
  std::filesystem::create_symlink("secret", note);
  EXPECT_EQ(read_back(note), "secret") << "a link of its own";
  if (lchown(note.c_str(), 12345, gid_t(-1)) != 0) GTEST_SKIP() << "only root gives files away";
  EXPECT_EQ(read_back(note), "");
  unlink(note.c_str());
  std::ofstream(note) << "forged";
  EXPECT_EQ(read_back(note), "forged");
  ASSERT_EQ(chown(note.c_str(), 12345, gid_t(-1)), 0);
  EXPECT_EQ(read_back(note), "");
}

}  // namespace
}  // namespace gantry::launcher
