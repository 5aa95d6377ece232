// A job from its start to its result, in this process. The ranks are small shell programs.
#include "launcher/run/processes/supervisor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace gantry::launcher {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Sleeps until a signal ends it.
constexpr const char* kSleep = "exec sleep 3600";

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    options_.output.stdin_mode = StdinMode::none;
    options_.failure.restart_delay = std::chrono::milliseconds(1);
  }
  ~SupervisorTest() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
    EXPECT_EQ(errno, ECHILD);
  }

  // The result of a job whose ranks run `script`, with their number in $RANK.
  JobResult run(int ranks, const std::string& script) {
    Plan plan;
    plan.command = {"/bin/sh", "-c", script};
    plan.host = "here";
    plan.elastic = options_.failure.elastic;
    for (int rank = 0; rank < ranks; ++rank) {
      RankPlan& one = plan.ranks.emplace_back();
      one.rank = rank;
      one.local_rank = rank;
    }
    return run(plan);
  }
  JobResult run(const Plan& plan) {
    Supervisor supervisor(options_, plan, environment_);
    return supervisor.run();
  }
  // A member of each rank's result.
  template <class T>
  static std::vector<T> each(const JobResult& job, T RankResult::*member) {
    std::vector<T> all;
    for (const RankResult& rank : job.ranks) all.push_back(rank.*member);
    return all;
  }

  const Environment environment_{{"PATH", "/usr/bin:/bin"}};
  JobOptions options_;
};

TEST_F(SupervisorTest, AJobThatEndsWellHasEveryRankOnce) {
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    const JobResult job = run(ranks, "exit 0");
    EXPECT_EQ(job.outcome, Outcome::ok);
    EXPECT_EQ(job.exit_code(), 0);
    ASSERT_THAT(job.ranks, SizeIs(ranks));
    std::set<pid_t> pids;
    std::set<int> orders;
    for (const RankResult& rank : job.ranks) {
      EXPECT_EQ(rank.exit_reason(), ExitReason::ok);
      pids.insert(rank.pid);
      orders.insert(rank.order);
    }
    EXPECT_THAT(pids, SizeIs(ranks));
    EXPECT_EQ(*orders.begin(), 0);
    EXPECT_EQ(*orders.rbegin(), ranks - 1);
  }
}

TEST_F(SupervisorTest, AFailureInTheMiddleStopsTheOthers) {
  const JobResult job = run(3, std::string("[ $RANK = 1 ] && exit 7; ") + kSleep);
  EXPECT_EQ(job.outcome, Outcome::rank_failed);
  EXPECT_EQ(job.exit_code(), 7);
  EXPECT_THAT(each(job, &RankResult::exit_code), ElementsAre(0, 7, 0));
  EXPECT_THAT(each(job, &RankResult::signal), ElementsAre(SIGTERM, 0, SIGTERM));
  EXPECT_THAT(each(job, &RankResult::stopped_by_glaunch), ElementsAre(true, false, true));
  EXPECT_EQ(job.ranks[1].order, 0);
  ASSERT_NE(job.root_failure(), nullptr);
  EXPECT_EQ(job.root_failure()->rank, 1);
}

TEST_F(SupervisorTest, WithKeepGoingTheOthersEndByThemselves) {
  options_.failure.keep_going = true;
  const JobResult job = run(3, "[ $RANK = 1 ] && exit 7; [ $RANK = 2 ] && kill -KILL $$; exit 0");
  EXPECT_EQ(job.outcome, Outcome::rank_failed);
  EXPECT_THAT(each(job, &RankResult::exit_code), ElementsAre(0, 7, 0));
  EXPECT_THAT(each(job, &RankResult::signal), ElementsAre(0, 0, SIGKILL));
  EXPECT_THAT(each(job, &RankResult::stopped_by_glaunch), Each(false));
  EXPECT_THAT(each(job, &RankResult::order), UnorderedElementsAre(0, 1, 2));
}

// The children of ranks become children of this process, which the fixture looks for.
TEST_F(SupervisorTest, AJobIsOverOnlyWhenWhatRanksLeftBehindIsGone) {
  const JobResult job = run(3, "setsid sleep 3600 & exit 0");
  EXPECT_EQ(job.outcome, Outcome::ok);
  EXPECT_THAT(each(job, &RankResult::stopped_by_glaunch), Each(false));
}

