#include "tests/support/rank_threads.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>

namespace gantry::testing {
namespace {

using ::testing::StrEq;

TEST(RankThreadsTest, RunsEveryRankAtOnce) {
  std::latch all_here(4);
  std::atomic<int> ranks = 0;
  rank_threads(4, [&](int rank) {
    all_here.arrive_and_wait();
    ranks |= 1 << rank;
  });
  EXPECT_EQ(ranks, 0b1111);
}

TEST(RankThreadsTest, RethrowsWithTheRankWhenOneThrows) {
  try {
    rank_threads(3, [](int rank) {
      if (rank == 1) throw std::runtime_error("broken");
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), StrEq("rank 1: broken"));
  }
}

TEST(RankThreadsTest, WakesTheOthersOnceWhenOneThrows) {
  std::latch aborted(1);
  std::atomic<int> calls = 0;
  const auto wake = [&] {
    ++calls;
    aborted.count_down();
  };
  const auto wait_unless_zero = [&](int rank) {
    if (rank != 0) aborted.wait();
    throw std::runtime_error(rank == 0 ? "first" : "later");
  };
  EXPECT_THROW(
      {
        try {
          rank_threads(3, wait_unless_zero, std::chrono::seconds(60), wake);
        } catch (const std::runtime_error& error) {
          EXPECT_THAT(error.what(), StrEq("rank 0: first"));
          throw;
        }
      },
      std::runtime_error);
  EXPECT_EQ(calls, 1);
}

TEST(RankThreadsDeathTest, NamesTheRanksThatHangWhenTheTimeIsOver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang_in_rank_one = [](int rank) {
    std::latch never(1);
    if (rank == 1) never.wait();
  };
  // In which rank 0 ends.
  EXPECT_EXIT(rank_threads(2, hang_in_rank_one, std::chrono::seconds(5)),
              ::testing::ExitedWithCode(124), "still running after 5 s: ranks 1\n");
}

}  // namespace
}  // namespace gantry::testing
