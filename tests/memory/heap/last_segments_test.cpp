// Memory that backend native takes before it throws OutOfMemoryError: Note [Last resort of
// segments].
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/mem_pool.hpp>

#include "memory/heap/device_heap.hpp"
#include "tests/memory/heap/native_backend.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::kKib;
using gantry::testing::kMib;
using gantry::testing::StreamHold;

class LastSegmentsTest : public gantry::testing::HeapTest {
 protected:
  // The configuration of a heap that may hold `bytes`.
  static AllocConfig limit(std::size_t bytes) {
    const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
    return {.fraction = (static_cast<double>(bytes) + 0.5) / total};
  }
  // Frees all blocks of the only pool in use.
  static void free_all(DeviceHeap& heap, Pool& pool, std::vector<HeapBlock*>& blocks) {
    for (HeapBlock* block : blocks) heap.deallocate(*block);
    blocks.clear();
    heap.verify();
    synchronize();
    if (&pool != &heap.common_pool()) heap.destroy_pool(pool);
    heap.empty_cache();
    EXPECT_EQ(heap.reserved(), 0u);
  }
};

// The common pool, a private one, one that serves others, and one whose blocks stay whole.
std::vector<Pool*> pools_of(DeviceHeap& heap) {
  return {&heap.common_pool(), &heap.make_pool({}), &heap.make_pool({.use_on_oom = true}),
          &heap.make_pool({.no_split = true})};
}

TEST_F(LastSegmentsTest, SmallRequestsTakeFreePartsOfLargeSegments) {
  const Stream stream = Stream::current();
  DeviceHeap heap(0, limit(64 * kMib), HeapBacking::segments);
  for (Pool* pool : pools_of(heap)) {
    if (pool->options.no_split) continue;  // its blocks stay whole
    std::vector<HeapBlock*> blocks;
    for (const std::size_t mib : {24, 20, 4}) {  // the last one shares a segment of 20 MiB
      blocks.push_back(&heap.allocate(mib * kMib, stream, *pool));
    }
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{512}, kKib, kMib - 1, kMib}) {
      blocks.push_back(&heap.allocate(bytes, stream, *pool));
      EXPECT_LE(blocks.back()->bytes, kMib);
      EXPECT_EQ(blocks.back()->stream->clock.id(), stream.id());
      heap.verify();
    }
    EXPECT_EQ(heap.reserved(), 64 * kMib);
    // They return to the large segment, and are joined again.
    for (int i = 0; i < 5; ++i) {
      heap.deallocate(*blocks.back());
      blocks.pop_back();
    }
    synchronize();
    blocks.push_back(&heap.allocate(16 * kMib, stream, *pool));
    EXPECT_EQ(heap.reserved(), 64 * kMib);
    free_all(heap, *pool, blocks);
  }
}

TEST_F(LastSegmentsTest, LargeRequestsTakeFreePartsOfSmallSegments) {
  const Stream stream = Stream::current();
  DeviceHeap heap(0, limit(4 * kMib), HeapBacking::segments);
  std::vector<HeapBlock*> blocks{&heap.allocate(512, stream, heap.common_pool())};
  blocks.push_back(&heap.allocate(2 * kMib, stream, heap.common_pool()));
  blocks.push_back(&heap.allocate(kMib + 512, stream, heap.common_pool()));
  EXPECT_EQ(blocks.back()->bytes, kMib + 512);
  EXPECT_EQ(heap.reserved(), 4 * kMib);
  heap.verify();
  EXPECT_THROW(static_cast<void>(heap.allocate(kMib + 512, stream, heap.common_pool())),
               OutOfMemoryError);
  free_all(heap, heap.common_pool(), blocks);
}

