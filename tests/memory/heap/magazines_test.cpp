// Small blocks that threads keep to themselves.
#include "memory/heap/thread_cache.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/history.hpp>
#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/snapshot.hpp>

#include "memory/backends.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::expect_stats_add_up;
using gantry::testing::kKib;
using gantry::testing::kMib;

class MagazinesTest : public gantry::testing::HeapTest {};

TEST_F(MagazinesTest, KeepABlockForTheSameSizeAndStream) {
  const Stream stream = Stream::current();
  const Stream other = Stream::from_pool();
  Buffer buffer = allocate(stream, 4 * kKib);
  void* data = buffer.data();
  buffer.reset();
  EXPECT_EQ(stats().cached_bytes, static_cast<std::int64_t>(4 * kKib));
  EXPECT_EQ(allocated(), 0u);
  const Buffer elsewhere = allocate(other, 4 * kKib);
  EXPECT_NE(elsewhere.data(), data);
  const Buffer again = allocate(stream, 4 * kKib - 511);
  EXPECT_EQ(again.data(), data);
  EXPECT_EQ(stats().requested_bytes.all.current, static_cast<std::int64_t>(8 * kKib - 511));
}

// A thread does not look up the pool again while it hits the same magazines.
TEST_F(MagazinesTest, AreThoseOfTheSelectedPool) {
  const Stream stream = Stream::default_stream(Device::cuda(0));
  const auto place = [&stream] { return allocate(stream, 4 * kKib).data(); };
  MemPool pool;
  const void* const common = place();
  EXPECT_EQ(place(), common);
  EXPECT_EQ(place(), common);
  const void* own = nullptr;
  {
    const MemPoolGuard guard(pool);
    own = place();
    EXPECT_NE(own, common);
    EXPECT_EQ(place(), own);
    EXPECT_EQ(place(), own);
  }
  EXPECT_EQ(place(), common);
  EXPECT_EQ(place(), common);
  EXPECT_EQ(pool.allocate(stream, 4 * kKib).data(), own);
  EXPECT_EQ(place(), common);
  const MemPoolGuard guard(pool);
  EXPECT_EQ(place(), own);
}

TEST_F(MagazinesTest, AreThoseOfTheStream) {
  const Stream stream = Stream::default_stream(Device::cuda(0));
  const Stream other = Stream::from_pool(Device::cuda(0));
  std::array<std::set<const void*>, 2> places;
  for (int i = 0; i < 10; ++i) {
    places[0].insert(allocate(stream, 4 * kKib).data());
    places[1].insert(allocate(other, 4 * kKib).data());
  }
  EXPECT_EQ(places[0].size(), 1U);
  EXPECT_EQ(places[1].size(), 1U);
  EXPECT_NE(places[0], places[1]);
}

TEST_F(MagazinesTest, HitsAreRecorded) {
  const Stream stream = Stream::default_stream(Device::cuda(0));
  const auto pair = [&stream] { static_cast<void>(allocate(stream, 4 * kKib)); };
  for (int i = 0; i < 3; ++i) pair();
  record_history();
  for (int i = 0; i < 2; ++i) pair();
  const Snapshot recorded = snapshot();
  std::vector<TraceAction> actions;
  for (const TraceEntry& entry : recorded.device_traces.at(0)) {
    if (entry.action != TraceAction::snapshot) actions.push_back(entry.action);
  }
  record_history({.enabled = false});
  const std::vector<TraceAction> once = {TraceAction::alloc, TraceAction::free_requested,
                                         TraceAction::free_completed};
  std::vector<TraceAction> expected = once;
  expected.insert(expected.end(), once.begin(), once.end());
  EXPECT_EQ(actions, expected);
}

TEST_F(MagazinesTest, ServeNothingFromAReleasedPool) {
  const Stream stream = Stream::default_stream(Device::cuda(0));
  MemPool pool;
  const MemPoolGuard guard(pool);
  Buffer live = allocate(stream, 4 * kKib);
  for (int i = 0; i < 3; ++i) static_cast<void>(allocate(stream, 4 * kKib));
  pool.release_physical();
  live.reset();
  EXPECT_THROW(static_cast<void>(allocate(stream, 4 * kKib)), InvalidArgument);
  pool.restore_physical();
  EXPECT_NO_THROW(static_cast<void>(allocate(stream, 4 * kKib)));
}

// More than a thread logs before it counts.
TEST_F(MagazinesTest, CountLongRowsOfHits) {
  const Stream stream = Stream::default_stream(Device::cuda(0));
  constexpr std::size_t kSizes = 20;
  const auto row = [&stream] {
    std::vector<Buffer> buffers;
    for (std::size_t i = 1; i <= kSizes; ++i) buffers.push_back(allocate(stream, i * 512 - 1));
    for (Buffer& buffer : buffers) buffer.reset();  // in another order than a stack's
  };
  row();
  reset_peak_stats();
  const Stats before = stats();
  constexpr int kRows = 100;
  for (int i = 0; i < kRows; ++i) row();
  const Stats after = stats();
  EXPECT_EQ(after.allocation.all.allocated - before.allocation.all.allocated,
            kRows * static_cast<std::int64_t>(kSizes));
  EXPECT_EQ(after.allocation.all.freed - before.allocation.all.freed,
            kRows * static_cast<std::int64_t>(kSizes));
  EXPECT_EQ(after.allocated_bytes.all.peak - before.allocated_bytes.all.current,
            static_cast<std::int64_t>(kSizes * (kSizes + 1) / 2 * 512));
  EXPECT_EQ(after.requested_bytes.all.current, before.requested_bytes.all.current);
}

