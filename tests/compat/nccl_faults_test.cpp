// Faults of programs, each in one of several processes: every rank names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/compat/nccl_ranks.hpp"
#include "tests/support/rank_processes.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using testing::RankProcesses;

constexpr int kRanks = 3;

class NcclFaults : public ::testing::Test {
 protected:
  // Starts ranks of which rank 1 has `fault`.
  static RankProcesses start(const std::string& fault, const testing::TemporaryFolder& folder,
                             bool is_shared) {
    return RankProcesses(
        {.ranks = kRanks,
         .argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/nccl_faults_actor", fault,
                  folder.path() / (fault + (is_shared ? "p" : "h"))},
         .environment = {{"GANTRY_COLL_TIMEOUT", "2"}, {"GANTRY_P2P", is_shared ? "on" : "off"}}});
  }
  // The lines of `ranks`, once all have one. The end of one rank is a fault for the others.
  static std::vector<std::string> lines(RankProcesses& processes, const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      EXPECT_TRUE(processes.says(rank, "\n", std::chrono::seconds(30))) << "rank " << rank;
    }
    std::vector<std::string> all;
    for (const int rank : ranks) {
      processes.kill(rank);
      all.push_back(processes[rank].wait().out);
    }
    return all;
  }
  // Expects that all `ranks` end with `result`, and a text that matches `pattern`.
  static void expect(RankProcesses& processes, const std::vector<int>& ranks, ncclResult_t result,
                     const std::string& pattern) {
    for (const std::string& line : lines(processes, ranks)) {
      EXPECT_THAT(line, ::testing::StartsWith(std::to_string(result) + " "));
      EXPECT_THAT(line, ::testing::ContainsRegex(pattern));
    }
  }
};

constexpr const char* kRank1 = "rank(.s.)? 1";

// Both calls stand in the text, on every rank.
TEST_F(NcclFaults, CallsThatDifferAreNamed) {
  const testing::TemporaryFolder folder;
  struct Case {
    const char* fault;
    const char* usual;
    const char* odd;
  };
  for (const bool is_shared : {true, false}) {
    for (const Case& one : {Case{"count", "all_reduce sum f32[64]", "all_reduce sum f32[63]"},
                            Case{"type", "all_reduce sum f32[64]", "all_reduce sum bf16[64]"},
                            Case{"op", "all_reduce sum f32[64]", "all_reduce max f32[64]"},
                            Case{"root", "broadcast f32[64] root=0", "broadcast f32[64] root=1"},
                            Case{"order", "all_reduce sum f32[64]", "broadcast f32[64] root=0"},
                            Case{"kind", "all_reduce sum f32[64]", "broadcast f32[64] root=0"}}) {
      SCOPED_TRACE(std::string(one.fault) + (is_shared ? ", shared" : ", host"));
      RankProcesses processes = start(one.fault, folder, is_shared);
      for (const std::string& line : lines(processes, {0, 1, 2})) {
        EXPECT_THAT(line, ::testing::StartsWith(std::to_string(ncclInvalidUsage) + " "));
        EXPECT_THAT(line, HasSubstr(one.usual));
        EXPECT_THAT(line, HasSubstr(one.odd));
      }
    }
  }
}

TEST_F(NcclFaults, ARankThatEndsIsNamed) {
  const testing::TemporaryFolder folder;
  for (const bool is_shared : {true, false}) {
    for (const char* const fault : {"exits", "killed"}) {
      SCOPED_TRACE(std::string(fault) + (is_shared ? ", shared" : ", host"));
      RankProcesses processes = start(fault, folder, is_shared);
      expect(processes, {0, 2}, ncclRemoteError, kRank1);
    }
  }
}

TEST_F(NcclFaults, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  const testing::TemporaryFolder folder;
  for (const bool is_shared : {true, false}) {
    for (const char* const fault : {"missing", "stopped"}) {
      SCOPED_TRACE(std::string(fault) + (is_shared ? ", shared" : ", host"));
      RankProcesses processes = start(fault, folder, is_shared);
      expect(processes, {0, 2}, ncclTimeout, kRank1);
    }
  }
}

TEST_F(NcclFaults, AMessageThatIsNotMetIsNamedAtTheDeadline) {
  const testing::TemporaryFolder folder;
  for (const bool is_shared : {true, false}) {
    for (const char* const fault : {"send", "recv"}) {
      SCOPED_TRACE(std::string(fault) + (is_shared ? ", shared" : ", host"));
      RankProcesses processes = start(fault, folder, is_shared);
      expect(processes, {0}, ncclTimeout, kRank1);
    }
  }
}

TEST_F(NcclFaults, AMessageOfAnotherSizeIsNamedOnBothSides) {
  const testing::TemporaryFolder folder;
  RankProcesses processes = start("message", folder, true);
  expect(processes, {0, 1}, ncclInvalidUsage, "f32.6[45].*f32.6[45]");
}

TEST_F(NcclFaults, ARankThatRevokesIsNamed) {
  const testing::TemporaryFolder folder;
  for (const bool is_shared : {true, false}) {
    SCOPED_TRACE(is_shared ? "shared" : "host");
    RankProcesses processes = start("aborts", folder, is_shared);
    expect(processes, {0, 1, 2}, ncclRemoteError, kRank1);
  }
}

TEST_F(NcclFaults, RanksThatDoNotMeetAreNamed) {
  const testing::TemporaryFolder folder;
  {
    RankProcesses processes = start("absent", folder, true);
    expect(processes, {0, 2}, ncclTimeout, kRank1);
  }
  {
    RankProcesses processes = start("sizes", folder, true);
    expect(processes, {1}, ncclInvalidArgument, std::to_string(kRanks));
  }
  {
    RankProcesses processes = start("twice", folder, true);
    const std::vector<std::string> all = lines(processes, {0, 1, 2});
    EXPECT_THAT(all, ::testing::Contains(HasSubstr("rank 0 is connected already")));
  }
}

}  // namespace
}  // namespace gantry
