#include "device/platform/poison.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/device_fixture.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::Outcome;
using ::testing::HasSubstr;

class PoisonTest : public ::testing::TestWithParam<const char*> {
 protected:
  static Outcome probe(const std::string& what) {
    return gantry::testing::run_command(
        {.argv = {std::string(GANTRY_TEST_PROGRAM_DIR) + "/poison_probe", what}});
  }
};

class PoisonRightUseTest : public PoisonTest {};
class PoisonWrongUseTest : public PoisonTest {};

TEST_P(PoisonRightUseTest, IsNotReported) {
  const Outcome outcome = probe(GetParam());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(outcome.out, "done\n");
}

TEST_P(PoisonWrongUseTest, IsReported) {
  if (!poisons_device_memory()) GTEST_SKIP() << "needs AddressSanitizer and simulated devices";
  const Outcome outcome = probe(GetParam());
  EXPECT_NE(outcome.exit_code, 0) << outcome.describe();
  EXPECT_THAT(outcome.err, HasSubstr("AddressSanitizer: use-after-poison"));
}

INSTANTIATE_TEST_SUITE_P(Device, PoisonRightUseTest,
                         ::testing::Values("queued-before-free", "reused", "recorded-stream",
                                           "after-empty-cache"));
INSTANTIATE_TEST_SUITE_P(Device, PoisonWrongUseTest,
                         ::testing::Values("queued-after-free", "past-the-end",
                                           "pinned-after-free"));

}  // namespace
}  // namespace gantry::memory
