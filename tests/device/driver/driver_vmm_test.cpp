#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::cuda_error_of;
using testing::PinnedBytes;
using testing::TestStream;

class DriverVmmTest : public testing::DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (!IsSkipped()) grain_ = driver().chunk_granularity(0);
  }

  /// The bytes at `address`, read on `stream`.
  static std::vector<std::uint8_t> read(const void* address, std::size_t bytes,
                                        NativeStream stream) {
    const PinnedBytes host(bytes);
    driver().copy(host.data(), address, bytes, stream);
    driver().synchronize_stream(stream);
    return host.vec();
  }

  static std::vector<std::uint8_t> bytes_of(std::size_t count, std::uint8_t value) {
    return std::vector<std::uint8_t>(count, value);
  }

  std::size_t grain_ = 0;
  const std::array<int, 1> first_{0};
};

TEST_F(DriverVmmTest, GranularityIsAPowerOfTwo) {
  EXPECT_GT(grain_, 0u);
  EXPECT_EQ(grain_ & (grain_ - 1), 0u);
}

TEST_F(DriverVmmTest, ReservationsObeyTheAlignment) {
  for (const std::size_t alignment : {grain_, 4 * grain_, 64 * grain_}) {
    void* const address = driver().reserve_address(64 * grain_, alignment);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % alignment, 0u);
    driver().free_address(address, 64 * grain_);
  }
}

TEST_F(DriverVmmTest, ChunksSideBySideAreOneRange) {
  const TestStream stream(0);
  auto* const base = static_cast<std::uint8_t*>(driver().reserve_address(4 * grain_, grain_));
  const NativeChunk chunks[] = {driver().create_chunk(0, grain_), driver().create_chunk(0, grain_)};
  driver().map_chunk(base + grain_, grain_, chunks[0]);
  driver().map_chunk(base + 2 * grain_, grain_, chunks[1]);
  driver().set_access(base + grain_, 2 * grain_, first_);
  driver().fill(base + grain_, 0x5a, 2 * grain_, stream);
  EXPECT_EQ(read(base + grain_ + grain_ / 2, grain_, stream), bytes_of(grain_, 0x5a));
  EXPECT_EQ(driver().pointer_info(base + grain_).kind, PointerKind::device);
  EXPECT_FALSE(driver().pointer_info(base + grain_).is_open_to_peers);
  driver().unmap(base + grain_, grain_);
  driver().unmap(base + 2 * grain_, grain_);
  for (const NativeChunk chunk : chunks) driver().release_chunk(chunk);
  driver().free_address(base, 4 * grain_);
}

TEST_F(DriverVmmTest, ChunkKeepsItsBytesWhenItMoves) {
  const TestStream stream(0);
  auto* const base = static_cast<std::uint8_t*>(driver().reserve_address(2 * grain_, grain_));
  const NativeChunk chunk = driver().create_chunk(0, grain_);
  driver().map_chunk(base, grain_, chunk);
  driver().set_access(base, grain_, first_);
  driver().fill(base, 0x21, grain_, stream);
  driver().synchronize_stream(stream);
  driver().unmap(base, grain_);
  driver().map_chunk(base + grain_, grain_, chunk);
  driver().set_access(base + grain_, grain_, first_);
  EXPECT_EQ(read(base + grain_, grain_, stream), bytes_of(grain_, 0x21));
  driver().unmap(base + grain_, grain_);
  driver().release_chunk(chunk);
  driver().free_address(base, 2 * grain_);
}

TEST_F(DriverVmmTest, MappingOutlivesTheReleaseOfItsChunk) {
  const TestStream stream(0);
  const std::size_t free_before = driver().memory_info(0).free;
  void* const base = driver().reserve_address(grain_, grain_);
  const NativeChunk chunk = driver().create_chunk(0, grain_);
  driver().map_chunk(base, grain_, chunk);
  driver().set_access(base, grain_, first_);
  driver().release_chunk(chunk);
  driver().fill(base, 0x66, grain_, stream);
  EXPECT_EQ(read(base, grain_, stream), bytes_of(grain_, 0x66));
  driver().unmap(base, grain_);
  driver().free_address(base, grain_);
  testing::expect_free_again(free_before);
}

TEST_F(DriverVmmTest, ImportedChunkIsTheSameMemory) {
  const TestStream stream(0);
  auto* const base = static_cast<std::uint8_t*>(driver().reserve_address(2 * grain_, grain_));
  const NativeChunk chunk = driver().create_chunk(0, grain_);
  UniqueFd descriptor = driver().export_chunk(chunk);
  ASSERT_TRUE(descriptor);
  const NativeChunk same = driver().import_chunk(0, descriptor.get(), grain_);
  descriptor.reset();
  driver().map_chunk(base, grain_, chunk);
  driver().map_chunk(base + grain_, grain_, same);
  driver().set_access(base, 2 * grain_, first_);
  driver().fill(base, 0x13, grain_, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(read(base + grain_, grain_, stream), bytes_of(grain_, 0x13));
  driver().unmap(base, grain_);
  driver().unmap(base + grain_, grain_);
  driver().release_chunk(chunk);
  driver().release_chunk(same);
  driver().free_address(base, 2 * grain_);
}

TEST_F(DriverVmmTest, PeersReadAndWriteWhatWasOpenedToThem) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!driver().can_access_peer(1, 0)) GTEST_SKIP() << "no peer access 1 -> 0";
  const TestStream stream(1);
  void* const base = driver().reserve_address(grain_, grain_);
  const NativeChunk chunk = driver().create_chunk(0, grain_);
  driver().map_chunk(base, grain_, chunk);
  const int both[] = {0, 1};
  driver().set_access(base, grain_, both);
  driver().fill(base, 0x3c, grain_, stream);
  EXPECT_EQ(read(base, grain_, stream), bytes_of(grain_, 0x3c));
  EXPECT_EQ(driver().pointer_info(base).device, 0);
  driver().unmap(base, grain_);
  driver().release_chunk(chunk);
  driver().free_address(base, grain_);
}

TEST_F(DriverVmmTest, OutOfMemoryIsNoChunk) {
  const std::size_t free_before = driver().memory_info(0).free;
  EXPECT_EQ(driver().create_chunk(0, std::size_t{1} << 41), NativeChunk::none);
  testing::expect_free_again(free_before);
}

TEST_F(DriverVmmTest, RefusesMappingsThatCannotBe) {
  void* const base = driver().reserve_address(grain_, grain_);
  const NativeChunk chunk = driver().create_chunk(0, grain_);
  EXPECT_NE(cuda_error_of([&] { driver().map_chunk(base, grain_ / 2, chunk); }), 0);
  driver().map_chunk(base, grain_, chunk);
  EXPECT_NE(cuda_error_of([&] { driver().map_chunk(base, grain_, chunk); }), 0)
      << "mapped twice to one place";
  driver().unmap(base, grain_);
  driver().release_chunk(chunk);
  driver().free_address(base, grain_);
}

}  // namespace
}  // namespace gantry
