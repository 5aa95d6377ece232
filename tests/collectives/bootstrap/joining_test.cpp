#include "collectives/bootstrap/joining.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>

#include <gantry/core/error.hpp>

#include "tests/support/expect_error.hpp"
#include "tests/support/rank_threads.hpp"

namespace gantry {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using testing::rank_threads;

constexpr milliseconds kLong = std::chrono::minutes(1);

// A store as glaunch serves it, and connections to it as processes of an elastic job of 2 to 4
// ranks have them.
class JoiningTest : public ::testing::Test {
 protected:
  JoiningTest()
      : server_({.address = fmt::format("unix:@gantry-joining-{}-{}", getpid(), jobs_++)}) {
    setenv("GANTRY_ELASTIC", "2:4", 1);
  }
  ~JoiningTest() override {
    unsetenv("GANTRY_ELASTIC");
    unsetenv("GANTRY_RESTART");
  }
  std::shared_ptr<JobConnection> connect(int rank, int replacement = 0) {
    setenv("GANTRY_RESTART", std::to_string(replacement).c_str(), 1);
    ProcessIdentity identity;
    identity.rank = rank;
    identity.world_size = 4;
    identity.source = "glaunch";
    identity.rendezvous = server_.address();
    return std::make_shared<JobConnection>(identity, StoreRole::of(identity), kLong);
  }

  static inline int jobs_ = 0;
  StoreServer server_;
};

TEST_F(JoiningTest, AProcessThatReplacesAnotherHasANumberOfItsOwn) {
  EXPECT_EQ(connect(2)->self(), (JobMember{2, 2}));
  EXPECT_EQ(connect(2, 1)->self(), (JobMember{2, 4}));
  EXPECT_EQ(connect(0, 7)->self(), (JobMember{0, 10}));
}

TEST_F(JoiningTest, MalformedTermsAreAnError) {
  for (const char* terms : {"2", "0:4", "2:5", "5:4", "a:b", "2:4:6"}) {
    setenv("GANTRY_ELASTIC", terms, 1);
    EXPECT_ERROR(connect(0), InvalidArgument, "GANTRY_ELASTIC: expected");
  }
}

// Members are lost before, while or after they write. What the others read is the same on all.
TEST_F(JoiningTest, AllMembersReadTheSameOutcomes) {
  std::vector<std::shared_ptr<JobConnection>> ranks;
  std::vector<JobMember> members;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(connect(rank));
    members.push_back(ranks.back()->self());
  }
  int both = 0;
  for (int seed = 0; seed < 200; ++seed) {
    std::mt19937 draw(static_cast<unsigned>(seed));
    // Its loss and what it writes race; its number is one that this round alone uses.
    const JobMember dying{3, 1000 + seed};
    members[3] = dying;
    const std::string key = fmt::format("agreement/{}", seed);
    const bool writes = draw() % 4 != 0;
    const auto pause = [&, spins = draw() % 2000](unsigned more) {
      for (std::atomic<unsigned> i = 0; i < spins + more; ++i) {
      }
    };
    std::vector<std::vector<std::string>> outcomes(3);
    rank_threads(4, [&](int rank) {
      if (rank < 3) {
        outcomes[static_cast<std::size_t>(rank)] = ranks[static_cast<std::size_t>(rank)]->agree(
            key, members, fmt::format("ok {}", rank), kLong);
        return;
      }
      std::thread killer([&] {
        pause(0);
        server_.mark_lost(dying.id);
      });
      pause(500);
      if (writes) {
        (void)ranks[3]->write_once(JobConnection::register_key(key, dying), "ok 3");
      }
      killer.join();
    });
    EXPECT_EQ(outcomes[0], outcomes[1]) << seed;
    EXPECT_EQ(outcomes[0], outcomes[2]) << seed;
    EXPECT_THAT(outcomes[0],
                ElementsAre("ok 0", "ok 1", "ok 2", ::testing::AnyOf("ok 3", "lost 3")))
        << seed;
    EXPECT_TRUE(writes || outcomes[0][3] == "lost 3") << seed;
    both |= outcomes[0][3] == "ok 3" ? 1 : 2;
  }
  EXPECT_EQ(both, 3) << "no race";
}

TEST_F(JoiningTest, AMemberThatIsLateReadsThatItIs) {
  const auto early = connect(0);
  const auto late = connect(1);
  const std::vector<JobMember> members{early->self(), late->self()};
  EXPECT_THAT(early->agree("late", members, "ok", milliseconds(20)), ElementsAre("ok", "late 1"));
  EXPECT_THAT(late->agree("late", members, "ok", kLong), ElementsAre("ok", "late 1"));
}