TEST_F(LastSegmentsTest, SegmentsAreNoLargerThanTheRequestWhereNoMoreIsLeft) {
  const Stream stream = Stream::current();
  DeviceHeap heap(0, limit(64 * kMib + 512), HeapBacking::segments);
  for (Pool* pool : pools_of(heap)) {
    std::vector<HeapBlock*> blocks;
    for (const std::size_t mib : {32, 16, 4, 3, 6}) {  // the last three want 20 MiB
      blocks.push_back(&heap.allocate(mib * kMib, stream, *pool));
    }
    EXPECT_EQ(heap.reserved(), 62 * kMib);
    blocks.push_back(&heap.allocate(2 * kMib, stream, *pool));
    EXPECT_EQ(heap.reserved(), 64 * kMib);
    blocks.push_back(&heap.allocate(512, stream, *pool));  // all that the limit leaves
    EXPECT_EQ(heap.reserved(), 64 * kMib + 512);
    EXPECT_THROW(static_cast<void>(heap.allocate(512, stream, *pool)), OutOfMemoryError);
    free_all(heap, *pool, blocks);
  }
}

TEST_F(LastSegmentsTest, APrivatePoolGivesItsOwnUnusedSegmentsBack) {
  const Stream stream = Stream::current();
  DeviceHeap heap(0, limit(64 * kMib), HeapBacking::segments);
  Pool& pool = heap.make_pool({});
  std::vector<HeapBlock*> blocks{&heap.allocate(40 * kMib, stream, pool)};
  heap.deallocate(*blocks.back());
  synchronize();
  blocks.back() = &heap.allocate(60 * kMib, stream, pool);
  EXPECT_EQ(heap.reserved(), 60 * kMib);
  free_all(heap, pool, blocks);
}

TEST_F(LastSegmentsTest, BlocksOfBusyStreamsStayTheirs) {
  const Stream own = Stream::current();
  const Stream busy = Stream::from_pool();
  DeviceHeap heap(0, limit(20 * kMib + 512), HeapBacking::segments);
  std::vector<HeapBlock*> blocks{&heap.allocate(4 * kMib, own, heap.common_pool())};
  HeapBlock& used = heap.allocate(16 * kMib, busy, heap.common_pool());
  const void* place = used.data;
  {
    const StreamHold hold(busy);
    heap.deallocate(used);
    // 512 bytes of the limit are left, and 16 MiB wait for the stream.
    blocks.push_back(&heap.allocate(512, own, heap.common_pool()));
    EXPECT_TRUE(blocks.back()->data < place ||
                blocks.back()->data >= static_cast<const std::byte*>(place) + 16 * kMib);
  }
  busy.synchronize();
  free_all(heap, heap.common_pool(), blocks);
}

// An error is right if no free block has the size, and the limit leaves no room beside the segments
// with a live block.
TEST_F(LastSegmentsTest, NoRequestFailsThatMemoryIsThereFor) {
  const Stream stream = Stream::current();
  int failures = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::size_t most = (24 + random() % 80) * kMib + random() % 3 * 512;
    DeviceHeap heap(0, limit(most), HeapBacking::segments);
    Pool& pool = seed % 2 == 0 ? heap.common_pool() : heap.make_pool({});
    std::vector<HeapBlock*> blocks;
    for (int step = 0; step < 150; ++step) {
      if (!blocks.empty() && random() % 4 == 0) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        heap.deallocate(*blocks.back());
        blocks.pop_back();
        continue;
      }
      const std::size_t bytes = 1 + random() % (std::size_t{512} << random() % 16);
      try {
        blocks.push_back(&heap.allocate(bytes, stream, pool));
        EXPECT_GE(blocks.back()->bytes, bytes);
        EXPECT_LE(heap.reserved(), most);
      } catch (const OutOfMemoryError&) {
        ++failures;
        const std::size_t size = block_bytes(bytes);
        EXPECT_LT(most - heap.reserved(), size);
        for (const SegmentInfo& segment : heap.segments().segments) {
          EXPECT_NE(segment.active_bytes, 0) << "an unused segment is kept";
          for (const BlockInfo& block : segment.blocks) {
            if (block.state == BlockState::inactive) {
              EXPECT_LT(block.bytes, size);
            }
          }
        }
      }
      if (step % 10 == 0) heap.verify();
    }
    free_all(heap, pool, blocks);
  }
  EXPECT_GT(failures, 50);
}

}  // namespace
}  // namespace gantry::memory
