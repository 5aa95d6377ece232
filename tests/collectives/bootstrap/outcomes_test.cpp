// What ranks conclude from the outcomes of members of a group that did not form.
#include "collectives/bootstrap/job_connection.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "collectives/bootstrap/bootstrap.hpp"

namespace gantry {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The members are ranks of the job, and processes with other numbers.
JobGroup group_of(const std::vector<int>& ranks) {
  JobGroup group;
  for (const int rank : ranks) group.members.push_back({rank, 100 + rank});
  return group;
}

TEST(OutcomesTest, ARankThatGaveUpIsNotLost) {
  const JobGroup group = group_of({0, 1, 2});
  // Rank 2 died. Rank 0 saw that and gave up, which rank 1 took for the loss of rank 0.
  EXPECT_THAT(ranks_called("lost", {"lost 2", "lost 0", "lost 2"}, group.members, group),
              ElementsAre(2));
  // The same with a rank that came too late, and with an error of rank 0's own.
  EXPECT_THAT(ranks_called("lost", {"late 2", "lost 0", "late 2"}, group.members, group),
              IsEmpty());
  EXPECT_THAT(ranks_called("late", {"late 2", "lost 0", kFormed}, group.members, group),
              ElementsAre(2));
  EXPECT_THAT(ranks_called("lost", {"error no memory", "lost 0", "lost 0"}, group.members, group),
              IsEmpty());
  // Nobody wrote that for rank 1 but other ranks, so it is lost.
  EXPECT_THAT(ranks_called("lost", {"lost 1", "lost 1", kFormed}, group.members, group),
              ElementsAre(1));
}

TEST(OutcomesTest, RanksAreThoseOfTheGroup) {
  const JobGroup group = group_of({3, 5, 8});
  EXPECT_THAT(ranks_called("lost", {kFormed, "lost 5", "lost 5"}, group.members, group),
              ElementsAre(1));
  // A replacement that is no member of the group before.
  EXPECT_THAT(ranks_called("lost", {kFormed, "lost 6", "lost -1"}, group.members, group),
              IsEmpty());
  EXPECT_THAT(ranks_called("lost", {"lost", "lost x", ""}, group.members, group), IsEmpty());
}

// Some ranks are dead. Each other one formed the group, or gave up because of a rank that was dead
// or had given up before.
TEST(OutcomesTest, OnlyDeadRanksAreNamedWhoeverGivesUp) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 draw(seed);
    const int size = 2 + static_cast<int>(draw() % 6);
    std::vector<int> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(2 * rank);
    const JobGroup group = group_of(ranks);
    std::vector<int> order(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) order[static_cast<std::size_t>(rank)] = rank;
    std::shuffle(order.begin(), order.end(), draw);
    const auto dead = 1 + draw() % static_cast<unsigned>(size);
    std::vector<std::string> outcomes(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto at = static_cast<std::size_t>(order[i]);
      const int named = i < dead ? order[i] : order[draw() % i];
      const bool formed = i >= dead && draw() % 3 == 0;
      outcomes[at] =
          formed ? kFormed : fmt::format("lost {}", ranks[static_cast<std::size_t>(named)]);
      // Nobody names a rank that formed the group.
      if (formed) order[i] = order[0];
    }
    const std::set<int> expected(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(dead));
    EXPECT_EQ(ranks_called("lost", outcomes, group.members, group), expected) << seed;
  }
}

TEST(OutcomesTest, TheFirstErrorOfARanksOwnIsTold) {
  const JobGroup group = group_of({1, 4});
  EXPECT_EQ(own_error({"lost 4", "error no memory"}, group), "rank 4 of the job: no memory");
  EXPECT_EQ(own_error({"lost 4", kFormed}, group), "");
  EXPECT_TRUE(all_formed({kFormed, kFormed}));
  EXPECT_FALSE(all_formed({kFormed, "lost 1"}));
}

}  // namespace
}  // namespace gantry
