// Random programs: no graph ever changes memory outside of it, and replays give what eager runs do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "memory/backends.hpp"
#include "tests/memory/captures/capture_program.hpp"
#include "tests/support/device_fixture.hpp"

namespace gantry::memory {
namespace {

class CaptureCampaignTest : public gantry::testing::DeviceTest,
                            public ::testing::WithParamInterface<const char*> {
 protected:
  // GANTRY_CAMPAIGN_STEPS for more.
  static int steps() {
    const char* wanted = std::getenv("GANTRY_CAMPAIGN_STEPS");
    return wanted == nullptr ? 20000 : std::atoi(wanted);
  }
};

TEST_P(CaptureCampaignTest, NothingOutsideOfAGraphChanges) {
  constexpr int kStepsEach = 500;
  const std::string backend = GetParam();
  const int devices = std::min(device_count(), 2);
  for (int i = 0; i < devices; ++i) {
    if (backend == "async" && !driver().supports_memory_pools(i)) {
      GTEST_SKIP() << "a device has no memory pools";
    }
  }
  std::uint64_t replays = 0;
  std::uint64_t checks = 0;
  const std::unique_ptr<DeviceAllocator> allocator = make_allocator(backend, {});
  for (int first = 0; first < steps(); first += kStepsEach) {
    SCOPED_TRACE("seed " + std::to_string(first));
    gantry::testing::CaptureProgram program(*allocator, static_cast<unsigned>(first), devices);
    for (int step = 0; step < kStepsEach; ++step) {
      program.step();
      allocator->verify();
      if (HasFailure()) FAIL() << "step " << step;
    }
    program.finish();
    replays += program.replays();
    checks += program.checks();
    for (int i = 0; i < devices; ++i) {
      allocator->empty_cache(Device::cuda(i));
      const Stats stats = allocator->stats(i);
      EXPECT_EQ(stats.allocated_bytes.all.current, 0);
      EXPECT_EQ(stats.active_bytes.all.current, 0);
      EXPECT_EQ(stats.reserved_bytes.all.current, 0);
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(replays, static_cast<std::uint64_t>(steps() / 50));
  EXPECT_GT(checks, static_cast<std::uint64_t>(steps() / 10));
}

INSTANTIATE_TEST_SUITE_P(Backends, CaptureCampaignTest, ::testing::Values("vmm", "native", "async"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gantry::memory
