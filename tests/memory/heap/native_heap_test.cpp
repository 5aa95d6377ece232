// Backend native: driver allocations of PyTorch's sizes, cut into blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/history.hpp>
#include <gantry/memory/snapshot.hpp>

#include "tests/memory/heap/native_backend.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/memory/snapshot/snapshot_replay.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::allocator_calls;
using gantry::testing::FaultDriver;
using gantry::testing::kKib;
using gantry::testing::kMib;
using gantry::testing::StreamHold;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class NativeHeapTest : public gantry::testing::HeapTest {};

std::byte* at(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data()); }

TEST_F(NativeHeapTest, AsksTheDriverForWholeSegments) {
  struct Case {
    std::size_t request;
    std::size_t segment;
  };
  const Stream stream = Stream::current();
  for (const Case& c : {Case{1, 2 * kMib}, Case{kMib, 2 * kMib}, Case{kMib + 1, 20 * kMib},
                        Case{10 * kMib - 512, 20 * kMib}, Case{10 * kMib, 10 * kMib},
                        Case{10 * kMib + 1, 12 * kMib}, Case{31 * kMib, 32 * kMib}}) {
    const Buffer buffer = allocate(stream, c.request);
    EXPECT_EQ(reserved(), c.segment) << c.request;
    EXPECT_EQ(stats().segment.all.current, 1);
    const_cast<Buffer&>(buffer).reset();
    EXPECT_EQ(reserved(), c.segment) << "not cached";
    empty_cache();
    EXPECT_EQ(reserved(), 0u);
  }
}

TEST_F(NativeHeapTest, RoundsTo512Bytes) {
  const Stream stream = Stream::current();
  const Buffer a = allocate(stream, 1);
  const Buffer b = allocate(stream, 513);
  const Buffer c = allocate(stream, 1);
  EXPECT_EQ(at(b) - at(a), 512);
  EXPECT_EQ(at(c) - at(b), 1024);
  EXPECT_EQ(allocated(), 2048u);
  EXPECT_EQ(stats().requested_bytes.all.current, 515);
}

TEST_F(NativeHeapTest, HitsCallTheDriverNotAtAll) {
  const Stream stream = Stream::current();
  const Stream other = Stream::from_pool();
  constexpr std::array<std::size_t, 4> kSizes = {1, 100 * kKib, 3 * kMib, 40 * kMib};
  const auto round = [&] {
    std::vector<Buffer> live;
    for (const Stream& s : {stream, other}) {
      for (const std::size_t bytes : kSizes) live.push_back(allocate(s, bytes));
    }
  };
  round();
  const FaultDriver driver;
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(allocator_calls(driver), 0u);
}

TEST_F(NativeHeapTest, MissesCallTheDriverOnce) {
  const Stream stream = Stream::current();
  const FaultDriver driver;
  const Buffer buffer = allocate(stream, 5 * kMib);
  EXPECT_EQ(driver.calls("allocate"), 1u);
  EXPECT_EQ(allocator_calls(driver), 1u);
}

TEST_F(NativeHeapTest, DoesNotReuseABlockOnAnotherStreamWhileItsOwnIsBusy) {
  const Stream stream = Stream::from_pool();
  const Stream other = Stream::from_pool();
  const StreamHold hold(stream);
  Buffer buffer = allocate(stream, 3 * kMib);
  void* data = buffer.data();
  buffer.reset();
  const Buffer elsewhere = allocate(other, 3 * kMib);
  EXPECT_NE(elsewhere.data(), data);
  EXPECT_EQ(stats().segment.all.current, 2);
}

