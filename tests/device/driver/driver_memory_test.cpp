#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::cuda_error_of;
using testing::DeviceBytes;
using testing::PinnedBytes;

class DriverMemoryTest : public testing::DriverTest {};

constexpr std::size_t kTooMuch = std::size_t{1} << 41;

TEST_F(DriverMemoryTest, AllocationsAreAlignedAndDistinct) {
  const DeviceBytes a(0, 1);
  const DeviceBytes b(0, 1000);
  ASSERT_NE(a.data(), nullptr);
  ASSERT_NE(b.data(), nullptr);
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 512, 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 512, 0u);
}

TEST_F(DriverMemoryTest, OutOfMemoryIsNullAndLeavesTheDeviceUsable) {
  const NativeMemoryInfo before = driver().memory_info(0);
  EXPECT_EQ(driver().allocate(0, kTooMuch), nullptr);
  testing::expect_free_again(before.free);
  const DeviceBytes small(0, 4096);
  EXPECT_NE(small.data(), nullptr);
}

TEST_F(DriverMemoryTest, MemoryInfoCountsAllocations) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const NativeMemoryInfo before = driver().memory_info(0);
  {
    const DeviceBytes block(0, kBytes);
    ASSERT_NE(block.data(), nullptr);
    const NativeMemoryInfo during = driver().memory_info(0);
    EXPECT_EQ(during.total, before.total);
    EXPECT_LE(during.free + kBytes, before.free);
  }
  testing::expect_free_again(before.free);
}

TEST_F(DriverMemoryTest, AllocatesOnTheDeviceAskedForWhateverIsCurrent) {
  GANTRY_REQUIRE_DEVICES(2);
  set_device(Device::cuda(0));
  const DeviceBytes block(1, 4096);
  EXPECT_EQ(driver().pointer_info(block.data()).device, 1);
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(DriverMemoryTest, PointerInfoTellsDevicePinnedAndOtherMemory) {
  const DeviceBytes device(0, 4096);
  const PinnedBytes pinned(4096);
  int on_stack = 0;
  const auto kind = [](const void* data) { return driver().pointer_info(data).kind; };
  EXPECT_EQ(kind(device.data()), PointerKind::device);
  EXPECT_EQ(kind(static_cast<char*>(device.data()) + 4095), PointerKind::device);
  EXPECT_EQ(driver().pointer_info(device.data()).device, 0);
  EXPECT_EQ(kind(pinned.data()), PointerKind::pinned);
  EXPECT_EQ(kind(pinned.data() + 100), PointerKind::pinned);
  EXPECT_EQ(driver().pointer_info(pinned.data()).device, -1);
  EXPECT_EQ(kind(&on_stack), PointerKind::unregistered);
  EXPECT_EQ(kind(nullptr), PointerKind::unregistered);
}

TEST_F(DriverMemoryTest, FreedMemoryIsUnknown) {
  void* const data = driver().allocate(0, 4096);
  driver().deallocate(0, data);
  EXPECT_EQ(driver().pointer_info(data).kind, PointerKind::unregistered);
}

TEST_F(DriverMemoryTest, FreeingNothingIsFine) {
  EXPECT_NO_THROW(driver().deallocate(0, nullptr));
  EXPECT_NO_THROW(driver().deallocate_pinned(nullptr));
}

TEST_F(DriverMemoryTest, FreeingWhatIsNoAllocationIsRefused) {
  void* const data = driver().allocate(0, 4096);
  driver().deallocate(0, data);
  EXPECT_EQ(cuda_error_of([&] { driver().deallocate(0, data); }), 1);
  int on_stack = 0;
  EXPECT_EQ(cuda_error_of([&] { driver().deallocate(0, &on_stack); }), 1);
  EXPECT_NE(cuda_error_of([&] { driver().deallocate_pinned(&on_stack); }), 0);
}

TEST_F(DriverMemoryTest, HostReadsAndWritesPinnedMemory) {
  PinnedBytes pinned(10000);
  pinned.set_pattern(7);
  EXPECT_EQ(pinned.data()[0], 7);
  EXPECT_EQ(pinned.data()[300], static_cast<std::uint8_t>(300 * 31 + 1 + 7));
}

}  // namespace
}  // namespace gantry
