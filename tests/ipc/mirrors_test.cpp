// Mirrors of address ranges: chunks that another process offers, here this one.
#include "ipc/mirrors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/streams/stream.hpp>

#include "ipc/open_memory.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry::memory {
namespace {

class MirrorsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!driver().supports_virtual_memory(0)) GTEST_SKIP() << "needs virtual memory";
    static_cast<void>(start_ipc_service());  // which keeps descriptors
    descriptors_before_ = open_descriptors();
    chunk_bytes_ = driver().chunk_granularity(0);
    base_ = static_cast<std::byte*>(driver().reserve_address(kChunks * chunk_bytes_, 0));
    for (int i = 0; i < kChunks; ++i) {
      chunks_.push_back(driver().create_chunk(0, chunk_bytes_));
      driver().map_chunk(at(i), chunk_bytes_, chunks_.back());
    }
    const int users[] = {0};
    driver().set_access(base_, kChunks * chunk_bytes_, users);
    mirrors_ = Mirrors::make(0);
  }
  void TearDown() override {
    if (base_ == nullptr) return;
    mirrors_.reset();
    driver().unmap(base_, kChunks * chunk_bytes_);
    for (const NativeChunk chunk : chunks_) driver().release_chunk(chunk);
    driver().free_address(base_, kChunks * chunk_bytes_);
    // A simulated chunk is a file, which a mapping that is left keeps open.
    if (platform() == Platform::simulated) {
      EXPECT_EQ(open_descriptors(), descriptors_before_);
    }
  }

  static std::ptrdiff_t open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  }

  std::byte* at(int chunk) const { return base_ + static_cast<std::size_t>(chunk) * chunk_bytes_; }
  IpcOffer offer_of(int first, int count) const {
    IpcOffer offer;
    offer.range = 7;
    offer.range_bytes = kChunks * chunk_bytes_;
    offer.offset = static_cast<std::size_t>(first) * chunk_bytes_;
    offer.bytes = static_cast<std::size_t>(count) * chunk_bytes_;
    offer.count = static_cast<std::uint32_t>(count);
    std::fill_n(offer.chunks, count, chunk_bytes_);
    return offer;
  }
  std::vector<UniqueFd> descriptors_of(int first, int count) const {
    std::vector<UniqueFd> descriptors;
    for (int i = first; i < first + count; ++i) {
      descriptors.push_back(driver().export_chunk(chunks_[static_cast<std::size_t>(i)]));
    }
    return descriptors;
  }
  std::byte* map(int first, int count) {
    return mirrors_->map(owner_, offer_of(first, count), descriptors_of(first, count));
  }
  void write(std::byte* to, int value) const {
    driver().copy(to, &value, sizeof value, stream_.native());
    stream_.synchronize();
  }
  int read(const std::byte* from) const {
    int value = 0;
    driver().copy(&value, from, sizeof value, stream_.native());
    stream_.synchronize();
    return value;
  }

  static constexpr int kChunks = 6;
  std::ptrdiff_t descriptors_before_ = 0;
  std::size_t chunk_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::vector<NativeChunk> chunks_;
  std::shared_ptr<Mirrors> mirrors_;
  const ProcessStamp owner_ = this_process();
  const Stream stream_ = Stream::from_pool(Device::cuda(0));
};

TEST_F(MirrorsTest, AnAddressHasTheSameOffsetInTheMirror) {
  for (int i = 0; i < kChunks; ++i) write(at(i), 10 + i);
  std::byte* const mirror = map(3, 2);
  EXPECT_EQ(map(1, 2), mirror);
  EXPECT_EQ(map(0, 1), mirror);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(mirror + (at(i) - base_)), 10 + i);
  write(mirror + 2 * chunk_bytes_ - 4, -3);
  EXPECT_EQ(read(at(2) - 4), -3);
  EXPECT_EQ(mirrors_->bytes(), 5 * chunk_bytes_);
  EXPECT_EQ(mirrored_bytes(0), 5 * chunk_bytes_);
}

TEST_F(MirrorsTest, WithdrawnChunksMakeRoomForOthers) {
  write(at(5), 55);
  std::byte* const mirror = map(0, 4);
  mirrors_->unmap(owner_, offer_of(1, 2));
  EXPECT_EQ(mirrors_->bytes(), 2 * chunk_bytes_);
  mirrors_->unmap(owner_, offer_of(0, 6));
  mirrors_->unmap(owner_, offer_of(0, 6));
  EXPECT_EQ(mirrors_->bytes(), 0u);
  // Another chunk at an address of the owner.
  EXPECT_EQ(mirrors_->map(owner_, offer_of(2, 1), descriptors_of(5, 1)), mirror);
  EXPECT_EQ(read(mirror + 2 * chunk_bytes_), 55);
}

