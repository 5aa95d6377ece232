// Kernels of the program that wait for other ranks, where launches block and where a schedule says
// which task runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "tests/support/subprocess.hpp"

namespace gantry::testing {
namespace {

using ::testing::Combine;
using ::testing::HasSubstr;
using ::testing::Values;

constexpr const char* kBlocking = "blocking";

class WindowKernelsTest : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(WindowKernelsTest, OneThreadServesAllRanks) {
  const auto& [form, mode] = GetParam();
  std::map<std::string, std::optional<std::string>> environment{
      {"GANTRY_SIM_DEVICES", "2"}, {"GANTRY_SIM_SCHEDULE", ""}, {"GANTRY_COLL_TIMEOUT", "60"}};
  if (std::string(mode) == kBlocking) {
    environment["CUDA_LAUNCH_BLOCKING"] = "1";
  } else {
    environment["GANTRY_SIM_SCHEDULE"] = mode;
  }
  const Outcome outcome =
      run_command({.argv = {GANTRY_TEST_PROGRAM_DIR "/window_kernels_program", form},
                   .environment = environment,
                   .timeout = std::chrono::seconds(120)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.out, HasSubstr("ok"));
}

INSTANTIATE_TEST_SUITE_P(All, WindowKernelsTest,
                         Combine(Values("none", "window", "pads", "peers", "mine", "graph", "loop"),
                                 Values("", kBlocking, "latest", "earliest", "1", "2", "3")),
                         [](const auto& chosen) {
                           const std::string mode = std::get<1>(chosen.param);
                           return std::string(std::get<0>(chosen.param)) + "_" +
                                  (mode.empty() ? "plain" : mode);
                         });

}  // namespace
}  // namespace gantry::testing
