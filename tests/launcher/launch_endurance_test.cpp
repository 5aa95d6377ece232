// What must hold however much is written and whenever glaunch is killed. GANTRY_TEST_RANK_MB and
// GANTRY_TEST_ROUNDS make these tests longer.
#include <gmock/gmock.h>
#include <signal.h>

#include <array>
#include <fstream>
#include <iostream>
#include <random>
#include <thread>

#include <gantry/core/env.hpp>

#include "tests/launcher/launch_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry::testing {
namespace {

class LaunchEnduranceTest : public LaunchTest {
 protected:
  /// Processes that have this test's folder in their environment.
  std::vector<int> processes_of_test() const {
    const std::string mark = "TMPDIR=" + directory_;
    std::vector<int> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (std::isdigit(static_cast<unsigned char>(name[0])) == 0) continue;
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      for (std::string variable; std::getline(file, variable, '\0');) {
        if (variable == mark) found.push_back(std::stoi(name));
      }
    }
    return found;
  }
};

TEST_F(LaunchEnduranceTest, OutputOfManyRanksArrivesCompleteAndUntorn) {
  constexpr int kRanks = 64;
  constexpr int kLineBytes = 98;  // of the longest one
  const int megabytes = static_cast<int>(env::get_int("GANTRY_TEST_RANK_MB", 1, 1000).value_or(0));
  const int lines = megabytes > 0 ? megabytes * 1'000'000 / kLineBytes + 1 : 1000;
  Command command{
      .argv = {"sh", "-c",
               std::string("exec ") + GANTRY_TEST_GLAUNCH + " --cpu-only -n " +
                   std::to_string(kRanks) + " " + GANTRY_TEST_PROGRAM_DIR + "/launch_actor flood " +
                   std::to_string(lines) + " > " + path("out")},
      .environment = {{"TMPDIR", directory_}},
      .timeout = std::chrono::minutes(10)};
  const Outcome outcome = run_command(command);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::array<int, kRanks> seen{};
  std::array<std::string, kRanks> expected;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string number = std::to_string(rank);
    expected[static_cast<std::size_t>(rank)] =
        "[" + number + "] rank " + number + std::string(90, 'x');
  }
  std::ifstream file(path("out"));
  for (std::string line; std::getline(file, line);) {
    const auto rank = static_cast<std::size_t>(line.size() > 1 ? std::atoi(line.c_str() + 1) : -1);
    ASSERT_LT(rank, seen.size()) << line;
    ASSERT_EQ(line, expected[rank]);
    ++seen[rank];
  }
  for (const int count : seen) EXPECT_EQ(count, lines);
  std::cout << kRanks << " ranks, " << std::filesystem::file_size(path("out")) << " bytes\n";
}

TEST_F(LaunchEnduranceTest, AKillAtAnyMomentLeavesNothing) {
  const auto rounds = env::get_int("GANTRY_TEST_ROUNDS", 1, 1'000'000).value_or(5);
  const auto seed = env::get_int("GANTRY_TEST_SEED", 0, 1'000'000'000).value_or(1);
  std::mt19937 random(static_cast<unsigned>(seed));
  int with_family = 0;
  for (std::int64_t round = 0; round < rounds; ++round) {
    Subprocess job(act({"-n", "3"}, {"breed", "stay"}));
    // The moment is the test's subject: from before the first rank on, or when ranks have children.
    const bool has_started = round % 2 == 0 || job.wait_for_output("pid daemon");
    EXPECT_TRUE(has_started);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 100'000));
    job.send_signal(SIGKILL);
    const Outcome outcome = job.wait();
    EXPECT_FALSE(outcome.timed_out) << "somebody still holds glaunch's output";
    with_family += pids_in(outcome.out, "daemon").empty() ? 0 : 1;
    ASSERT_TRUE(eventually([&] { return processes_of_test().empty(); }))
        << "round " << round << " of seed " << seed << " left process "
        << processes_of_test().front();
    ASSERT_TRUE(eventually([&] { return scratch_is_clean(); })) << "round " << round;
  }
  std::cout << rounds << " rounds, " << with_family << " of them after ranks had children\n";
}

}  // namespace
}  // namespace gantry::testing
