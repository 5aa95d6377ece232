#include "launcher/run/failures/replacements.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace gantry::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

FailureOptions elastic_options(int most_replacements) {
  FailureOptions options;
  options.elastic = ElasticRange{1, 3};
  options.max_restarts = most_replacements;
  options.restart_delay = 1s;
  return options;
}

RankResult failure(int rank, int exit_code, int signal = 0) {
  RankResult result;
  result.rank = rank;
  result.started = result.ended = true;
  result.exit_code = exit_code;
  result.signal = signal;
  return result;
}

class ReplacementsTest : public ::testing::Test {
 protected:
  ReplacementsTest()
      : server_({.address = fmt::format("unix:@gantry-replacements-{}", getpid())}),
        store_(server_.address(), -1) {
    for (int rank = 0; rank < 3; ++rank) {
      job_.ranks.emplace_back();
      job_.ranks.back().rank = rank;
      job_.ranks.back().started = true;
    }
  }

  StoreServer server_;
  StoreClient store_;
  JobResult job_;
  Clock::time_point now_;
  Replacements ranks_{elastic_options(5), 3, [this] { return now_; }};
};

TEST_F(ReplacementsTest, ARankThatEndedOrWaitsDoesNotCount) {
  EXPECT_THAT(ranks_.counted(job_, store_), ElementsAre(0, 1, 2));
  job_.ranks[0].ended = true;
  EXPECT_THAT(ranks_.counted(job_, store_), ElementsAre(1, 2));
  job_.ranks[0].ended = false;
  EXPECT_EQ(ranks_.begin(0), 1);
  EXPECT_EQ(ranks_.id_of(0), 3);
  // Before there is a group, only a replacement that waits does not count.
  EXPECT_THAT(ranks_.counted(job_, store_), ElementsAre(0, 1, 2));
  announce_arrival(store_, {0, 3, "v"});
  EXPECT_THAT(ranks_.counted(job_, store_), ElementsAre(1, 2));
  set_joined(store_, 3, true);
  EXPECT_THAT(ranks_.counted(job_, store_), ElementsAre(0, 1, 2));
  EXPECT_FALSE(ranks_.is_outside(0, store_));
  store_.set(kFormedKey, "");
  EXPECT_EQ(ranks_.begin(2), 2);
  EXPECT_EQ(ranks_.id_of(2), 4);
  EXPECT_TRUE(ranks_.is_outside(2, store_));
  EXPECT_THAT(ranks_.counted(job_, store_), ElementsAre(0, 1));
  set_joined(store_, 3, false);
  EXPECT_THAT(ranks_.counted(job_, store_), ElementsAre(1));
  job_.ranks[1].ended = true;
  EXPECT_THAT(ranks_.counted(job_, store_), IsEmpty());
}

TEST_F(ReplacementsTest, PausesDoubleForEachRankAlone) {
  std::string why;
  EXPECT_EQ(ranks_.plan(failure(0, 1), why), 1s);
  EXPECT_EQ(ranks_.deadline(), now_ + 1s);
  EXPECT_EQ(ranks_.take_due(), std::nullopt);
  now_ += 1s;
  EXPECT_EQ(ranks_.take_due(), 0);
  EXPECT_EQ(ranks_.take_due(), std::nullopt);
  EXPECT_EQ(ranks_.deadline(), std::nullopt);
  (void)ranks_.begin(0);
  EXPECT_EQ(ranks_.plan(failure(0, 0, SIGKILL), why), 2s);
  EXPECT_EQ(ranks_.plan(failure(2, 1), why), 1s);
  EXPECT_EQ(ranks_.deadline(), now_ + 1s);
  ranks_.cancel();
  EXPECT_EQ(ranks_.deadline(), std::nullopt);
  (void)ranks_.begin(0);
  now_ += 10min;
  EXPECT_EQ(ranks_.plan(failure(0, 1), why), 1s);
}

TEST_F(ReplacementsTest, SomeFailuresAreNotReplaced) {
  std::string why;
  for (const int code : {125, 126, 127}) {
    EXPECT_EQ(ranks_.plan(failure(0, code), why), std::nullopt);
    EXPECT_EQ(why, fmt::format("a second try does not mend exit code {}", code));
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(ranks_.plan(failure(i % 3, 128), why));
  EXPECT_EQ(ranks_.plan(failure(1, 1), why), std::nullopt);
  EXPECT_EQ(why, "--max-restarts allows 5 replacements");
  EXPECT_EQ(ranks_.planned(), 5);
}

TEST_F(ReplacementsTest, WithoutTheOptionRanksKeepTheirNumbers) {
  const Replacements none(FailureOptions(), 3);
  EXPECT_FALSE(none.is_elastic());
  EXPECT_EQ(none.id_of(2), 2);
}

}  // namespace
}  // namespace gantry::launcher
