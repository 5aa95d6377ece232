#include "launcher/run/plan/gpu_claims.hpp"

#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <set>
#include <thread>

#include <gantry/core/error.hpp>

#include "core/files/socket.hpp"
#include "tests/launcher/launch_fixture.hpp"

namespace gantry::launcher {
namespace {

using namespace std::chrono_literals;
using testing::Command;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Outcome;
using testing::Subprocess;

// A name that no other process of the tests has.
std::string own(const std::string& name) { return "GPU-" + name + "-" + std::to_string(getpid()); }

TEST(GpuClaimsTest, AGpuHasOneOwner) {
  GpuClaims first;
  EXPECT_THAT(first.claim({own("a"), own("b"), own("c")}), IsEmpty());
  EXPECT_THAT(first.claim({own("a")}), IsEmpty());  // it is its own
  {
    GpuClaims second;
    EXPECT_THAT(second.claim({own("a"), own("d"), own("c")}), ElementsAre(own("a"), own("c")));
    first.keep({own("a")});
    EXPECT_THAT(second.claim({own("c")}), IsEmpty());
    EXPECT_THAT(first.claim({own("d")}), ElementsAre(own("d")));
  }
  EXPECT_THAT(first.claim({own("d")}), IsEmpty());
}

TEST(GpuClaimsTest, ChoicesTakeTurns) {
  std::optional<ChoiceTurn> turn(std::in_place, 30s);
  EXPECT_THROW(ChoiceTurn(20ms), Error);
  std::atomic<int> inside{1};
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i) {
    others.emplace_back([&] {
      const ChoiceTurn own_turn(30s);
      EXPECT_EQ(inside.fetch_add(1), 0);
      std::this_thread::yield();
      inside.fetch_sub(1);
    });
  }
  std::this_thread::yield();
  inside.fetch_sub(1);
  turn.reset();
  for (std::thread& other : others) other.join();
}

// Any user of the machine can bind an abstract name.
TEST(GpuClaimsTest, NoNameThatAnotherUserHasKeepsGlaunchFromChoosing) {
  SocketAddress name{
      .kind = SocketAddress::Kind::unix_abstract, .name = "gantry-gpu-choice", .port = 0};
  const UniqueFd strangers = listen_at(name);
  EXPECT_NO_THROW(ChoiceTurn(20ms));
}

class IdleGpusTest : public testing::LaunchTest {
 protected:
  // A job that writes its GPUs to the console and stays.
  Command job(const std::string& gpus) const {
    Command command = launch({"--gpus", gpus, "--no-prefix", "sh", "-c",
                              "echo gpus $CUDA_VISIBLE_DEVICES.; exec sleep 1000"});
    on_fake_gpus(command);
    return command;
  }
  void on_fake_gpus(Command& command) const {
    command.environment["GANTRY_SIM_DEVICES"] = std::nullopt;
    command.environment["CUDA_VISIBLE_DEVICES"] = std::nullopt;
    command.environment["GANTRY_NVML_PATH"] = GANTRY_TEST_FAKE_NVML;
    std::string devices;
    std::string facts;
    for (int i = 0; i < 4; ++i) {
      devices +=
          "H200," + own(std::to_string(i)) + ",00000000:0" + std::to_string(i + 1) + ":00.0;";
      facts += std::to_string(i) + " processes;";
    }
    command.environment["FAKE_NVML"] = devices;
    command.environment["FAKE_NVML_FACTS"] = facts;
  }
  // The GPUs in what a job wrote.
  static std::set<std::string> gpus_of(const std::string& out) {
    const std::size_t begin = out.find("gpus ") + 5;
    std::istringstream list(out.substr(begin, out.find('.', begin) - begin));
    std::set<std::string> gpus;
    for (std::string uuid; std::getline(list, uuid, ',');) gpus.insert(uuid);
    return gpus;
  }
};

TEST_F(IdleGpusTest, JobsThatStartTogetherGetDifferentOnes) {
  std::vector<Subprocess> jobs;
  for (const char* gpus : {"idle:1", "idle:2", "idle:1"}) jobs.emplace_back(job(gpus));
  for (Subprocess& one : jobs) ASSERT_TRUE(one.wait_for_output(".\n"));

  // None is left, and the sentence says who has them.
  const Outcome none = run_command(job("idle:1"));
  EXPECT_EQ(none.exit_code, 125) << none.describe();
  EXPECT_THAT(none.err, HasSubstr("glaunch: --gpus idle:1: only 0 of 4 GPUs are idle; jobs of "
                                  "glaunch have 4 of them\n"));

  // A killed glaunch has none.
  jobs[1].send_signal(SIGKILL);
  const std::set<std::string> freed = gpus_of(jobs[1].wait().out);
  EXPECT_EQ(freed.size(), 2U);
  Subprocess next(job("idle:2"));
  ASSERT_TRUE(next.wait_for_output(".\n"));
  std::vector<Subprocess> running;
  running.push_back(std::move(jobs[0]));
  running.push_back(std::move(jobs[2]));
  running.push_back(std::move(next));
  std::set<std::string> all;
  std::size_t count = 0;
  for (Subprocess& one : running) {
    one.send_signal(SIGTERM);
    const std::set<std::string> gpus = gpus_of(one.wait().out);
    count += gpus.size();
    all.insert(gpus.begin(), gpus.end());
  }
  EXPECT_EQ(count, 4U);
  EXPECT_EQ(all.size(), 4U);
}

TEST_F(IdleGpusTest, GpusOfAJobThatNamedThemAreNotIdle) {
  Subprocess named(job("1,2"));
  ASSERT_TRUE(named.wait_for_output(".\n"));
  Subprocess same(job("2"));  // jobs may share
  ASSERT_TRUE(same.wait_for_output(".\n"));
  Subprocess idle(job("idle:2"));
  ASSERT_TRUE(idle.wait_for_output(".\n"));
  for (Subprocess* one : {&named, &same, &idle}) one->send_signal(SIGTERM);
  EXPECT_EQ(gpus_of(named.wait().out).size(), 2U);
  EXPECT_EQ(gpus_of(same.wait().out), std::set{own("2")});
  EXPECT_EQ(gpus_of(idle.wait().out), (std::set{own("0"), own("3")}));
}

TEST_F(IdleGpusTest, ADryRunSeesTheClaimsAndLeavesNone) {
  Command plan = launch({"--gpus", "idle:3", "--dry-run", "true"});
  on_fake_gpus(plan);
  EXPECT_EQ(run_command(plan).exit_code, 0);
  EXPECT_EQ(run_command(plan).exit_code, 0);
  Subprocess named(job("0,1"));
  ASSERT_TRUE(named.wait_for_output(".\n"));
  const Outcome outcome = run_command(plan);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("only 2 of 4 GPUs are idle; jobs of glaunch have 2 of them"));
}

}  // namespace
}  // namespace gantry::launcher