TEST_F(JoiningTest, PlansAreReadAsTheyWereWritten) {
  using Step = GrowPlan::Step;
  for (const GrowPlan& plan :
       {GrowPlan{.step = Step::form, .number = 7, .members = {{0, 0}, {1, 12}, {3, 3}}},
        GrowPlan{.step = Step::lost, .rank = 2}, GrowPlan{.step = Step::too_few, .text = "a, b: c"},
        GrowPlan{.step = Step::refused, .text = "x"}, GrowPlan{.step = Step::busy, .text = "y z"},
        GrowPlan{.step = Step::ended, .text = "1 of 2"}}) {
    const GrowPlan read = GrowPlan::parse(plan.str());
    EXPECT_EQ(read.step, plan.step);
    EXPECT_EQ(read.number, plan.number);
    EXPECT_EQ(read.rank, plan.rank);
    EXPECT_EQ(read.members, plan.members);
    EXPECT_EQ(read.text, plan.text);
  }
  EXPECT_EQ(GrowPlan::parse("late 0").step, Step::too_few);
  EXPECT_ERROR(GrowPlan::parse("\x1b[2J"), Error, "but got '\\x1b[2J'");
}

// Replacements that died, that are in a group, or whose rank the group has do not join.
TEST_F(JoiningTest, ALeaderInvitesThoseThatCanJoinInTheOrderOfTheRanks) {
  const auto leader = connect(0);
  const JobGroup group{leader, {{0, 0}, {3, 3}}};
  const auto lost = connect(1, 1);
  JoiningRank first(*lost);
  server_.mark_lost(lost->self().id);
  const auto busy = connect(2, 2);
  JoiningRank second(*busy);
  second.note_joined(true);
  const auto stale = connect(3, 3);
  JoiningRank third(*stale);
  const auto two = connect(2, 4);
  JoiningRank fourth(*two);
  const auto one = connect(1, 5);
  JoiningRank fifth(*one);
  GrowLeader grow(group, 4, kLong);
  const GrowPlan plan = grow.collect();
  ASSERT_EQ(plan.step, GrowPlan::Step::form) << plan.str();
  // A rank that is not invited would wait below.
  ASSERT_THAT(plan.members,
              ElementsAre(JobMember{0, 0}, JobMember{1, 8}, JobMember{2, 7}, JobMember{3, 3}));
  grow.invite(plan);
  for (JoiningRank* joining : {&fourth, &fifth}) {
    const Invitation invitation = joining->await();
    EXPECT_EQ(invitation.number, plan.number);
    EXPECT_EQ(invitation.members, plan.members);
  }
}

// Members of a group that failed to form must not take what they read there for the next one's.
TEST_F(JoiningTest, EveryGroupThatIsPlannedHasANumberOfItsOwn) {
  const auto leader = connect(0);
  const auto other = connect(1, 1);
  const JoiningRank joining(*other);
  const JobGroup group{leader, {leader->self()}};
  std::set<std::int64_t> numbers;
  for (int call = 0; call < 2; ++call) {
    GrowLeader grow(group, 2, kLong);
    for (int attempt = 0; attempt < 2; ++attempt) numbers.insert(grow.collect().number);
  }
  EXPECT_EQ(numbers.size(), 4U);
}

TEST_F(JoiningTest, ALeaderThatIsLostMakesRoomForAnotherOne) {
  const auto first = connect(0);
  const auto second = connect(1);
  const auto collect = [](const std::shared_ptr<JobConnection>& job) {
    return std::make_unique<GrowLeader>(JobGroup{job, {job->self()}}, 4, milliseconds(1));
  };
  const auto leads = collect(first);
  EXPECT_EQ(leads->collect().step, GrowPlan::Step::too_few);
  EXPECT_EQ(collect(second)->collect().step, GrowPlan::Step::busy);
  server_.mark_lost(0);
  const auto next = collect(second);
  // The news of a loss travels.
  while (next->collect().step == GrowPlan::Step::busy) std::this_thread::yield();
  EXPECT_EQ(next->collect().step, GrowPlan::Step::too_few);
}

TEST_F(JoiningTest, ALeaderSeesThatARankOfItsGroupIsLost) {
  const auto leader = connect(0);
  server_.mark_lost(2);
  GrowLeader grow({leader, {{0, 0}, {2, 2}}}, 4, kLong);
  const GrowPlan plan = grow.collect();
  EXPECT_EQ(plan.step, GrowPlan::Step::lost);
  EXPECT_EQ(plan.rank, 2);
}

// No rank of the start is left, and the only other replacement waits, too.
TEST_F(JoiningTest, AReplacementThatNobodyCanInviteGivesUp) {
  const auto waiting = connect(1, 1);
  const auto other = connect(2, 2);
  JoiningRank joining(*waiting);
  const JoiningRank also(*other);
  for (int rank = 0; rank < 4; ++rank) server_.mark_lost(rank);
  EXPECT_ERROR(joining.await(), PeerLostError,
               "rank 1 replaces a rank that was lost, but no rank is left");
}

}  // namespace
}  // namespace gantry
