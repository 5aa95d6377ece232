// Stream-ordered memory and page-locked host memory of the caller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "device/idle_stream.hpp"
#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::cuda_error_of;
using testing::Gate;
using ::testing::HasSubstr;
using testing::TestEvent;
using testing::TestStream;
using ::testing::ThrowsMessage;

constexpr std::size_t kMib = std::size_t{1} << 20;

class DriverPoolTest : public testing::DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped()) return;
    if (!driver().supports_memory_pools(0)) GTEST_SKIP() << "cuda:0 has no memory pools";
    settle();
  }
  void TearDown() override {
    if (!IsSkipped() && driver().supports_memory_pools(0)) {
      settle();
      EXPECT_EQ(driver().pool_memory(0).used, 0u);
      EXPECT_EQ(driver().pool_memory(0).reserved, 0u);
    }
    DriverTest::TearDown();
  }
  static void settle() {
    driver().synchronize_device(0);
    driver().trim_pool(0, 0);
  }
  static std::vector<std::uint8_t> read(const void* data, std::size_t bytes, NativeStream stream) {
    std::vector<std::uint8_t> result(bytes);
    driver().copy(result.data(), data, bytes, stream);
    driver().synchronize_stream(stream);
    return result;
  }
};

TEST_F(DriverPoolTest, GivesDistinctMemoryThatKeepsWhatIsWritten) {
  const TestStream stream(0);
  std::vector<void*> pieces;
  for (std::uint8_t i = 0; i < 20; ++i) {
    pieces.push_back(driver().allocate_async(stream, 1000 + 4000u * i));
    ASSERT_NE(pieces.back(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces.back()) % 256, 0u);
    driver().fill(pieces.back(), i, 1000 + 4000u * i, stream);
  }
  for (std::uint8_t i = 0; i < 20; ++i) {
    EXPECT_EQ(read(pieces[i], 1000, stream), std::vector<std::uint8_t>(1000, i));
    EXPECT_EQ(driver().pointer_info(pieces[i]).kind, PointerKind::device);
    EXPECT_EQ(driver().pointer_info(pieces[i]).device, 0);
  }
  for (void* piece : pieces) driver().deallocate_async(piece, stream);
}

TEST_F(DriverPoolTest, TheDefaultStreamTakesPart) {
  const NativeStream stream{.device = 0, .handle = nullptr};
  void* data = driver().allocate_async(stream, kMib);
  ASSERT_NE(data, nullptr);
  driver().fill(data, 7, kMib, stream);
  EXPECT_EQ(read(data, 100, stream), std::vector<std::uint8_t>(100, 7));
  driver().deallocate_async(data, stream);
}

TEST_F(DriverPoolTest, CountsWhatIsUsedAndKeepsWhatIsFreed) {
  const TestStream stream(0);
  const std::size_t high = driver().pool_memory(0).used_high;
  void* data = driver().allocate_async(stream, 8 * kMib);
  ASSERT_NE(data, nullptr);
  NativePoolMemory memory = driver().pool_memory(0);
  EXPECT_GE(memory.used, 8 * kMib);
  EXPECT_GE(memory.reserved, memory.used);
  EXPECT_GE(memory.used_high, std::max(high, 8 * kMib));
  driver().deallocate_async(data, stream);
  driver().synchronize_stream(stream);
  memory = driver().pool_memory(0);
  EXPECT_EQ(memory.used, 0u);
  EXPECT_GE(memory.reserved, 8 * kMib);
  void* again = driver().allocate_async(stream, 8 * kMib);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(driver().pool_memory(0).reserved, memory.reserved) << "not reused";
  driver().deallocate_async(again, stream);
  driver().synchronize_stream(stream);
  driver().reset_pool_peaks(0);
  memory = driver().pool_memory(0);
  EXPECT_EQ(memory.used_high, memory.used);
  EXPECT_EQ(memory.reserved_high, memory.reserved);
}

TEST_F(DriverPoolTest, TrimGivesBackWhatIsDoneOnly) {
  const TestStream stream(0);
  const std::size_t before = driver().memory_info(0).free;
  void* data = driver().allocate_async(stream, 64 * kMib);
  ASSERT_NE(data, nullptr);
  {
    Gate gate(stream);
    driver().deallocate_async(data, stream);
    driver().trim_pool(0, 0);
    EXPECT_GE(driver().pool_memory(0).reserved, 64 * kMib) << "memory in use was given back";
    gate.open();
  }
  driver().trim_pool(0, 64 * kMib);
  EXPECT_GE(driver().pool_memory(0).reserved, 64 * kMib);
  driver().trim_pool(0, 0);
  EXPECT_EQ(driver().pool_memory(0).reserved, 0u);
  testing::expect_free_again(before);
}

