// Elastic jobs with real processes: ranks are killed, replaced, and the others grow.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gantry/collectives/communicator.hpp>
#include <gantry/core/env.hpp>
#include <gantry/core/error.hpp>

#include "core/text/json.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/flight_folder.hpp"
#include "tests/support/subprocess.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry {
namespace {

using testing::Command;
using testing::FlightFolder;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_command;

const std::string kActor = std::string(GANTRY_TEST_PROGRAM_DIR) + "/elastic_actor";

int count_of(const std::string& text, const std::string& phrase) {
  int count = 0;
  for (auto at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1))
    ++count;
  return count;
}

class ElasticTest : public testing::DeviceTest {
 protected:
  static int ranks() { return std::min(device_count(), 4); }

  // Runs a shell script, where $actor is the actor, with a deadline that no test waits for.
  Outcome glaunch(std::vector<std::string> options, const std::string& script,
                  std::map<std::string, std::optional<std::string>> environment = {}) {
    return run_command(command(std::move(options), script, std::move(environment)));
  }
  Command command(std::vector<std::string> options, const std::string& script,
                  std::map<std::string, std::optional<std::string>> environment = {}) const {
    std::vector<std::string> argv{GLAUNCH_PROGRAM, "--report", report_path()};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--", "sh", "-c", script});
    environment["actor"] = kActor;
    environment["TMPDIR"] = folder_.path().string();
    return {.argv = std::move(argv),
            .environment = std::move(environment),
            .timeout = std::chrono::seconds(300)};
  }
  Outcome elastic(const std::string& script,
                  std::map<std::string, std::optional<std::string>> environment = {}) {
    return glaunch({"--elastic", fmt::format("1:{}", ranks()), "--restart-delay", "0"}, script,
                   std::move(environment));
  }
  // The script succeeds, and the ranks say each text so often.
  void expect_said(const Outcome& outcome,
                   const std::vector<std::pair<std::string, int>>& said) const {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    for (const auto& [text, count] : said) {
      EXPECT_EQ(count_of(outcome.out, text), count) << text << "\n" << outcome.describe();
    }
  }
  std::string report_path() const { return (folder_.path() / "report").string(); }
  Json report() const {
    std::ifstream file(report_path());
    return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  // True if no file of glaunch's is left. Flight files of groups that broke stay.
  bool is_clean() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      if (entry.path() != report_path()) return false;
    }
    return true;
  }

  testing::TemporaryFolder folder_;
  FlightFolder flights_;
};

// Every rank that ends otherwise than by its own SIGKILL would be one that could not go on.
void expect_only_kills(const Json& report, int least) {
  const Json replaced = report.at("replaced");
  for (std::size_t i = 0; i < replaced.size(); ++i) {
    EXPECT_EQ(replaced.at(i).at("exit_code"), 128 + SIGKILL) << replaced.at(i).dump(2);
  }
  EXPECT_GE(replaced.size(), static_cast<std::size_t>(least));
}

TEST_F(ElasticTest, ThirtyRoundsOfKillAndReplace) {
  GANTRY_REQUIRE_DEVICES(2);
  const auto seed = env::get_int("GANTRY_TEST_SEED", 0, INT64_MAX).value_or(1);
  const auto rounds = env::get_int("GANTRY_TEST_ROUNDS", 1, 100'000).value_or(30);
  const Outcome outcome = glaunch({"--elastic", fmt::format("1:{}", ranks()), "--max-restarts",
                                   "1000000", "--restart-delay", "0", "--tail", "0"},
                                  fmt::format("exec $actor rounds {} {}", rounds, seed));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "is done"), ranks()) << outcome.describe();
  expect_only_kills(report(), static_cast<int>(rounds));
}

TEST_F(ElasticTest, RanksOfSeveralMachinesGrowOverTheStore) {
  GANTRY_REQUIRE_SIM();
  const Outcome outcome = elastic("GANTRY_BOOT_ID=host-$((GANTRY_RANK / 2)) exec $actor die joins");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("[1] rank 1 of 4 is number 1\n"));
}

TEST_F(ElasticTest, AReplacementHasTheRankOfTheProcessBeforeIt) {
  GANTRY_REQUIRE_DEVICES(4);
  for (const char* mode : {"probe", "off"}) {
    const Outcome outcome = elastic("exec $actor die joins", {{"GANTRY_P2P", mode}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    for (const char* line : {"[0] rank 0 of 4 was 0\n", "[1] rank 1 of 4 is number 1\n",
                             "[2] rank 2 of 4 was 1\n", "[3] rank 3 of 4 was 2\n"}) {
      EXPECT_THAT(outcome.out, HasSubstr(line)) << mode << outcome.describe();
    }
    expect_only_kills(report(), 1);
  }
  EXPECT_TRUE(is_clean());
}

TEST_F(ElasticTest, AReplacementThatDiesWhileItJoinsIsReplaced) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = elastic("exec $actor die dies-half-way");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("[1] rank 1 of 4 is number 2\n")) << outcome.describe();
  EXPECT_EQ(count_of(outcome.out, "grow: nothing\n"), 3) << outcome.describe();
  expect_only_kills(report(), 2);
}

TEST_F(ElasticTest, AReplacementThatNeverComesIsATimeoutThatChangesNothing) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = elastic("exec $actor die never-comes 500");
  expect_said(outcome, {{"grow: TimeoutError: grow: expected 4 ranks within 500 ms, but got 3: "
                         "rank(s) 1 of the job did not come\n",
                         3}});
  EXPECT_THAT(outcome.err,
              HasSubstr("stops rank 1, which no group has taken in: the others have ended\n"));
  EXPECT_EQ(report().at("ranks").at(1).at("class"), "stopped_by_glaunch");
}

