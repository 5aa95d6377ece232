#include <gantry/memory/mem_pool.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/peer.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/snapshot.hpp>

#include "tests/memory/heap_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::eventually;
using gantry::testing::FaultDriver;
using gantry::testing::kMib;
using gantry::testing::StreamHold;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class MemPoolTest : public gantry::testing::HeapTest {
 protected:
  static std::vector<std::uint8_t> contents(const Buffer& buffer, const Stream& stream) {
    std::vector<std::uint8_t> seen(buffer.bytes());
    driver().copy(seen.data(), buffer.data(), seen.size(), stream.native());
    stream.synchronize();
    return seen;
  }
  static std::vector<std::uint8_t> filled(const Buffer& buffer, std::uint8_t value) {
    return std::vector<std::uint8_t>(buffer.bytes(), value);
  }

  // A pool of two blocks, 10 and 20 MiB, with a free one of 4 MiB between them.
  struct GappedPool {
    GappedPool() { gap.reset(); }
    // Takes the free block and gives it back.
    void use_gap() { (void)pool.allocate(stream, 4 * kMib); }
    void expect_memory() const {
      for (const Buffer* buffer : {&first, &last}) {
        driver().fill(buffer->data(), 5, buffer->bytes(), stream.native());
        EXPECT_EQ(contents(*buffer, stream), filled(*buffer, 5));
      }
    }

    Stream stream = Stream::current();
    MemPool pool;
    Buffer first = pool.allocate(stream, 10 * kMib);
    std::optional<Buffer> gap = pool.allocate(stream, 4 * kMib);
    Buffer last = pool.allocate(stream, 20 * kMib);
  };
};

TEST_F(MemPoolTest, SharesNoMemoryWithOthers) {
  const Stream stream = Stream::current();
  MemPool pool;
  Buffer inside = pool.allocate(stream, 3 * kMib);
  void* data = inside.data();
  inside.reset();
  EXPECT_NE(allocate(stream, 3 * kMib).data(), data);
  EXPECT_EQ(pool.allocate(stream, 3 * kMib).data(), data);
}

TEST_F(MemPoolTest, ItsSnapshotHasItsOwnSegmentsAlone) {
  const Stream stream = Stream::current();
  MemPool first;
  MemPool second;
  const Buffer common = allocate(stream, kMib);
  const Buffer others = first.allocate(stream, 2 * kMib);
  const Buffer own = second.allocate(stream, 3 * kMib);
  const Snapshot taken = second.snapshot();
  ASSERT_EQ(taken.segments.size(), 1u);
  EXPECT_EQ(taken.segments[0].pool_id,
            std::pair(std::int64_t{0}, static_cast<std::int64_t>(second.id())));
  EXPECT_EQ(taken.segments[0].allocated_bytes, 3 * kMib);
}

TEST_F(MemPoolTest, AGuardSendsAThreadsAllocationsThere) {
  const Stream stream = Stream::current();
  MemPool outer;
  MemPool inner;
  std::vector<Buffer> buffers;
  {
    const MemPoolGuard guard(outer);
    buffers.push_back(allocate(stream, 1000));
    {
      const MemPoolGuard nested(inner);
      buffers.push_back(allocate(stream, 1000));
      std::thread([&] { buffers.push_back(allocate(stream, 1000)); }).join();
    }
    buffers.push_back(allocate(stream, 1000));
  }
  buffers.push_back(allocate(stream, 1000));
  EXPECT_EQ(outer.use_count(), 2u);
  EXPECT_EQ(inner.use_count(), 1u);
  buffers.clear();
  EXPECT_EQ(outer.use_count(), 0u);
}

