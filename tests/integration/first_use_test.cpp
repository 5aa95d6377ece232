// Each operation runs first inside a capture of a fresh process, which has loaded, allocated and
// enabled nothing for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <gantry/extend/driver.hpp>

#include "tests/integration/first_use_operations.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::testing {
namespace {

class FirstUseTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void expect_success(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv = {GANTRY_TEST_PROGRAM_DIR "/first_use_program"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_command({.argv = argv});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, ::testing::HasSubstr("equal results"));
  }
  static const FirstUse& operation() {
    for (const FirstUse& use : first_uses()) {
      if (use.name == GetParam()) return use;
    }
    throw std::logic_error("no such operation");
  }
};

TEST_P(FirstUseTest, CanBeInACapture) {
  GANTRY_REQUIRE_DEVICES(operation().devices);
  if (GetParam() == "graph_if" && !driver().supports_conditions(0)) {
    GTEST_SKIP() << "the driver has no conditions";
  }
  expect_success({GetParam()});
  if (operation().devices > 1) expect_success({GetParam(), "copied"});
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const FirstUse& use : first_uses()) all.push_back(use.name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Operations, FirstUseTest, ::testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace gantry::testing