TEST_F(NativeHeapTest, TakesTheBestFit) {
  const Stream stream = Stream::current();
  std::vector<Buffer> buffers;
  std::vector<void*> places;
  // Above what magazines keep.
  for (const std::size_t kib : {640, 1, 300, 1, 400, 1}) {
    buffers.push_back(allocate(stream, kib * kKib));
    places.push_back(buffers.back().data());
  }
  for (const int i : {0, 2, 4}) buffers[static_cast<std::size_t>(i)].reset();
  EXPECT_EQ(allocate(stream, 290 * kKib).data(), places[2]);
  EXPECT_EQ(allocate(stream, 350 * kKib).data(), places[4]);
  EXPECT_EQ(allocate(stream, 500 * kKib).data(), places[0]);
}

TEST_F(NativeHeapTest, JoinsFreeNeighboursInAnyOrder) {
  const Stream stream = Stream::current();
  std::array<int, 4> order = {0, 1, 2, 3};
  do {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 4; ++i) buffers.push_back(allocate(stream, 5 * kMib));
    EXPECT_EQ(reserved(), 20 * kMib);
    for (const int i : order) buffers[static_cast<std::size_t>(i)].reset();
    EXPECT_EQ(stats().inactive_split.all.current, 0);
    const Buffer whole = allocate(stream, 20 * kMib);
    EXPECT_EQ(reserved(), 20 * kMib) << "the pieces were not joined";
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(NativeHeapTest, SplitsLargeBlocksOnlyForMoreThanOneMib) {
  const Stream stream = Stream::current();
  const Buffer exact = allocate(stream, 19 * kMib);
  EXPECT_EQ(allocated(), 20 * kMib) << "a rest of 1 MiB was cut off";
  EXPECT_EQ(stats().inactive_split.all.current, 0);
  const Buffer cut = allocate(stream, 5 * kMib);
  EXPECT_EQ(stats().inactive_split.all.current, 1);
  EXPECT_EQ(stats().inactive_split_bytes.all.current, static_cast<std::int64_t>(15 * kMib));
}

TEST_F(NativeHeapTest, SmallAndLargeBlocksShareNoSegment) {
  const Stream stream = Stream::current();
  const Buffer small = allocate(stream, 1000);
  const Buffer large = allocate(stream, 2 * kMib);
  const Stats now = stats();
  EXPECT_EQ(now.segment.small_pool.current, 1);
  EXPECT_EQ(now.segment.large_pool.current, 1);
  EXPECT_EQ(now.reserved_bytes.small_pool.current, static_cast<std::int64_t>(2 * kMib));
  EXPECT_EQ(now.reserved_bytes.large_pool.current, static_cast<std::int64_t>(20 * kMib));
}

TEST_F(NativeHeapTest, RecordStreamHoldsTheBlockUntilTheStreamIsDone) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  Buffer buffer = allocate(own, 12 * kMib);
  void* data = buffer.data();
  StreamHold hold(user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  EXPECT_EQ(allocated(), 0u);
  EXPECT_EQ(stats().active_bytes.all.current, static_cast<std::int64_t>(12 * kMib));
  {
    const Buffer other = allocate(own, 12 * kMib);
    EXPECT_NE(other.data(), data);
    hold.release();
    user.synchronize();
    const Buffer again = allocate(own, 12 * kMib);
    EXPECT_EQ(again.data(), data);
  }
  EXPECT_EQ(stats().active_bytes.all.current, 0);
}

TEST_F(NativeHeapTest, RecordOfItsOwnStreamHoldsNothing) {
  const Stream own = Stream::from_pool();
  Buffer buffer = allocate(own, 12 * kMib);
  void* data = buffer.data();
  const StreamHold hold(own);
  allocator(Device::cuda(0)).record_stream(buffer.block(), own);
  buffer.reset();
  EXPECT_EQ(allocate(own, 12 * kMib).data(), data);
}

TEST_F(NativeHeapTest, RecordStreamWorksForStreamsOfOtherDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool(Device::cuda(1));
  Buffer buffer = allocate(own, 12 * kMib);
  StreamHold hold(user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  EXPECT_EQ(stats().active.all.current, 1);
  hold.release();
  empty_cache();
  EXPECT_EQ(stats().active.all.current, 0);
  EXPECT_EQ(reserved(), 0u);
}

// verify() looks at the caches, too. None of these frees calls the heap, which would empty them.
TEST_F(NativeHeapTest, AThreadKeepsSmallAndLargeBlocksOfSeveralStreams) {
  const std::vector<Stream> streams{Stream::current(), Stream::from_pool(), Stream::from_pool()};
  std::vector<Buffer> blocks;
  for (const Stream& stream : streams) {
    for (const std::size_t bytes : {2 * kMib, 2 * kKib, 4 * kKib}) {
      blocks.push_back(allocate(stream, bytes));
    }
  }
  FaultDriver driver;
  for (const std::size_t i : {0, 1, 4, 3, 7, 6, 2, 5, 8}) blocks[i].reset();
  EXPECT_EQ(allocator_calls(driver), 0u);
  EXPECT_EQ(stats().cached_bytes, static_cast<std::int64_t>(3 * (2 * kMib + 6 * kKib)));
  heap_allocator().verify();
}

TEST_F(NativeHeapTest, EmptyCacheGivesBackUnusedSegmentsOnly) {
  const Stream stream = Stream::current();
  const Buffer live = allocate(stream, 1000);
  { const Buffer dead = allocate(stream, 30 * kMib); }
  empty_cache();
  EXPECT_EQ(reserved(), 2 * kMib);
  EXPECT_EQ(stats().num_device_free, stats().segment.all.freed);
}

TEST_F(NativeHeapTest, SegmentsNameWhoMadeThemNecessary) {
  const Stream stream = Stream::current();
  const Buffer silent = allocate(stream, 30 * kMib);
  record_history();
  const Buffer noted = allocate(stream, 40 * kMib);
  const Snapshot now = snapshot();
  record_history({.enabled = false});
  ASSERT_EQ(now.segments.size(), 2U);
  for (const SegmentInfo& segment : now.segments) {
    EXPECT_EQ(segment.frames.empty(), segment.total_bytes == 30 * kMib);
    EXPECT_EQ(segment.frames.empty(), segment.blocks.at(0).frames.empty());
  }
}

// Serves a request with what is given back at the same moment, as a driver may.
class QuickDriver final : public FaultDriver {
 public:
  std::function<void()> when_given_back;

  void* allocate(int device, std::size_t bytes) override {
    return kept_ != nullptr ? std::exchange(kept_, nullptr) : FaultDriver::allocate(device, bytes);
  }
  void deallocate(int device, void* data) override {
    if (!when_given_back) return FaultDriver::deallocate(device, data);
    kept_ = data;
    std::exchange(when_given_back, {})();
  }

 private:
  void* kept_ = nullptr;
};

TEST_F(NativeHeapTest, TheHistoryFreesASegmentBeforeItsAddressesServeAgain) {
  QuickDriver driver;
  const Stream stream = Stream::current();
  record_history();
  Buffer first = allocate(stream, 30 * kMib);
  void* data = first.data();
  first.reset();
  Buffer second;
  driver.when_given_back = [&] {
    std::thread([&] { second = allocate(stream, 30 * kMib); }).join();
  };
  empty_cache();
  EXPECT_EQ(second.data(), data);
  const Snapshot now = snapshot();
  record_history({.enabled = false});
  EXPECT_EQ(gantry::testing::BackwardReplay(now, 0).problem(), "");
  EXPECT_EQ(now.segments.size(), 1U);
  second.reset();
  empty_cache();
}

TEST_F(NativeHeapTest, NamesItself) {
  EXPECT_EQ(allocator_backend(), "native");
  EXPECT_EQ(allocator(Device::cuda(0)).name(), "native");
  EXPECT_EQ(allocator(Device::cpu()).name(), "cpu");
}

}  // namespace
}  // namespace gantry::memory