TEST_F(MemPoolTest, GivesItsMemoryBackWhenItEnds) {
  const Stream stream = Stream::current();
  Buffer left;
  {
    MemPool pool;
    left = pool.allocate(stream, 3 * kMib);
    { const Buffer cached = pool.allocate(stream, 30 * kMib); }
    EXPECT_GE(reserved(), 34 * kMib);
  }
  EXPECT_EQ(reserved(), 4 * kMib) << "only the live block's chunks stay";
  driver().fill(left.data(), 1, left.bytes(), stream.native());
  stream.synchronize();
  left.reset();
  empty_cache();
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(MemPoolTest, OthersTakeItsFreeMemoryOnlyIfItAllows) {
  const Stream stream = Stream::current();
  limit_to(40 * kMib);
  {
    MemPool pool;
    { const Buffer cached = pool.allocate(stream, 30 * kMib); }
    EXPECT_THROW(static_cast<void>(allocate(stream, 20 * kMib)), OutOfMemoryError);
  }
  MemPool generous(Device::cuda(0), {.use_on_oom = true});
  { const Buffer cached = generous.allocate(stream, 30 * kMib); }
  const Buffer large = allocate(stream, 20 * kMib);
  EXPECT_EQ(large.bytes(), 20 * kMib);
}

TEST_F(MemPoolTest, ADriverCallIsNotNeededForAHit) {
  const Stream stream = Stream::current();
  MemPool pool;
  { const Buffer warm = pool.allocate(stream, 1000); }
  const FaultDriver driver;
  for (int i = 0; i < 10; ++i) {
    const Buffer hit = pool.allocate(stream, 1000);
  }
  EXPECT_EQ(gantry::testing::allocator_calls(driver), 0u);
}

TEST_F(MemPoolTest, BlocksThatMayNotBeCutStayWhole) {
  const Stream stream = Stream::current();
  MemPool pool(Device::cuda(0), {.no_split = true});
  { const Buffer cached = pool.allocate(stream, 30 * kMib); }
  const Buffer part = pool.allocate(stream, 20 * kMib);
  EXPECT_EQ(allocated(), 30 * kMib);
}

// A block of all neighbours would be handed out whole.
TEST_F(MemPoolTest, BlocksThatMayNotBeCutAreNotJoined) {
  const Stream stream = Stream::current();
  MemPool pool(Device::cuda(0), {.no_split = true});
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 10; ++i) buffers.push_back(pool.allocate(stream, 32 * kMib));
  }
  const auto held = reserved();
  for (int i = 0; i < 20; ++i) {
    const Buffer first = pool.allocate(stream, (4 + i) * kMib);
    const Buffer second = pool.allocate(stream, 32 * kMib);
    EXPECT_LE(allocated(), 64 * kMib);
  }
  EXPECT_EQ(reserved(), held);
}

