#include <gantry/memory/pinned_allocator.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/cpu_allocator.hpp>
#include <gantry/streams/stream.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/support/subprocess.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::StreamHold;
using ::testing::ThrowsMessage;

class PinnedAllocatorTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    init();
    pinned_allocator().empty_cache(Device::cpu());
  }
};

TEST_F(PinnedAllocatorTest, GivesPageLockedMemoryOnTheCpu) {
  const Buffer buffer = pinned(5000);
  EXPECT_EQ(buffer.device(), Device::cpu());
  EXPECT_EQ(buffer.bytes(), 5000u);
  EXPECT_TRUE(is_pinned(buffer.data()));
  EXPECT_TRUE(is_pinned(static_cast<std::byte*>(buffer.data()) + 4999));
  const Buffer plain(allocate_cpu(5000));
  EXPECT_FALSE(is_pinned(plain.data()));
  EXPECT_FALSE(is_pinned(nullptr));
}

TEST_F(PinnedAllocatorTest, EmptyCacheDoesNotWaitForWhatOthersFreeMeanwhile) {
  const Stream stream = Stream::from_pool();
  std::atomic<bool> is_busy{false};
  std::atomic<bool> is_emptied{false};
  bool was_busy = false;
  std::thread busy([&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    auto hold = std::make_unique<StreamHold>(stream);
    while (!is_emptied && std::chrono::steady_clock::now() < deadline) {
      // There is a block that waits for the stream before the one before it is let go.
      Buffer buffer = pinned(1000);
      pinned_allocator().record_stream(buffer.block(), stream);
      buffer.reset();
      is_busy = true;
      hold = std::make_unique<StreamHold>(stream);
    }
    was_busy = is_emptied;
  });
  while (!is_busy) std::this_thread::yield();
  pinned_allocator().empty_cache(Device::cpu());
  is_emptied = true;
  busy.join();
  EXPECT_TRUE(was_busy) << "it returned only after the other thread had ended";
}

TEST_F(PinnedAllocatorTest, HitsCallTheDriverNotAtAll) {
  const std::vector<std::size_t> sizes = {1, 5000, 1 << 20, 3 << 20, (9 << 20) + 1};
  const auto round = [&] {
    std::vector<Buffer> live;
    for (const std::size_t bytes : sizes) live.push_back(pinned(bytes));
  };
  round();
  const FaultDriver driver;
  for (int i = 0; i < 20; ++i) round();
  EXPECT_EQ(driver.total_calls(), 0u);
}

TEST_F(PinnedAllocatorTest, SplitsAndJoinsBlocks) {
  Buffer first = pinned(1 << 20);
  auto* base = static_cast<std::byte*>(first.data());
  first.reset();
  const FaultDriver driver;
  std::vector<Buffer> parts;
  for (int i = 0; i < 256; ++i) parts.push_back(pinned(4096));
  for (const Buffer& part : parts) {
    EXPECT_GE(static_cast<std::byte*>(part.data()), base);
    EXPECT_LT(static_cast<std::byte*>(part.data()), base + (1 << 20));
  }
  // Freed in any order they become one again.
  std::shuffle(parts.begin(), parts.end(), std::mt19937(3));
  parts.clear();
  EXPECT_EQ(pinned(1 << 20).data(), base);
  EXPECT_EQ(driver.total_calls(), 0u);
}

TEST_F(PinnedAllocatorTest, RestsOfASegmentServeSmallerRequests) {
  const Buffer large = pinned((3 << 20) - 8192);
  const FaultDriver driver;
  const Buffer small = pinned(8000);
  EXPECT_EQ(static_cast<std::byte*>(small.data()),
            static_cast<std::byte*>(large.data()) + (3 << 20) - 8192);
  EXPECT_EQ(driver.total_calls(), 0u);
}

TEST_F(PinnedAllocatorTest, KeepsABlockUntilTheRecordedStreamIsDone) {
  const Stream stream = Stream::from_pool();
  Buffer buffer = pinned(3000);
  void* data = buffer.data();
  StreamHold hold(stream);
  pinned_allocator().record_stream(buffer.block(), stream);
  buffer.reset();
  const Buffer other = pinned(3000);
  EXPECT_NE(other.data(), data);
  hold.release();
  stream.synchronize();
  EXPECT_EQ(pinned(3000).data(), data);
}

