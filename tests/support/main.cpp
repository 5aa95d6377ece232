// The main function of every test binary: GoogleTest's, with exit code 77 when nothing could run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <gantry/device/device.hpp>
#include <iostream>
#include <string_view>

namespace {

// ctest shows this exit code as "Skipped" (SKIP_RETURN_CODE).
constexpr int kSkipped = 77;

bool needs_cuda() {
  const char* platform = std::getenv("GANTRY_TEST_PLATFORM");
  return platform != nullptr && std::string_view(platform) == "cuda";
}

bool every_test_skipped(const testing::UnitTest& run) {
  return run.test_to_run_count() > 0 && run.skipped_test_count() == run.test_to_run_count();
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (needs_cuda() && !gantry::is_available()) {
    std::cout << "[  SKIPPED ] no CUDA device is visible\n";
    return kSkipped;
  }
  const int result = RUN_ALL_TESTS();
  if (result == 0 && every_test_skipped(*testing::UnitTest::GetInstance())) {
    std::cout << "[  SKIPPED ] every test of this binary was skipped, for the reasons above\n";
    return kSkipped;
  }
  return result;
}