TEST_F(MemPoolTest, BlocksKeepTheirAddressesWithoutPhysicalMemory) {
  const Stream stream = Stream::current();
  const std::size_t free_before = mem_get_info().free;
  MemPool pool;
  const Buffer large = pool.allocate(stream, 40 * kMib);
  const Buffer small = pool.allocate(stream, 1000);
  void* data = large.data();
  pool.release_physical();
  EXPECT_FALSE(pool.has_physical());
  EXPECT_EQ(reserved(), 0u);
  EXPECT_GE(mem_get_info().free + kMib, free_before);
  EXPECT_THAT([&] { static_cast<void>(pool.allocate(stream, 1000)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("physical memory")));
  pool.restore_physical();
  EXPECT_TRUE(pool.has_physical());
  EXPECT_EQ(large.data(), data);
  for (const Buffer* buffer : {&large, &small}) {
    driver().fill(buffer->data(), 5, buffer->bytes(), stream.native());
    EXPECT_EQ(contents(*buffer, stream), filled(*buffer, 5));
  }
}

TEST_F(MemPoolTest, AReleaseWaitsForPeers) {
  GANTRY_REQUIRE_DEVICES(2);
  if (!can_access_peer(Device::cuda(1), Device::cuda(0))) GTEST_SKIP() << "needs peer access";
  enable_peer_access(Device::cuda(1), Device::cuda(0));
  MemPool pool;
  const Buffer buffer = pool.allocate(Stream::current(), 4 * kMib);
  FaultDriver driver;
  StreamHold hold(Stream::from_pool(Device::cuda(1)));
  std::atomic<bool> is_over{false};
  std::thread release([&] {
    pool.release_physical();
    is_over = true;
  });
  EXPECT_TRUE(eventually([&] { return is_over || driver.calls("synchronize_device") >= 2; }));
  EXPECT_FALSE(is_over) << "a kernel of the peer may use the memory";
  hold.release();
  release.join();
  EXPECT_FALSE(pool.has_physical());
}

TEST_F(MemPoolTest, ACaptureIsNotSpoiltByARefusedRelease) {
  const Stream captured = Stream::from_pool();
  MemPool pool;
  const Buffer buffer = pool.allocate(Stream::current(), 3 * kMib);
  driver().begin_capture(captured.native(), CaptureMode::relaxed);
  EXPECT_THAT([&] { pool.release_physical(); },
              ThrowsMessage<CaptureError>(HasSubstr("end the capture first")));
  EXPECT_TRUE(pool.has_physical());
  NativeGraph graph = nullptr;
  EXPECT_NO_THROW(graph = driver().end_capture(captured.native()));
  driver().destroy_graph(graph);
  EXPECT_NO_THROW(pool.release_physical());
  EXPECT_FALSE(pool.has_physical());
  pool.restore_physical();
}

TEST_F(MemPoolTest, AParkedPoolRefusesAlsoWhatAThreadHasJustFreed) {
  const Stream stream = Stream::current();
  MemPool pool;
  std::optional<Buffer> small = pool.allocate(stream, 1000);
  pool.release_physical();
  small.reset();
  EXPECT_THROW(static_cast<void>(pool.allocate(stream, 1000)), InvalidArgument);
  pool.restore_physical();
}

TEST_F(MemPoolTest, ThreadsReleaseAndRestoreAtTheSameTime) {
  const Stream stream = Stream::current();
  MemPool pool(Device::cuda(0), {.use_on_oom = true});
  std::vector<Buffer> kept;
  for (int i = 0; i < 6; ++i) kept.push_back(pool.allocate(stream, 5 * kMib));
  std::vector<std::thread> threads;
  for (int seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&pool, seed] {
      for (int i = 0; i < 50; ++i) {
        if ((i + seed) % 2 == 0) {
          pool.restore_physical();
        } else {
          pool.release_physical();
        }
      }
    });
  }
  std::atomic<bool> stop{false};
  std::thread user([&] {
    while (!stop) {
      try {
        const Buffer buffer = pool.allocate(stream, 3 * kMib);
      } catch (const InvalidArgument&) {
      }
      empty_cache();
    }
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  user.join();
  pool.restore_physical();
  EXPECT_TRUE(pool.has_physical());
  EXPECT_EQ(pool.use_count(), kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    driver().fill(kept[i].data(), static_cast<std::uint8_t>(i + 1), kept[i].bytes(),
                  stream.native());
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(contents(kept[i], stream), filled(kept[i], static_cast<std::uint8_t>(i + 1)));
  }
  empty_cache();
  EXPECT_EQ(allocated(), 30 * kMib);
  EXPECT_EQ(reserved(), 30 * kMib) << "the blocks lie side by side";
}

TEST_F(MemPoolTest, AFailedReleaseLeavesItUsable) {
  GappedPool gapped;
  MemPool& pool = gapped.pool;
  FaultDriver faults;
  for (const std::uint64_t nth : {1, 2, 3}) {  // the gap's memory, then that of the two blocks
    faults.fail_on("unmap", nth);
    EXPECT_THAT([&] { pool.release_physical(); }, ThrowsMessage<CudaError>(HasSubstr("[unmap]")));
    EXPECT_TRUE(pool.has_physical());
    gapped.expect_memory();
    gapped.use_gap();
  }
  pool.release_physical();
  EXPECT_EQ(reserved(), 0u);
  pool.restore_physical();
  EXPECT_EQ(reserved(), 30 * kMib);
}

TEST_F(MemPoolTest, AFailedReleaseThatCannotBeUndoneLeavesItReleased) {
  GappedPool gapped;
  MemPool& pool = gapped.pool;
  FaultDriver faults;
  faults.fail_on("unmap", 3);
  faults.fail_on("map_chunk", 1, gantry::testing::kOutOfMemory, 1000);
  EXPECT_THAT([&] { pool.release_physical(); }, ThrowsMessage<CudaError>(HasSubstr("[unmap]")));
  EXPECT_FALSE(pool.has_physical());
  EXPECT_EQ(reserved(), 0u);
  faults.fail_nothing();
  // Neither can this one: what it got back stays, and the driver's error is told.
  faults.fail_on("map_chunk", 11);  // the first of the second run
  faults.fail_on("unmap", 1, gantry::testing::kInvalidValue, 1000);
  EXPECT_THAT([&] { pool.restore_physical(); }, ThrowsMessage<CudaError>(HasSubstr("[map_chunk]")));
  EXPECT_FALSE(pool.has_physical());
  faults.fail_nothing();
  pool.restore_physical();
  EXPECT_TRUE(pool.has_physical());
  gapped.expect_memory();
}

TEST_F(MemPoolTest, RestoreWithoutMemoryLeavesItReleased) {
  const Stream stream = Stream::current();
  limit_to(40 * kMib);
  MemPool pool;
  const Buffer large = pool.allocate(stream, 30 * kMib);
  pool.release_physical();
  std::optional<Buffer> other = allocate(stream, 30 * kMib);
  EXPECT_THROW(pool.restore_physical(), OutOfMemoryError);
  EXPECT_FALSE(pool.has_physical());
  other.reset();
  pool.restore_physical();
  EXPECT_TRUE(pool.has_physical());
}

TEST_F(MemPoolTest, RestoreWithoutMemoryKeepsNoneOfIt) {
  const Stream stream = Stream::current();
  limit_to(40 * kMib);
  GappedPool gapped;
  MemPool& pool = gapped.pool;
  pool.release_physical();  // two runs, of which one would fit
  const Buffer other = allocate(stream, 16 * kMib);
  EXPECT_THROW(pool.restore_physical(), OutOfMemoryError);
  EXPECT_EQ(reserved(), 16 * kMib);
  EXPECT_FALSE(pool.has_physical());
}

TEST_F(MemPoolTest, OnlyLiveBlocksAreRestored) {
  const Stream stream = Stream::current();
  MemPool pool;
  const Buffer kept = pool.allocate(stream, 8 * kMib);
  { const Buffer cached = pool.allocate(stream, 32 * kMib); }
  pool.release_physical();
  EXPECT_EQ(reserved(), 0u);
  pool.restore_physical();
  EXPECT_EQ(reserved(), 8 * kMib);
}

// A pool can always be destroyed, and used again once nothing of it lives.
TEST_F(MemPoolTest, DestroyingAParkedPoolNeedsNoMemoryForWhatIsFree) {
  const Stream stream = Stream::current();
  limit_to(40 * kMib);
  std::optional<Buffer> outlives;
  std::uint64_t id = 0;
  {
    MemPool pool;
    id = pool.id();
    std::optional<Buffer> freed = pool.allocate(stream, 20 * kMib);
    outlives = pool.allocate(stream, 4 * kMib);
    pool.release_physical();
    freed.reset();
    const Buffer other = allocate(stream, 34 * kMib);
  }
  empty_cache();
  EXPECT_EQ(reserved(), 4 * kMib) << "what outlives its pool has its memory again";
  driver().fill(outlives->data(), 5, outlives->bytes(), stream.native());
  outlives.reset();
  empty_cache();
  EXPECT_EQ(reserved(), 0u);
  const MemPool anew;
  EXPECT_EQ(anew.id(), id);
}

TEST_F(MemPoolTest, BlocksThatOutliveAParkedPoolInAShortageLeaveItClean) {
  const Stream stream = Stream::current();
  limit_to(40 * kMib);
  std::optional<MemPool> pool(std::in_place);
  const std::uint64_t id = pool->id();
  std::optional<Buffer> first = pool->allocate(stream, 10 * kMib);
  std::optional<Buffer> gap = pool->allocate(stream, 4 * kMib);
  std::optional<Buffer> last = pool->allocate(stream, 20 * kMib);
  gap.reset();
  pool->release_physical();
  std::optional<Buffer> other = allocate(stream, 24 * kMib);
  pool.reset();  // has no memory for the two; says so in the log
  EXPECT_EQ(reserved(), 24 * kMib);
  EXPECT_NE(MemPool().id(), id) << "its blocks live";
  first.reset();
  last.reset();
  EXPECT_LT(stats().largest_free, static_cast<std::int64_t>(24 * kMib)) << "that has no memory";
  other.reset();
  empty_cache();
  MemPool anew;
  EXPECT_EQ(anew.id(), id);
  const Buffer buffer = anew.allocate(stream, 30 * kMib);
  driver().fill(buffer.data(), 5, buffer.bytes(), stream.native());
  stream.synchronize();
}

TEST_F(MemPoolTest, AParkedPoolThatIsDestroyedIsUsedAgainWhenItsLastUseIsOver) {
  const Stream stream = Stream::current();
  const Stream side = Stream::from_pool();
  limit_to(40 * kMib);
  std::optional<MemPool> pool(std::in_place);
  const std::uint64_t id = pool->id();
  std::optional<Buffer> outlives = pool->allocate(stream, 20 * kMib);
  pool->release_physical();
  const Buffer other = allocate(stream, 24 * kMib);
  pool.reset();  // has no memory for the block; says so in the log
  StreamHold hold(side);
  allocator(Device::cuda(0)).record_stream(outlives->block(), side);
  outlives.reset();
  EXPECT_NE(MemPool().id(), id) << "a stream may use its block";
  hold.release();
  driver().synchronize_stream(side.native());  // clocks learn nothing from it
  EXPECT_EQ(MemPool().id(), id);
}

TEST_F(MemPoolTest, ADestroyedPoolIsUsedAgainOnlyWithoutLiveBlocks) {
  const Stream stream = Stream::current();
  for (const std::size_t bytes : {std::size_t{1000}, 3 * kMib}) {
    std::optional<MemPool> pool(std::in_place);
    const std::uint64_t id = pool->id();
    std::vector<Buffer> left;
    for (int i = 0; i < 2; ++i) left.push_back(pool->allocate(stream, bytes));
    pool.reset();
    for (; !left.empty(); left.pop_back()) {
      const MemPool other;
      EXPECT_NE(other.id(), id) << left.size() << " blocks of " << bytes << " bytes live";
      EXPECT_EQ(other.use_count(), 0u);
    }
    empty_cache();
    EXPECT_EQ(MemPool().id(), id);
  }
}

TEST_F(MemPoolTest, AppearsInTheSnapshot) {
  const Stream stream = Stream::current();
  MemPool pool;
  const Buffer inside = pool.allocate(stream, 3 * kMib);
  bool found = false;
  for (const SegmentInfo& segment : snapshot().segments) {
    if (segment.pool_id.second != static_cast<std::int64_t>(pool.id())) continue;
    found = true;
    EXPECT_EQ(segment.allocated_bytes, 3 * kMib);
  }
  EXPECT_TRUE(found);
}

TEST_F(MemPoolTest, MakesDoWithFewAddresses) {
  const Stream stream = Stream::current();
  const std::vector<MemPool> known(16);  // those that have a range from tests before
  FaultDriver driver;
  driver.fail_on("reserve_address", 1, gantry::testing::kOutOfMemory, 3);
  MemPool pool;
  const Buffer buffer = pool.allocate(stream, 5 * kMib);
  EXPECT_EQ(driver.calls("reserve_address"), 4u);
  driver.fill(buffer.data(), 5, buffer.bytes(), stream.native());
  stream.synchronize();
  // Those that are too few are of no use.
  driver.fail_on("reserve_address", 1, gantry::testing::kOutOfMemory, 1000);
  MemPool other;
  EXPECT_THROW(static_cast<void>(other.allocate(stream, 5 * kMib)), CudaError);
  driver.fail_nothing();
  EXPECT_NO_THROW(static_cast<void>(other.allocate(stream, 5 * kMib)));
}

TEST_F(MemPoolTest, RefusesBadArguments) {
  EXPECT_THROW(MemPool(Device::cpu()), InvalidArgument);
  if (device_count() < 2) return;
  MemPool pool(Device::cuda(0));
  EXPECT_THAT([&] { static_cast<void>(pool.allocate(Stream::current(Device::cuda(1)), 1)); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("MemPool::allocate: expected a stream of cuda:0, but got one of "
                            "cuda:1")));
}

}  // namespace
}  // namespace gantry::memory