TEST_F(PinnedAllocatorTest, WaitsForStreamsBeforeItGivesUp) {
  const Stream stream = Stream::from_pool();
  Buffer buffer = pinned(1 << 20);
  void* data = buffer.data();
  StreamHold hold(stream);
  pinned_allocator().record_stream(buffer.block(), stream);
  buffer.reset();
  FaultDriver driver;
  driver.fail_on("allocate_pinned", 1, gantry::testing::kOutOfMemory, 100);
  std::thread releaser([&] {
    while (driver.calls("allocate_pinned") == 0) std::this_thread::yield();
    hold.release();
  });
  EXPECT_EQ(pinned(1 << 20).data(), data);
  releaser.join();
  const Buffer live = pinned(1 << 20);
  EXPECT_THAT([] { static_cast<void>(pinned(3000)); },
              ThrowsMessage<OutOfMemoryError>(
                  "Page-locked host memory is exhausted. Tried to allocate 2.93 KiB."));
}

TEST_F(PinnedAllocatorTest, ShortMemoryIsTriedInTheNeededSizeOnly) {
  GANTRY_REQUIRE_SIM();  // large segments come from elsewhere on a machine with several nodes
  const Buffer held = pinned(64 << 20);  // so that segments grow
  FaultDriver driver;
  driver.fail_on("allocate_pinned", 1, gantry::testing::kOutOfMemory);
  const Buffer buffer = pinned(1);
  EXPECT_NE(buffer.data(), nullptr);
  EXPECT_EQ(driver.calls("allocate_pinned"), 2u);
}

TEST_F(PinnedAllocatorTest, EmptyCacheGivesMemoryBack) {
  { const Buffer buffer = pinned(3000); }
  const FaultDriver driver;
  pinned_allocator().empty_cache(Device::cpu());
  EXPECT_EQ(driver.calls("deallocate_pinned"), 1u);
  pinned_allocator().empty_cache(Device::cpu());
  EXPECT_EQ(driver.calls("deallocate_pinned"), 1u);
}

TEST_F(PinnedAllocatorTest, CopiesReachTheDevice) {
  const Stream stream = Stream::from_pool();
  const Buffer from = pinned(10000);
  const Buffer to = pinned(10000);
  std::memset(from.data(), 42, from.bytes());
  std::memset(to.data(), 0, to.bytes());
  void* device = driver().allocate(0, 10000);
  ASSERT_NE(device, nullptr);
  driver().copy(device, from.data(), 10000, stream.native());
  driver().copy(to.data(), device, 10000, stream.native());
  stream.synchronize();
  EXPECT_EQ(std::memcmp(from.data(), to.data(), 10000), 0);
  driver().deallocate(0, device);
}

// Runs this test binary again without devices: the platform is chosen once per process.
TEST(PinnedAllocatorWithoutPlatformTest, GivesOrdinaryMemory) {
  if (is_available()) {
    const auto outcome = gantry::testing::run_command(
        {.argv = {std::filesystem::read_symlink("/proc/self/exe").string(),
                  "--gtest_filter=PinnedAllocatorWithoutPlatformTest.*"},
         .environment = {{"GANTRY_SIM_DEVICES", std::nullopt},
                         {"GANTRY_TEST_PLATFORM", std::nullopt},
                         {"CUDA_VISIBLE_DEVICES", ""}}});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.describe();
    EXPECT_THAT(outcome.out, ::testing::HasSubstr("1 test"));
    return;
  }
  EXPECT_EQ(platform(), Platform::none);
  Buffer buffer = pinned(5000);
  std::memset(buffer.data(), 1, buffer.bytes());
  EXPECT_FALSE(is_pinned(buffer.data()));
  void* data = buffer.data();
  buffer.reset();
  EXPECT_EQ(pinned(5000).data(), data);
  pinned_allocator().empty_cache(Device::cpu());
  const Buffer host(allocate_cpu(100));
  EXPECT_NE(host.data(), nullptr);
}

}  // namespace
}  // namespace gantry::memory
