#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::DeviceBytes;
using testing::PinnedBytes;
using testing::TestStream;

class DriverCopyTest : public testing::DriverTest {};

TEST_F(DriverCopyTest, EverySizeSurvivesTheRoundTrip) {
  const TestStream stream(0);
  for (const std::size_t bytes : {1ul, 3ul, 512ul, 4097ul, (1ul << 20) + 7}) {
    PinnedBytes source(bytes);
    const PinnedBytes result(bytes);
    source.set_pattern(static_cast<unsigned>(bytes));
    const DeviceBytes first(0, bytes);
    const DeviceBytes second(0, bytes);
    driver().copy(first.data(), source.data(), bytes, stream);
    driver().copy(second.data(), first.data(), bytes, stream);
    driver().copy(result.data(), second.data(), bytes, stream);
    driver().synchronize_stream(stream);
    EXPECT_EQ(result.vec(), source.vec()) << bytes << " bytes";
  }
}

TEST_F(DriverCopyTest, PageableSourceMayChangeAfterTheCall) {
  constexpr std::size_t kBytes = 100000;
  const TestStream stream(0);
  const DeviceBytes device(0, kBytes);
  std::vector<std::uint8_t> source(kBytes, 1);
  driver().copy(device.data(), source.data(), kBytes, stream);
  std::fill(source.begin(), source.end(), 2);
  std::vector<std::uint8_t> result(kBytes);
  driver().copy(result.data(), device.data(), kBytes, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(result, std::vector<std::uint8_t>(kBytes, 1));
}

TEST_F(DriverCopyTest, CopiesOffsetsInsideABlock) {
  const TestStream stream(0);
  PinnedBytes host(256);
  host.set_pattern(3);
  const std::vector<std::uint8_t> before = host.vec();
  const DeviceBytes device(0, 256);
  auto* base = static_cast<std::uint8_t*>(device.data());
  driver().copy(base + 17, host.data(), 100, stream);
  driver().copy(host.data() + 150, base + 17, 100, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(std::memcmp(host.data() + 150, before.data(), 100), 0);
  EXPECT_EQ(std::memcmp(host.data(), before.data(), 150), 0);
}

TEST_F(DriverCopyTest, FillWritesExactlyItsRange) {
  const TestStream stream(0);
  const DeviceBytes device(0, 64);
  const PinnedBytes host(64);
  driver().fill(device.data(), 0xaa, 64, stream);
  driver().fill(static_cast<std::uint8_t*>(device.data()) + 10, 0x55, 20, stream);
  driver().copy(host.data(), device.data(), 64, stream);
  driver().synchronize_stream(stream);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(host.data()[i], i >= 10 && i < 30 ? 0x55 : 0xaa) << "byte " << i;
  }
}

TEST_F(DriverCopyTest, NoBytesTouchNothing) {
  const TestStream stream(0);
  EXPECT_NO_THROW(driver().copy(nullptr, nullptr, 0, stream));
  EXPECT_NO_THROW(driver().fill(nullptr, 0, 0, stream));
  driver().synchronize_stream(stream);
}

TEST_F(DriverCopyTest, DefaultStreamCopies) {
  const NativeStream stream{.device = 0, .handle = nullptr};
  PinnedBytes source(1000);
  const PinnedBytes result(1000);
  source.set_pattern(9);
  const DeviceBytes device(0, 1000);
  driver().copy(device.data(), source.data(), 1000, stream);
  driver().copy(result.data(), device.data(), 1000, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(result.vec(), source.vec());
}

TEST_F(DriverCopyTest, DefaultStreamBelongsToItsDeviceWhateverIsCurrent) {
  GANTRY_REQUIRE_DEVICES(2);
  const NativeStream stream{.device = 1, .handle = nullptr};
  const DeviceBytes device(1, 1000);
  const PinnedBytes result(1000);
  set_device(Device::cuda(0));
  driver().fill(device.data(), 0x42, 1000, stream);
  driver().copy(result.data(), device.data(), 1000, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(1000, 0x42));
  EXPECT_EQ(current_device(), Device::cuda(0));
}

TEST_F(DriverCopyTest, PeerCopyBatchOnEitherSidesStream) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!driver().can_access_peer(0, 1) || !driver().can_access_peer(1, 0)) {
    GTEST_SKIP() << "no peer access between cuda:0 and cuda:1";
  }
  driver().enable_peer_access(0, 1);
  driver().enable_peer_access(1, 0);
  constexpr std::size_t kBytes = 70001;
  for (const int side : {0, 1}) {
    const TestStream stream(side);
    PinnedBytes source(kBytes);
    const PinnedBytes result(kBytes);
    source.set_pattern(static_cast<unsigned>(side));
    const DeviceBytes from(0, kBytes);
    const DeviceBytes to(1, kBytes);
    driver().copy(from.data(), source.data(), kBytes, stream);
    driver().copy_peer(to.data(), 1, from.data(), 0, kBytes, stream);
    driver().copy(result.data(), to.data(), kBytes, stream);
    driver().synchronize_stream(stream);
    EXPECT_EQ(result.vec(), source.vec()) << "on a stream of cuda:" << side;
  }
}

TEST_F(DriverCopyTest, RunsLandEachInItsPlace) {
  GANTRY_REQUIRE_DEVICES(2);
  constexpr std::size_t kBytes = 300000;
  // Lengths, one of them none, of runs that come from one end and go to the other.
  const std::vector<std::size_t> lengths{1, 70000, 0, 4096, 333, 100001};
  for (const int side : {0, 1}) {
    const TestStream own(side);
    for (const NativeStream stream : {NativeStream(own), NativeStream{side, nullptr}}) {
      PinnedBytes source(kBytes);
      const PinnedBytes result(kBytes);
      source.set_pattern(static_cast<unsigned>(side) + 5);
      const DeviceBytes from(0, kBytes);
      const DeviceBytes to(1, kBytes);
      driver().copy(from.data(), source.data(), kBytes, stream);
      driver().fill(to.data(), 0xee, kBytes, stream);
      std::vector<std::uint8_t> expected(kBytes, 0xee);
      std::vector<CopyRegion> runs;
      std::size_t begin = 0;
      std::size_t end = kBytes;
      for (const std::size_t length : lengths) {
        end -= length + 7;
        runs.push_back({static_cast<std::byte*>(from.data()) + begin,
                        static_cast<std::byte*>(to.data()) + end, length});
        std::copy_n(source.data() + begin, length, expected.data() + end);
        begin += length;
      }
      driver().copy_batch(runs, stream);
      driver().copy_batch({}, stream);
      driver().copy(result.data(), to.data(), kBytes, stream);
      driver().synchronize_stream(stream);
      EXPECT_EQ(result.vec(), expected)
          << "on cuda:" << side << (stream.handle == nullptr ? ", default stream" : "");
    }
  }
}

}  // namespace
}  // namespace gantry