// A query tells that a free is complete, as a wait does, on every thread and for every device.
TEST_F(DriverPoolTest, TrimGivesBackWhatAQueryFound) {
  for (int device = 0; device < std::min(driver().device_count(), 2); ++device) {
    if (!driver().supports_memory_pools(device)) continue;
    const TestStream stream(device);
    const TestEvent event(device);
    const std::vector<std::function<bool()>> queries = {
        [&] { return driver().query_stream(stream); },
        [&] { return is_idle(stream); },
        [&] { return driver().query_event(event); },
        [&] { return driver().event_reached(event); },
    };
    for (std::size_t which = 0; which < queries.size(); ++which) {
      void* data = driver().allocate_async(stream, kMib);
      ASSERT_NE(data, nullptr);
      driver().deallocate_async(data, stream);
      driver().record_event(event, stream);
      // A new thread has no current context.
      std::thread([&] {
        while (!queries[which]()) std::this_thread::yield();
      }).join();
      driver().trim_pool(device, 0);
      EXPECT_EQ(driver().pool_memory(device).reserved, 0u)
          << "device " << device << ", query " << which;
    }
  }
}

TEST_F(DriverPoolTest, WorkBeforeTheFreeIsNotDisturbed) {
  const TestStream stream(0);
  const TestStream other(0);
  void* data = driver().allocate_async(stream, kMib);
  ASSERT_NE(data, nullptr);
  std::vector<std::uint8_t> seen;
  void* host = driver().allocate_pinned(kMib);
  {
    Gate gate(stream);
    driver().fill(data, 1, kMib, stream);
    driver().copy(host, data, kMib, stream);
    driver().deallocate_async(data, stream);
    // The stream stands ahead of the free, so this is other memory, or waits.
    void* next = driver().allocate_async(other, kMib);
    ASSERT_NE(next, nullptr);
    EXPECT_NE(next, data) << "reused ahead of the free";
    driver().fill(next, 2, kMib, other);
    driver().deallocate_async(next, other);
    driver().synchronize_stream(other);
    gate.open();
  }
  EXPECT_EQ(std::vector<std::uint8_t>(static_cast<std::uint8_t*>(host),
                                      static_cast<std::uint8_t*>(host) + kMib),
            std::vector<std::uint8_t>(kMib, 1));
  driver().deallocate_pinned(host);
}

TEST_F(DriverPoolTest, OtherStreamsUseMemoryBehindAnEvent) {
  const TestStream maker(0);
  const TestStream user(0);
  const TestEvent made(0);
  const TestEvent used(0);
  void* data = driver().allocate_async(maker, kMib);
  ASSERT_NE(data, nullptr);
  driver().record_event(made, maker);
  driver().wait_event(user, made);
  driver().fill(data, 9, kMib, user);
  EXPECT_EQ(read(data, kMib, user), std::vector<std::uint8_t>(kMib, 9));
  driver().record_event(used, user);
  driver().wait_event(maker, used);
  driver().deallocate_async(data, maker);
}

TEST_F(DriverPoolTest, OutOfMemoryIsNullAndLeavesThePoolUsable) {
  const TestStream stream(0);
  EXPECT_EQ(driver().allocate_async(stream, std::size_t{1} << 41), nullptr);
  void* data = driver().allocate_async(stream, kMib);
  EXPECT_NE(data, nullptr);
  driver().deallocate_async(data, stream);
  EXPECT_NO_THROW(driver().deallocate_async(nullptr, stream));
}

TEST_F(DriverPoolTest, PeersReachThePoolOnceTheyMay) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!driver().can_access_peer(1, 0)) GTEST_SKIP() << "cuda:1 has no path to cuda:0";
  const TestStream owner(0);
  const TestStream peer(1);
  void* before = driver().allocate_async(owner, kMib);
  driver().enable_peer_access(1, 0);
  void* after = driver().allocate_async(owner, kMib);
  driver().synchronize_stream(owner);
  for (void* data : {before, after}) {
    ASSERT_NE(data, nullptr);
    driver().fill(data, 5, kMib, peer);
    driver().synchronize_stream(peer);
    EXPECT_EQ(read(data, kMib, owner), std::vector<std::uint8_t>(kMib, 5));
    driver().deallocate_async(data, owner);
  }
}

