// Backend vmm: chunks mapped into one range of addresses, blocks reused across streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include <gantry/device/peer.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "streams/event_pool.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::allocator_calls;
using gantry::testing::FaultDriver;
using gantry::testing::kKib;
using gantry::testing::kMib;
using gantry::testing::StreamHold;

std::byte* at(const Buffer& buffer) { return static_cast<std::byte*>(buffer.data()); }

class VmmHeapTest : public gantry::testing::HeapTest {};

TEST_F(VmmHeapTest, TakesNoMoreChunksThanBlocksNeed) {
  struct Case {
    std::size_t request;
    std::size_t reserved;
  };
  const Stream stream = Stream::current();
  for (const Case& c :
       {Case{1, 2 * kMib}, Case{kMib, 2 * kMib}, Case{kMib + 1, 2 * kMib},
        Case{10 * kMib, 10 * kMib}, Case{10 * kMib + 1, 12 * kMib}, Case{129 * kMib, 130 * kMib}}) {
    Buffer buffer = allocate(stream, c.request);
    EXPECT_EQ(reserved(), c.reserved) << c.request;
    EXPECT_EQ(stats().segment.all.current, 1);
    buffer.reset();
    EXPECT_EQ(reserved(), c.reserved) << "not cached";
    empty_cache();
    EXPECT_EQ(reserved(), 0u);
    EXPECT_EQ(stats().segment.all.current, 0);
  }
}

TEST_F(VmmHeapTest, ABlockGrowsOutOfTheFreeOneBeforeIt) {
  const Stream stream = Stream::current();
  Buffer first = allocate(stream, 3 * kMib);
  std::byte* place = at(first);
  EXPECT_EQ(reserved(), 4 * kMib);
  first.reset();
  const Buffer second = allocate(stream, 7 * kMib);
  EXPECT_EQ(at(second), place);
  EXPECT_EQ(reserved(), 8 * kMib) << "4 MiB were there already";
}

TEST_F(VmmHeapTest, HitsCallTheDriverNotAtAll) {
  const Stream stream = Stream::current();
  const Stream other = Stream::from_pool();
  constexpr std::array<std::size_t, 5> kSizes = {1, 100 * kKib, 700 * kKib, 3 * kMib, 40 * kMib};
  const auto round = [&] {
    std::vector<Buffer> live;
    for (const Stream& s : {stream, other}) {
      for (const std::size_t bytes : kSizes) live.push_back(allocate(s, bytes));
    }
  };
  round();
  round();
  const FaultDriver driver;
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(allocator_calls(driver), 0u);
}

TEST_F(VmmHeapTest, JoinsFreeNeighboursInAnyOrder) {
  const Stream stream = Stream::current();
  std::array<int, 4> order = {0, 1, 2, 3};
  do {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 4; ++i) buffers.push_back(allocate(stream, 5 * kMib));
    EXPECT_EQ(reserved(), 20 * kMib);
    for (const int i : order) buffers[static_cast<std::size_t>(i)].reset();
    const Buffer whole = allocate(stream, 20 * kMib);
    EXPECT_EQ(reserved(), 20 * kMib) << "the pieces were not joined";
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(VmmHeapTest, AnotherStreamGetsABlockOnlyWhenItsOwnIsDone) {
  const Stream own = Stream::from_pool();
  const Stream other = Stream::from_pool();
  StreamHold hold(own);
  Buffer buffer = allocate(own, 3 * kMib);
  void* data = buffer.data();
  buffer.reset();
  EXPECT_NE(allocate(other, 3 * kMib).data(), data);
  hold.release();
  own.synchronize();
  EXPECT_EQ(allocate(own, 3 * kMib).data(), data);
}

TEST_F(VmmHeapTest, AnotherStreamThatWaitedGetsABlockWithoutADriverCall) {
  const Stream own = Stream::from_pool();
  const Stream other = Stream::from_pool();
  const StreamHold hold(own);
  Buffer buffer = allocate(own, 3 * kMib);
  void* data = buffer.data();
  buffer.reset();
  other.wait(own);
  const FaultDriver driver;
  EXPECT_EQ(allocate(other, 3 * kMib).data(), data);
  EXPECT_EQ(allocator_calls(driver), 0u);
}

TEST_F(VmmHeapTest, AWaitBeforeTheFreeOrdersNothing) {
  const Stream own = Stream::from_pool();
  const Stream other = Stream::from_pool();
  const StreamHold hold(own);
  Buffer buffer = allocate(own, 3 * kMib);
  void* data = buffer.data();
  other.wait(own);
  buffer.reset();
  EXPECT_NE(allocate(other, 3 * kMib).data(), data);
}

TEST_F(VmmHeapTest, OrderIsFollowedOverSeveralStreams) {
  const Stream a = Stream::from_pool();
  const Stream b = Stream::from_pool();
  const Stream c = Stream::from_pool();
  const StreamHold hold(a);
  Buffer buffer = allocate(a, 3 * kMib);
  void* data = buffer.data();
  buffer.reset();
  b.wait(a);
  c.wait(b);
  EXPECT_EQ(allocate(c, 3 * kMib).data(), data);
}

TEST_F(VmmHeapTest, RecordStreamHoldsTheBlockUntilTheStreamIsDone) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  Buffer buffer = allocate(own, 12 * kMib);
  void* data = buffer.data();
  StreamHold hold(user);
  allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  EXPECT_EQ(allocated(), 0u);
  EXPECT_EQ(stats().pending_bytes, static_cast<std::int64_t>(12 * kMib));
  const Buffer other = allocate(own, 12 * kMib);
  EXPECT_NE(other.data(), data);
  hold.release();
  user.synchronize();
  EXPECT_EQ(allocate(own, 12 * kMib).data(), data);
  EXPECT_EQ(stats().pending_bytes, 0);
}