// A snapshot must not see a block that is handed out without the event that tells of it.
TEST_F(MagazinesTest, SegmentsAreNotCopiedAmidAHit) {
  const Stream stream = Stream::current();
  { const Buffer buffer = allocate(stream, 4 * kKib); }
  DeviceHeap& heap = heap_allocator().heap(0);
  std::atomic<bool> started{false};
  std::atomic<bool> copied{false};
  bool copied_meanwhile = false;
  HeldSegments held;
  std::thread other;
  const auto hand_out = [&](HeapBlock& taken) noexcept {
    other = std::thread([&] {
      started = true;
      held = heap.segments();
      copied = true;
    });
    while (!started) std::this_thread::yield();
    // Long enough for a copy that does not wait for the end of this.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    while (!copied && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    copied_meanwhile = copied;
    taken.use.store(BlockUse::live);
  };
  ThreadCache& cache = *ThreadCache::current();
  Magazines* const table = cache.find(heap.common_pool(), stream.id());
  ASSERT_NE(table, nullptr);
  HeapBlock* block = nullptr;
  ASSERT_EQ(cache.take(ThreadCache::Way::general, *table, 4 * kKib, 4 * kKib, block, hand_out),
            ThreadCache::Outcome::hit);
  other.join();
  EXPECT_FALSE(copied_meanwhile);
  ASSERT_EQ(held.segments.size(), 1U);
  EXPECT_EQ(held.segments[0].allocated_bytes, 4 * kKib);
  heap.deallocate(*block);
}

TEST_F(MagazinesTest, AreBounded) {
  const Stream stream = Stream::current();
  {
    std::vector<Buffer> many;
    for (int i = 0; i < 100; ++i) many.push_back(allocate(stream, 512));
  }
  EXPECT_EQ(stats().cached_bytes, static_cast<std::int64_t>(Magazines::kDepth * 512));
  {
    std::vector<Buffer> many;
    for (std::size_t i = 0; i < 300; ++i) {
      many.push_back(allocate(stream, kMagazineBlockLimit - i / 8 * 512));
    }
  }
  EXPECT_LE(stats().cached_bytes, static_cast<std::int64_t>(kMagazineBytes));
  EXPECT_GT(stats().cached_bytes, static_cast<std::int64_t>(kMagazineBytes / 2));
}

TEST_F(MagazinesTest, LeaveWithTheirThread) {
  const Stream stream = Stream::current();
  std::thread([&] { const Buffer buffer = allocate(stream, 4 * kKib); }).join();
  EXPECT_EQ(stats().cached_bytes, 0);
  empty_cache();
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(MagazinesTest, AreEmptiedByOtherThreads) {
  const Stream stream = Stream::current();
  { const Buffer buffer = allocate(stream, 4 * kKib); }
  std::thread([] { empty_cache(); }).join();
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(MagazinesTest, PeaksOfOneThreadAreExact) {
  const Stream stream = Stream::current();
  std::mt19937 random(3);
  std::vector<Buffer> live;
  std::int64_t now = 0;
  std::int64_t peak = 0;
  for (int step = 0; step < 20000; ++step) {
    if (live.size() > 50 || (!live.empty() && random() % 2 == 0)) {
      std::swap(live[random() % live.size()], live.back());
      now -= static_cast<std::int64_t>((live.back().bytes() + 511) / 512 * 512);
      live.pop_back();
    } else {
      live.push_back(allocate(stream, 1 + random() % (8 * kKib)));
      now += static_cast<std::int64_t>((live.back().bytes() + 511) / 512 * 512);
      peak = std::max(peak, now);
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(allocated()), now);
  EXPECT_EQ(static_cast<std::int64_t>(max_allocated()), peak);
}

// Owners and a visitor that empties their magazines never hold the same block.
TEST_F(MagazinesTest, SurviveVisitorsAtAnyMoment) {
  constexpr int kThreads = 4;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> owners;
  const Stream stream = Stream::current();
  std::array<std::atomic<int>, 1> collisions{};
  for (unsigned seed = 0; seed < kThreads; ++seed) {
    owners.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int round = 0; round < 3000; ++round) {
        std::vector<Buffer> mine;
        std::set<void*> places;
        for (int i = 0; i < 8; ++i) {
          mine.push_back(allocate(stream, 1 + random() % (4 * kKib)));
          if (!places.insert(mine.back().data()).second) ++collisions[0];
        }
      }
      --running;
    });
  }
  while (running > 0) {
    empty_cache();
    expect_stats_add_up(stats());
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(collisions[0], 0);
  EXPECT_EQ(allocated(), 0u);
}

}  // namespace
}  // namespace gantry::memory
