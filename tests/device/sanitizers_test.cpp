// The warning to programs that are instrumented when the library is not.
#include "device/platform/sanitizers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/subprocess.hpp"

namespace gantry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kBuiltWith = GANTRY_SANITIZE;

// How often `text` occurs in `all`.
int count(const std::string& all, std::string_view text) {
  int found = 0;
  for (auto at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
  return found;
}

testing::Outcome run_probe(const std::string& name) {
  const std::vector<std::string> fixed{"setarch", "-R"};
  std::vector<std::string> argv{GANTRY_TEST_PROGRAM_DIR "/" + name};
  // ThreadSanitizer needs a predictable address space, which not every sandbox grants.
  if (testing::run_command({.argv = {"setarch", "-R", "true"}}).exit_code == 0) {
    argv.insert(argv.begin(), fixed.begin(), fixed.end());
  }
  return testing::run_command(
      {.argv = argv,
       .environment = {{"TSAN_OPTIONS", "report_bugs=0"}, {"ASAN_OPTIONS", "detect_leaks=0"}}});
}

TEST(SanitizersTest, WarnOfEachThatTheLibraryLacks) {
  EXPECT_THAT(sanitizer_warnings({}, ""), IsEmpty());
  EXPECT_THAT(sanitizer_warnings({.thread = true, .address = false}, ""),
              ElementsAre(AllOf(HasSubstr("-fsanitize=thread"), HasSubstr("preset tsan"))));
  EXPECT_THAT(sanitizer_warnings({.thread = false, .address = true}, ""),
              ElementsAre(AllOf(HasSubstr("-fsanitize=address"), HasSubstr("preset asan"))));
  EXPECT_THAT(sanitizer_warnings({.thread = true, .address = false}, "thread"), IsEmpty());
  EXPECT_THAT(sanitizer_warnings({.thread = false, .address = true}, "address,undefined"),
              IsEmpty());
  EXPECT_THAT(sanitizer_warnings({.thread = false, .address = true}, "undefined"),
              ElementsAre(HasSubstr("-fsanitize=address")));
}

TEST(SanitizersTest, AProgramLikeTheLibraryIsNotWarned) {
  const testing::Outcome outcome = run_probe("sanitizer_probe");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
  EXPECT_EQ(count(outcome.err, "-fsanitize="), 0) << outcome.describe();
}

TEST(SanitizersTest, AnInstrumentedProgramIsWarnedOnce) {
  if (!kBuiltWith.empty()) GTEST_SKIP() << "needs a library without sanitizers";
  for (const std::string name : {"thread", "address"}) {
    const testing::Outcome outcome = run_probe("sanitizer_probe_" + name);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_EQ(count(outcome.err, "is built with -fsanitize=" + name + ", but gantry is not"), 1)
        << outcome.describe();
  }
}

}  // namespace
}  // namespace gantry
