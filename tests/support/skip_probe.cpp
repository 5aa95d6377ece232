// A test binary for main_test: one test that passes, one that skips and one that fails.
#include <gtest/gtest.h>

TEST(SkipProbe, Passes) {}
TEST(SkipProbe, Skips) { GTEST_SKIP() << "for a reason"; }
TEST(SkipProbe, Fails) { FAIL() << "on purpose"; }
