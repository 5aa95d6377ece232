// GANTRY_SIM_SCHEDULE shows every planted race in its first run, and nothing in ordered programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/subprocess.hpp"

namespace gantry::testing {
namespace {

constexpr int kSeeds = 4;

Outcome run_program(std::vector<std::string> arguments, const std::string& schedule) {
  arguments.insert(arguments.begin(), GANTRY_TEST_PROGRAM_DIR "/planted_races");
  return run_command({.argv = std::move(arguments),
                      .environment = {{"GANTRY_SIM_SCHEDULE", schedule},
                                      {"GANTRY_SIM_DEVICES", "2"},
                                      // The races are planted: nothing else may report them.
                                      {"GANTRY_SANITIZER", "off"},
                                      {"TSAN_OPTIONS", "report_bugs=0"}}});
}

std::vector<std::string> races() {
  std::istringstream names(run_program({}, "").out);
  std::vector<std::string> all;
  for (std::string name; std::getline(names, name);) all.push_back(name);
  return all;
}

// A race shows when the device is late, but for those that show when it is early.
std::string schedule_of(const std::string& race) {
  return race.starts_with("early:") ? "earliest" : "latest";
}

class PlantedRacesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PlantedRacesTest, GivesAWrongResultInTheFirstRun) {
  const Outcome outcome = run_program({GetParam()}, schedule_of(GetParam()));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.describe();
}

TEST_P(PlantedRacesTest, IsRightWithTheWait) {
  std::vector<std::string> schedules{"latest", "earliest", ""};
  for (int seed = 0; seed < kSeeds; ++seed) schedules.push_back(std::to_string(seed));
  for (const std::string& schedule : schedules) {
    const Outcome outcome = run_program({GetParam(), "waits"}, schedule);
    EXPECT_EQ(outcome.exit_code, 0) << "schedule '" << schedule << "' " << outcome.describe();
  }
}

// The opposite schedule hides most of them: what shows is the order, not a defect.
TEST(PlantedRacesOppositeTest, ShowsOnlyRacesOfTheOtherKind) {
  int hidden = 0;
  for (const std::string& race : races()) {
    const bool is_early = race.starts_with("early:");
    const Outcome outcome = run_program({race}, is_early ? "latest" : "earliest");
    if (outcome.exit_code == 0) ++hidden;
  }
  EXPECT_GT(hidden, 15);
}

TEST(PlantedRacesSeedTest, ASeedGivesTheSameResultEachTime) {
  for (const std::string race : {"read_before_write", "buffer_refilled_while_in_use"}) {
    std::vector<std::string> results;
    for (int seed = 0; seed < 8; ++seed) {
      const std::string schedule = std::to_string(seed);
      const std::string first = run_program({race}, schedule).out;
      EXPECT_EQ(run_program({race}, schedule).out, first) << "seed " << seed;
      results.push_back(first);
    }
    std::ranges::sort(results);
    EXPECT_NE(results.front(), results.back()) << race << ": no seed differs from the others";
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlantedRacesTest, ::testing::ValuesIn(races()),
                         [](const ::testing::TestParamInfo<std::string>& race) {
                           std::string name = race.param;
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace gantry::testing