TEST_F(VmmHeapTest, WorkAfterTheFreeDelaysNoBlock) {
  const Stream own = Stream::current();
  const std::array<Stream, 2> users{Stream::from_pool(), Stream::from_pool()};
  // The events are the driver's: clocks learn nothing from them.
  const std::array<PooledEvent, 2> ends{PooledEvent(0), PooledEvent(0)};
  const auto follow = [&users] {
    const PooledEvent event(0);
    driver().record_event(event.get(), users[0].native());
    driver().wait_event(users[1].native(), event.get());
  };
  Buffer buffer = allocate(own, 12 * kMib);
  void* data = buffer.data();
  StreamHold use(users[0]);
  follow();
  for (const Stream& user : users) allocator(Device::cuda(0)).record_stream(buffer.block(), user);
  buffer.reset();
  for (std::size_t i : {0, 1}) driver().record_event(ends[i].get(), users[i].native());
  const StreamHold later(users[0]);
  follow();
  use.release();
  for (const PooledEvent& end : ends) driver().synchronize_event(end.get());
  EXPECT_EQ(allocate(own, 12 * kMib).data(), data);
}

TEST_F(VmmHeapTest, ABlockWhoseStreamWaitedForTheUserIsNotHeld) {
  const Stream own = Stream::from_pool();
  const Stream user = Stream::from_pool();
  Buffer buffer = allocate(own, 12 * kMib);
  void* data = buffer.data();
  const StreamHold hold(user);
  allocator(Device::cuda(0)).record_use(buffer.block(), user);
  own.wait(user);
  buffer.reset();
  EXPECT_EQ(stats().pending_bytes, 0);
  EXPECT_EQ(allocate(own, 12 * kMib).data(), data);
}

TEST_F(VmmHeapTest, RecordUseEndsWithWhatWasSubmitted) {
  const Stream own = Stream::current();
  const Stream user = Stream::from_pool();
  Buffer precise = allocate(own, 12 * kMib);
  Buffer until_free = allocate(own, 14 * kMib);
  allocator(Device::cuda(0)).record_use(precise.block(), user);
  allocator(Device::cuda(0)).record_stream(until_free.block(), user);
  user.synchronize();
  const StreamHold hold(user);  // later work that does not use the first block
  precise.reset();
  until_free.reset();
  EXPECT_EQ(stats().pending_bytes, static_cast<std::int64_t>(14 * kMib));
}

TEST_F(VmmHeapTest, PeersSeeMemoryThatWasMappedBeforeAndAfterTheyCould) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "no peer access";
  const Stream own = Stream::current(Device::cuda(0));
  const Stream peer = Stream::current(Device::cuda(1));
  const Buffer before = allocate(own, 3 * kMib);
  enable_peer_access(Device::cuda(1), Device::cuda(0));
  const Buffer after = allocate(own, 30 * kMib);
  const Buffer target = allocate(peer, 30 * kMib);
  for (const Buffer* source : {&before, &after}) {
    driver().fill(source->data(), 7, source->bytes(), own.native());
    peer.wait(own);
    driver().copy(target.data(), source->data(), source->bytes(), peer.native());
    std::vector<std::uint8_t> seen(source->bytes());
    driver().copy(seen.data(), target.data(), seen.size(), peer.native());
    peer.synchronize();
    EXPECT_EQ(std::ranges::count(seen, 7), static_cast<std::ptrdiff_t>(seen.size()));
  }
}

}  // namespace
}  // namespace gantry::memory