TEST_F(SupervisorTest, AProgramThatCannotStartStartsNoRank) {
  Plan plan;
  plan.command = {"/bin/sh", "-c", "exit 0"};
  for (const int rank : {0, 1, 2}) {
    RankPlan& one = plan.ranks.emplace_back();
    one.rank = rank;
    one.local_rank = rank;
    if (rank == 1) one.wrapper = {"/nowhere/wrapper"};
  }
  for (const bool has_wrapper : {true, false}) {
    const JobResult job = run(plan);
    EXPECT_EQ(job.outcome, Outcome::not_started);
    EXPECT_EQ(job.exit_code(), 127);
    EXPECT_THAT(job.start_error, ::testing::HasSubstr("/nowhere"));
    EXPECT_THAT(each(job, &RankResult::started), Each(false));
    if (!has_wrapper) break;
    plan.ranks[1].wrapper.clear();
    plan.command.front() = "/nowhere/program";
  }
}

TEST_F(SupervisorTest, AJobStartsAgainAsOftenAsItMay) {
  for (const int most : {0, 1, 2}) {
    SCOPED_TRACE(most);
    options_.failure.max_restarts = most;
    const JobResult job = run(2, std::string("[ $RANK = 1 ] && exit 7; ") + kSleep);
    EXPECT_EQ(job.outcome, Outcome::rank_failed);
    ASSERT_THAT(job.earlier_runs, SizeIs(most));
    std::vector<std::string> ids;
    for (const EarlierRun& earlier : job.earlier_runs) {
      EXPECT_EQ(earlier.exit_code, 7);
      EXPECT_EQ(earlier.first_failure, 1);
      ids.push_back(earlier.job_id);
    }
    ids.push_back(job.job_id);
    for (std::size_t restart = 1; restart < ids.size(); ++restart) {
      EXPECT_EQ(ids[restart], ids[0] + "." + std::to_string(restart));
    }
  }
}

TEST_F(SupervisorTest, ARestartThatEndsWellIsTheResult) {
  options_.failure.max_restarts = 3;
  const JobResult job = run(3, "[ $RANK = 2 ] && [ $GANTRY_RESTART -lt 2 ] && exit 7; exit 0");
  EXPECT_EQ(job.outcome, Outcome::ok);
  EXPECT_EQ(job.exit_code(), 0);
  EXPECT_THAT(job.earlier_runs, SizeIs(2));
  EXPECT_THAT(each(job, &RankResult::started), Each(true));
  EXPECT_THAT(each(job, &RankResult::exit_code), Each(0));
}

TEST_F(SupervisorTest, ASignalEndsTheJobAndItsRestarts) {
  options_.failure.max_restarts = 3;
  const JobResult job = run(3, std::string("[ $RANK = 2 ] && kill -TERM $PPID; ") + kSleep);
  EXPECT_EQ(job.outcome, Outcome::interrupted);
  EXPECT_EQ(job.signal, SIGTERM);
  EXPECT_EQ(job.exit_code(), 128 + SIGTERM);
  EXPECT_THAT(job.earlier_runs, IsEmpty());
  EXPECT_THAT(each(job, &RankResult::stopped_by_glaunch), Each(true));
}

TEST_F(SupervisorTest, ARankThatFailsIsReplacedWhileEnoughRun) {
  options_.failure.max_restarts = 2;
  options_.failure.elastic = ElasticRange{.fewest = 1, .most = 3};
  // The others wait for the second process of rank 1, which ends them.
  const JobResult job = run(3,
                            "[ $RANK = 1 ] || exec sleep 3600; [ $GANTRY_RESTART = 0 ] && exit 7; "
                            "kill -TERM $PPID; exec sleep 3600");
  EXPECT_EQ(job.outcome, Outcome::interrupted);
  ASSERT_THAT(job.replaced, SizeIs(1));
  EXPECT_EQ(job.replaced.front().rank, 1);
  EXPECT_EQ(job.replaced.front().exit_code, 7);
  EXPECT_NE(job.replaced.front().pid, job.ranks[1].pid);
  EXPECT_THAT(each(job, &RankResult::stopped_by_glaunch), Each(true));
  EXPECT_THAT(job.earlier_runs, IsEmpty());
}

}  // namespace
}  // namespace gantry::launcher
