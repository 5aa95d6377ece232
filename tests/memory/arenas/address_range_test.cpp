#include "memory/arenas/address_range.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <span>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>

#include "tests/memory/heap_fixture.hpp"
#include "tests/support/fault_driver.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using ::testing::IsSupersetOf;

constexpr std::size_t kNoLimit = ~std::size_t{0} / 2;
constexpr std::size_t kChunk = kFineChunkBytes;

// The bytes of these chunks of a range.
Run run_of(std::size_t first, std::size_t count) {
  return {first * kChunk, (first + count) * kChunk};
}

class AddressRangeTest : public gantry::testing::DeviceTest {
 protected:
  static constexpr std::size_t kChunks = 32;

  ChunkStore store{0};
  AddressRange range{store, kChunks* kChunk};
};

TEST_F(AddressRangeTest, MapsAndUnmapsAgainstAnOracle) {
  std::mt19937 random(7);
  std::vector<bool> mapped(kChunks);
  for (int step = 0; step < 400; ++step) {
    const std::size_t first = random() % kChunks;
    const bool is_mapped = mapped[first];
    std::size_t count = 0;
    while (first + count < kChunks && mapped[first + count] == is_mapped && count < 5) ++count;
    if (is_mapped) {
      range.unmap(run_of(first, count));
    } else {
      ASSERT_TRUE(range.map(run_of(first, count), kNoLimit, false));
    }
    for (std::size_t i = first; i < first + count; ++i) mapped[i] = !is_mapped;
    std::vector<gantry::Run> expected;
    for (std::size_t i = 0; i < kChunks; ++i) {
      if (!mapped[i]) continue;
      if (expected.empty() || expected.back().end != i * kChunk) expected.push_back(run_of(i, 0));
      expected.back().end += kChunk;
    }
    ASSERT_EQ(range.mapped_runs(), expected);
    ASSERT_EQ(range.count_runs(), expected.size());
    range.verify();
  }
  for (const gantry::Run& run : range.mapped_runs()) range.unmap(run);
  EXPECT_EQ(store.unmapped(), store.held());
  store.release_unmapped();
}

TEST_F(AddressRangeTest, PinnedChunksStayWhereTheyAre) {
  ASSERT_TRUE(range.map(run_of(0, 6), kNoLimit, false));
  const gantry::Run block{2 * kChunk + 512, 3 * kChunk + 512};
  const BlockExtent extent = range.pin(block);
  EXPECT_EQ(extent.offset, 512U);
  EXPECT_EQ(extent.bytes, 2 * kChunk);
  EXPECT_EQ(extent.chunks.size(), 2U);
  EXPECT_EQ(range.pin(block).extent_id, extent.extent_id) << "the same chunks";
  EXPECT_EQ(range.whole_chunks(run_of(0, 6), kNoLimit), run_of(0, 2));
  range.unpin(block);
  EXPECT_TRUE(range.has_pins());
  range.unpin(block);
  EXPECT_FALSE(range.has_pins());
  EXPECT_EQ(range.whole_chunks(run_of(0, 6), kNoLimit), run_of(0, 6));
  EXPECT_NE(range.pin(block).extent_id, extent.extent_id) << "of another export";
  range.unpin(block);
  range.unmap(run_of(0, 6));
  store.release_unmapped();
}

// Notes which devices get access to which addresses.
class AccessDriver final : public FaultDriver {
 public:
  void set_access(void* address, std::size_t bytes, std::span<const int> devices) override {
    FaultDriver::set_access(address, bytes, devices);
    for (std::size_t at = 0; at < bytes; at += kChunk) {
      open[static_cast<std::byte*>(address) + at].insert(devices.begin(), devices.end());
    }
  }

  std::map<std::byte*, std::set<int>> open;  ///< by chunk
};

TEST_F(AddressRangeTest, EveryPeerReachesWhatIsMappedBeforeAndAfterItsAccess) {
  GANTRY_REQUIRE_DEVICES(4);
  AccessDriver driver;
  ChunkStore others_store(3);
  AddressRange other(others_store, kChunk);
  ASSERT_TRUE(other.map(run_of(0, 1), kNoLimit, false));
  std::set<int> expected{0};
  ASSERT_TRUE(range.map(run_of(0, 2), kNoLimit, false));
  ASSERT_TRUE(range.map(run_of(5, 1), kNoLimit, false));
  std::size_t next = 8;
  for (const int peer : {1, 2}) {
    enable_peer_access(Device::cuda(peer), Device::cuda(0));
    expected.insert(peer);
    ASSERT_TRUE(range.map(run_of(next, 2), kNoLimit, false));
    next += 4;
    for (const gantry::Run& run : range.mapped_runs()) {
      for (std::size_t at = run.begin; at < run.end; at += kChunk) {
        EXPECT_THAT(driver.open[range.base() + at], IsSupersetOf(expected)) << at / kChunk;
      }
    }
  }
  AddressRange later(store, kChunk);
  ASSERT_TRUE(later.map(run_of(0, 1), kNoLimit, false));
  EXPECT_THAT(driver.open[later.base()], IsSupersetOf(expected));
  EXPECT_THAT(driver.open[other.base()], ::testing::ElementsAre(3)) << "memory of another device";
  later.unmap(run_of(0, 1));
  other.unmap(run_of(0, 1));
  others_store.release_unmapped();
  for (const gantry::Run& run : range.mapped_runs()) range.unmap(run);
  store.release_unmapped();
}

TEST_F(AddressRangeTest, NothingIsMappedWhicheverDriverCallFails) {
  FaultDriver driver;
  ASSERT_TRUE(range.map(run_of(4, 3), kNoLimit, false));
  range.unmap(run_of(4, 3));
  for (const char* call : {"create_chunk", "map_chunk", "set_access"}) {
    for (std::uint64_t at = 1; at <= 3; ++at) {
      store.release_unmapped();
      driver.fail_on(call, at);
      bool is_mapped = false;
      try {
        is_mapped = range.map(run_of(4, 3), kNoLimit, false);
      } catch (const CudaError&) {
        is_mapped = false;
      }
      driver.fail_nothing();
      range.verify();
      if (is_mapped) {
        range.unmap(run_of(4, 3));  // it makes fewer such calls
      } else {
        EXPECT_TRUE(range.mapped_runs().empty()) << call << " " << at;
      }
      EXPECT_EQ(store.unmapped(), store.held()) << call << " " << at;
    }
  }
  store.release_unmapped();
}

#ifndef NDEBUG
using AddressRangeDeathTest = AddressRangeTest;

TEST_F(AddressRangeDeathTest, ARunIsMappedOnceAndUnmappedWhole) {
  ASSERT_TRUE(range.map(run_of(0, 2), kNoLimit, false));
  store.recycle(store.acquire(2 * kChunk, kNoLimit, false));  // a forked process cannot make them
  EXPECT_DEATH((void)range.map(run_of(1, 2), kNoLimit, false), "mapped where another one is");
  EXPECT_DEATH((void)range.map(run_of(kChunks, 1), kNoLimit, false), "behind the range");
  EXPECT_DEATH(range.unmap({0, kChunk / 2}), "ends inside a chunk");
  EXPECT_DEATH(range.unmap(run_of(5, 1)), "where no chunk begins");
  const gantry::Run block = run_of(0, 1);
  (void)range.pin(block);
  EXPECT_DEATH(range.unmap(run_of(0, 2)), "that other processes may map");
  range.unpin(block);
  EXPECT_DEATH(range.unpin(block), "more often than it was pinned");
  range.unmap(run_of(0, 2));
  store.release_unmapped();
}
#endif

}  // namespace
}  // namespace gantry::memory