TEST_F(DriverPoolTest, ShortMemoryIsTakenFromFreedPieces) {
  GANTRY_REQUIRE_SIM();
  const TestStream stream(0);
  const TestStream other(0);
  const std::size_t most = driver().memory_info(0).free / kMib * kMib;
  void* data = driver().allocate_async(stream, most);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(driver().allocate_async(stream, kMib), nullptr);
  std::vector<std::uint8_t> seen(1);
  {
    Gate gate(stream);
    driver().fill(data, 1, kMib, stream);
    driver().deallocate_async(data, stream);
    // All there is waits for the stream: the new owner does, too.
    void* next = driver().allocate_async(other, most / 2);
    ASSERT_EQ(next, data);
    driver().fill(next, 2, kMib, other);
    EXPECT_FALSE(driver().query_stream(other));
    gate.open();
    EXPECT_EQ(read(next, 1, other)[0], 2);
    driver().deallocate_async(next, other);
  }
  driver().synchronize_device(0);
  // Done pieces of any size make room.
  std::vector<void*> parts;
  for (int i = 0; i < 4; ++i) {
    parts.push_back(driver().allocate_async(stream, most / 5));
    ASSERT_NE(parts.back(), nullptr);
  }
  for (void* part : parts) driver().deallocate_async(part, stream);
}

TEST_F(DriverPoolTest, RefusesWhatIsNotItsOwn) {
  GANTRY_REQUIRE_SIM();
  const TestStream stream(0);
  const testing::DeviceBytes plain(0, 4096);
  EXPECT_EQ(cuda_error_of([&] { driver().deallocate_async(plain.data(), stream); }), 1);
  void* data = driver().allocate_async(stream, 4096);
  EXPECT_EQ(cuda_error_of([&] { driver().deallocate(0, data); }), 1);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().export_memory(data); }), 1);
  driver().deallocate_async(data, stream);
  EXPECT_THAT([&] { driver().deallocate_async(data, stream); },
              ThrowsMessage<CudaError>(
                  HasSubstr("the address is no live stream-ordered memory of this device")));
  EXPECT_THAT([&] { driver().fill(data, 1, 4096, stream); },
              ThrowsMessage<CudaError>(HasSubstr("were freed before")));
  EXPECT_EQ(cuda_error_of([&] { (void)driver().allocate_async(stream, 0); }), 1);
}

TEST_F(DriverPoolTest, RefusesCapturedStreams) {
  GANTRY_REQUIRE_SIM();
  const TestStream stream(0);
  driver().begin_capture(stream, CaptureMode::relaxed);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().allocate_async(stream, 4096); }), 900);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().end_capture(stream); }), 901);
}

class DriverHostTest : public testing::DriverTest {
 protected:
  static constexpr std::size_t kBytes = 64 * 4096;
  void SetUp() override {
    DriverTest::SetUp();
    data_ = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(data_, MAP_FAILED);
  }
  void TearDown() override {
    ::munmap(data_, kBytes);
    DriverTest::TearDown();
  }
  void* data_ = nullptr;
};

TEST_F(DriverHostTest, RegisteredMemoryIsPinnedUntilItIsUnregistered) {
  EXPECT_EQ(driver().pointer_info(data_).kind, PointerKind::unregistered);
  ASSERT_TRUE(driver().register_host(data_, kBytes));
  EXPECT_EQ(driver().pointer_info(data_).kind, PointerKind::pinned);
  EXPECT_EQ(driver().pointer_info(static_cast<char*>(data_) + kBytes - 1).kind,
            PointerKind::pinned);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().register_host(data_, kBytes); }), 712);
  driver().unregister_host(data_);
  EXPECT_EQ(driver().pointer_info(data_).kind, PointerKind::unregistered);
  EXPECT_EQ(cuda_error_of([&] { driver().unregister_host(data_); }), 713);
  static_cast<char*>(data_)[0] = 1;  // still the caller's
}

TEST_F(DriverHostTest, CopiesReachRegisteredMemoryInOrderOfTheStream) {
  ASSERT_TRUE(driver().register_host(data_, kBytes));
  const testing::DeviceBytes device(0, kBytes);
  const TestStream stream(0);
  auto* bytes = static_cast<std::uint8_t*>(data_);
  {
    Gate gate(stream);
    driver().copy(device.data(), data_, kBytes / 2, stream);
    driver().copy(bytes + kBytes / 2, device.data(), kBytes / 2, stream);
    bytes[0] = 42;  // not staged: the copy reads it when its turn comes
    gate.open();
  }
  EXPECT_EQ(bytes[kBytes / 2], 42);
  driver().unregister_host(data_);
}

}  // namespace
}  // namespace gantry