TEST_F(ElasticTest, AReplacementOfAnotherVersionIsRefused) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = elastic("exec $actor die is-old");
  expect_said(
      outcome,
      {{"grow: InvalidArgument: grow: expected one version of gantry in a group, but rank 0 "
        "of the job has gantry-10 and rank 1 has gantry-0\n",
        3}});
}

TEST_F(ElasticTest, AReplacementWithOtherSettingsIsRefusedByAll) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome =
      glaunch({"--elastic", "1:4", "--max-restarts", "1"},
              "[ $GANTRY_RESTART = 1 ] && export GANTRY_COLL_ALGO=one_shot; exec $actor die joins");
  expect_said(outcome, {{"grow: InvalidArgument: Communicator::world.grow1: expected one platform, "
                         "one GANTRY_COLL_ALGO",
                         3}});
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 is not replaced: --max-restarts allows 1 "));
}

TEST_F(ElasticTest, RefusedArgumentsLeaveTheGroupAsItIs) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = elastic("exec $actor refusals", {{"GANTRY_COLL_TIMEOUT", "600"}});
  for (const int expected : {-1, 3, 4, 5}) {
    expect_said(outcome,
                {{fmt::format("{0}: InvalidArgument: grow: expected more than the 4 rank(s) "
                              "of the group, and at most the 4 of the job, but got {0}\n",
                              expected),
                  4}});
  }
  expect_said(
      outcome,
      {{"late: InvalidArgument: grow: expected a timeout of 0 or more, but got -1 ms", 4},
       {"differ: InvalidArgument: grow: expected the same call on every rank, but rank 0 called "
        "grow(3, 600000 ms) and rank 1 called grow(4, 600000 ms)",
        4},
       {"other: InvalidArgument: collective #1: expected the same call on every rank, ", 4},
       {"but rank 0 called grow and rank 1 called all_gather_bytes", 4}});
}

TEST_F(ElasticTest, OneGroupOfAJobGrowsAtATime) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = elastic("exec $actor two-at-once");
  expect_said(outcome, {{"TimeoutError: grow: expected 4 ranks within 4 s, but got 2: rank(s) 2, 3 "
                         "of the job did not come\n",
                         2},
                        {"Error: grow: expected one group of the job that grows, but rank 0 of the "
                         "job leads another one\n",
                         2}});
}

TEST_F(ElasticTest, RanksThatHaveEndedAreNotAwaited) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = elastic("exec $actor ends");
  expect_said(outcome, {{"grow: PeerLostError -1: grow: expected 4 ranks, but 1 of the job's 4 "
                         "ranks have ended\n",
                         2}});
}

TEST_F(ElasticTest, WithoutAnElasticJobGrowIsNotSupported) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = glaunch({"-n", "4"}, "exec $actor refusals");
  EXPECT_EQ(count_of(outcome.out,
                     "5: NotSupported: grow: expected a job of glaunch --elastic, or a group with "
                     "ConnectOptions::elastic or GANTRY_ELASTIC, but this process was started by "
                     "glaunch without that option\n"),
            4)
      << outcome.describe();
  const std::vector<Communicator> local = Communicator::local({Device::cuda(0), Device::cuda(1)});
  EXPECT_ERROR(local[0].grow(3), NotSupported, "but this process was started by local");
}

TEST_F(ElasticTest, AProgramThatDoesNotGrowEndsAsItsFirstRankDid) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = elastic("exec $actor unaware");
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("failed by itself: rank 1 (SIGKILL)\n"));
  EXPECT_THAT(outcome.err, HasSubstr("failed because of another rank: ranks 0, 2, 3 (SIGABRT)\n"))
      << outcome.describe();
  EXPECT_EQ(report().at("first_failure"), 1);
}

// The others' ends reach glaunch after several replacements of rank 1 have found nobody to join.
TEST_F(ElasticTest, AJobThatEndsWithReplacementsOfReplacementsEndsAsItsFirstRankDid) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = elastic(
      "[ $GANTRY_RESTART -lt 3 ] || : >$TMPDIR/third; $actor unaware; code=$?; "
      "[ $GANTRY_RESTART -gt 0 ] || [ $GANTRY_RANK = 1 ] || "
      "until [ -e $TMPDIR/third ]; do sleep 0.01; done; exit $code");
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("failed by itself: rank 1 (code 137)\n"))
      << outcome.describe();
  EXPECT_EQ(report().at("first_failure"), 1);
}

// No rank waits for a replacement that nobody starts any more.
TEST_F(ElasticTest, ALauncherThatIsKilledWhileRanksGrowLeavesNothing) {
  GANTRY_REQUIRE_DEVICES(4);
  testing::Subprocess job(command({"--elastic", "1:4", "--restart-delay", "0"},
                                  "echo pid $$ end; exec $actor die never-comes"));
  for (const int rank : {0, 2, 3}) {
    ASSERT_TRUE(job.wait_for_output(fmt::format("[{}] grows", rank)));
  }
  job.send_signal(SIGKILL);
  const Outcome outcome = job.wait();
  EXPECT_FALSE(outcome.timed_out) << outcome.describe();
  EXPECT_GE(count_of(outcome.out, "pid "), 4) << outcome.describe();
  EXPECT_THAT(outcome.out, Not(HasSubstr("grow: ")));
  EXPECT_TRUE(testing::eventually([&] { return is_clean(); }));
}

TEST_F(ElasticTest, TooFewRanksEndTheJobAsTheFirstOneDid) {
  GANTRY_REQUIRE_DEVICES(4);
  const Outcome outcome = glaunch({"--elastic", "4:4"}, "exec $actor rounds 30 1");
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("failed by itself: rank"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("replacement")));
}

}  // namespace
}  // namespace gantry