TEST_F(MirrorsTest, AnOfferThatFailsLeavesNothingAndMayComeAgain) {
  write(at(2), 22);
  std::byte* const mirror = map(0, 1);
  for (const auto& [call, calls] :
       {std::pair("import_chunk", 3), std::pair("map_chunk", 3), std::pair("set_access", 1)}) {
    for (int failing = 1; failing <= calls; ++failing) {
      {
        testing::FaultDriver faults;
        faults.fail_on(call, failing, testing::kOutOfMemory);
        EXPECT_THROW(map(1, 3), Error) << call << ' ' << failing;
      }
      EXPECT_EQ(mirrors_->bytes(), chunk_bytes_) << call << ' ' << failing;
      EXPECT_EQ(map(1, 3), mirror) << call << ' ' << failing;
      EXPECT_EQ(read(mirror + 2 * chunk_bytes_), 22);
      mirrors_->unmap(owner_, offer_of(1, 3));
    }
  }
}

TEST_F(MirrorsTest, RangesOfOtherProcessesAndOtherNumbersHaveTheirOwnMirrors) {
  std::byte* const mirror = map(0, 1);
  IpcOffer other = offer_of(0, 1);
  other.range = 8;
  EXPECT_NE(mirrors_->map(owner_, other, descriptors_of(0, 1)), mirror);
  const ProcessStamp other_process{owner_.pid, owner_.start_time + 1};
  EXPECT_NE(mirrors_->map(other_process, offer_of(0, 1), descriptors_of(0, 1)), mirror);
  mirrors_->unmap(other_process, offer_of(0, kChunks));
  EXPECT_EQ(mirrors_->bytes(), 2 * chunk_bytes_);
}

TEST_F(MirrorsTest, AMalformedOfferMapsNothing) {
  const auto refused = [&](IpcOffer offer, int descriptors, const char* text) {
    EXPECT_ERROR(mirrors_->map(owner_, offer, descriptors_of(0, descriptors)), Error, text);
  };
  map(4, 1);
  IpcOffer offer = offer_of(0, 2);
  refused(offer, 1, "expected 2 descriptors of chunks, but got 1");
  offer.chunks[1] = ~std::uint64_t{0} - chunk_bytes_ + 1;
  refused(offer, 2, "descriptors of chunks");
  offer = offer_of(0, 2);
  offer.count = kChunksPerPacket + 1;
  refused(offer, 2, "descriptors of chunks");
  offer = offer_of(3, 2);
  refused(offer, 2, "expected chunks at addresses without any");
  offer = offer_of(5, 2);
  refused(offer, 2, "inside of their address range");
  offer = offer_of(0, 1);
  offer.offset = ~std::uint64_t{0} - chunk_bytes_ + 1;
  refused(offer, 1, "inside of their address range");
  offer = offer_of(0, 1);
  offer.range_bytes *= 2;
  refused(offer, 1, "of one size");
  EXPECT_EQ(mirrors_->bytes(), chunk_bytes_);
  map(0, 4);
}

TEST_F(MirrorsTest, ClosedMirrorsAreNotFound) {
  const std::uint64_t number = mirrors_->number();
  EXPECT_EQ(Mirrors::find(number), mirrors_);
  map(0, kChunks);
  mirrors_->close();
  EXPECT_EQ(Mirrors::find(number), nullptr);
  EXPECT_EQ(mirrors_->bytes(), 0u);
  EXPECT_EQ(mirrored_bytes(0), 0u);
  EXPECT_ERROR(map(0, 1), Error, "the group has ended");
  mirrors_->unmap(owner_, offer_of(0, 1));
}

TEST_F(MirrorsTest, PlacesTravelAsBytes) {
  const MirrorPlace place = MirrorPlace::of(*mirrors_);
  const auto same = MirrorPlace::from(place.bytes());
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(same->mirrors, mirrors_->number());
  EXPECT_EQ(same->process, place.process);
  EXPECT_FALSE(MirrorPlace::from("").has_value());
  EXPECT_FALSE(MirrorPlace::from(place.bytes() + "x").has_value());
}

}  // namespace
}  // namespace gantry::memory
