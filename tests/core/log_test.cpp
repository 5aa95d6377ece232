#include <gantry/core/log.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include <gantry/core/error.hpp>

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr logging::Level kLevels[] = {logging::Level::trace, logging::Level::debug,
                                      logging::Level::info,  logging::Level::warn,
                                      logging::Level::error, logging::Level::off};

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { logging::set_level(before_); }

  /// What `call` writes to standard error.
  template <class Call>
  static std::string written_by(Call call) {
    ::testing::internal::CaptureStderr();
    call();
    return ::testing::internal::GetCapturedStderr();
  }

  const logging::Level before_ = logging::level();
};

TEST_F(LogTest, WritesFromTheChosenLevelUp) {
  for (const logging::Level lowest : kLevels) {
    logging::set_level(lowest);
    EXPECT_EQ(logging::level(), lowest);
    for (const logging::Level level : kLevels) {
      if (level == logging::Level::off) continue;
      const bool shown = level >= lowest;
      EXPECT_EQ(logging::enabled(level), shown);
      const std::string text = written_by([&] { logging::write(level, "a message"); });
      EXPECT_EQ(!text.empty(), shown) << text;
    }
  }
}

TEST_F(LogTest, WritesOneLineWithNameTimeProcessAndLevel) {
  logging::set_level(logging::Level::info);
  EXPECT_THAT(written_by([] { logging::info("100% {} done"); }),
              MatchesRegex("\\[gantry [0-9:.]+ [0-9]+ info\\] 100% \\{\\} done\n"));
  EXPECT_THAT(written_by([] { logging::error("bad"); }), HasSubstr(" error] bad\n"));
  EXPECT_EQ(written_by([] { logging::debug("hidden"); }), "");
}

// What a process does whose GANTRY_LOG makes no sense; the exit code says whether asking threw.
[[noreturn]] void log_with_a_bad_level() {
  setenv("GANTRY_LOG", "INFO", 1);
  for (int i = 0; i < 3; ++i) logging::error("bad");
  logging::warn("odd");
  logging::info("hidden");
  int refused = 0;
  for (int i = 0; i < 2; ++i) {
    try {
      static_cast<void>(logging::enabled(logging::Level::error));
    } catch (const InvalidArgument&) {
      ++refused;
    }
  }
  std::exit(refused);
}

TEST(LogDeathTest, AnInvalidLevelIsToldOnceAndSilencesNothing) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      log_with_a_bad_level(), testing::ExitedWithCode(2),
      MatchesRegex("(\\[gantry [^]]* error\\] GANTRY_LOG: expected trace, debug, info, warn, "
                   "error or off, but got 'INFO'\n)"
                   "(\\[gantry [^]]* error\\] bad\n){3}"
                   "(\\[gantry [^]]* warning\\] odd\n)"));
}

}  // namespace
}  // namespace gantry
