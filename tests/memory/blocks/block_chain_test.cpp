// Blocks and holes of an address range that needs no memory.
#include "memory/blocks/block_chain.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include <gantry/streams/stream.hpp>

#include "memory/arenas/chunk_store.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::kMib;

BlockUse use_of(const HeapBlock& block) { return block.use.load(std::memory_order_relaxed); }

class BlockChainTest : public gantry::testing::DeviceTest {
 protected:
  static constexpr std::size_t kRange = 256 * kMib;

  void SetUp() override {
    DeviceTest::SetUp();
    chain.open(nullptr, base, kRange);
  }

  /// A live block of new memory.
  HeapBlock& live(std::size_t bytes) {
    Growth growth;
    EXPECT_TRUE(chain.begin(growth, bytes, kFineChunkBytes, own));
    HeapBlock& block = slots.insert(growth.end());
    EXPECT_EQ(slots.find(bytes, own, Search::own), &block);
    slots.remove(block);
    block.use.store(BlockUse::live);
    return block;
  }
  /// Makes a live block a hole.
  void take_memory(HeapBlock& block) {
    block.use.store(BlockUse::in_transition);
    chain.insert_hole(block);
  }
  /// Frees a block for one stream, or for all.
  void release(HeapBlock& block, StreamBlocks* stream, std::uint64_t sequence = 7) {
    block.use.store(BlockUse::in_transition);
    block.stream = stream;
    block.sequence = sequence;
    slots.insert(block);
  }

  std::byte* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  BlockSlab slab;
  FreeBlocks slots{slab, {}, true};
  BlockChain chain{slab, slots};
  StreamBlocks& own = slots.of(Stream::current());
  StreamBlocks& other = slots.of(Stream::from_pool());
};

TEST_F(BlockChainTest, FillsAHoleFromItsBeginning) {
  HeapBlock& first = live(10 * kMib);
  HeapBlock& second = live(3 * kMib - 512);
  EXPECT_EQ(first.data, base);
  EXPECT_EQ(second.data, first.end());
  EXPECT_EQ(second.bytes, 4 * kMib) << "chunks are mapped whole";
  EXPECT_EQ(second.stream, nullptr);
  ASSERT_NE(second.next, nullptr);
  EXPECT_EQ(use_of(*second.next), BlockUse::hole);
  EXPECT_EQ(second.next->bytes, kRange - 14 * kMib);
}

TEST_F(BlockChainTest, MapsWhatTheNeighboursLack) {
  HeapBlock& left = live(6 * kMib);
  release(left, nullptr);
  Growth growth;
  ASSERT_TRUE(chain.begin(growth, 10 * kMib, kFineChunkBytes, own));
  EXPECT_EQ(growth.hole().data, left.end());
  EXPECT_EQ(growth.hole().bytes, 4 * kMib);
  slots.insert(growth.end());
  const HeapBlock* whole = slots.find(10 * kMib, own, Search::own);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->data, base);
  EXPECT_EQ(whole->bytes, 10 * kMib);
  EXPECT_EQ(whole->stream, nullptr);
}

TEST_F(BlockChainTest, MapsWholeUnitsWhereTheHoleIsLargeEnough) {
  HeapBlock& left = live(6 * kMib);
  release(left, nullptr);
  {
    Growth growth;
    ASSERT_TRUE(chain.begin(growth, 10 * kMib, 32 * kMib, own));
    EXPECT_EQ(growth.hole().data, left.end());
    EXPECT_EQ(growth.hole().bytes, 32 * kMib);
    growth.cancel();
  }
  Growth growth;
  ASSERT_TRUE(chain.begin(growth, 240 * kMib, 32 * kMib, own));
  EXPECT_EQ(growth.hole().bytes, 234 * kMib) << "256 would not fit";
}

TEST_F(BlockChainTest, ABlockBetweenNeighboursIsForTheStreamOfEither) {
  HeapBlock& left = live(8 * kMib);
  HeapBlock& middle = live(2 * kMib);
  HeapBlock& right = live(4 * kMib);
  static_cast<void>(live(2 * kMib));  // so that the hole behind it is no neighbour
  take_memory(middle);
  release(left, nullptr);
  release(right, &own);
  Growth growth;
  ASSERT_TRUE(chain.begin(growth, 14 * kMib, kFineChunkBytes, own));
  EXPECT_EQ(growth.hole().bytes, 2 * kMib);
  slots.insert(growth.end());
  const HeapBlock* whole = slots.find(14 * kMib, own, Search::own);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->data, base);
  EXPECT_EQ(whole->stream, &own);
  EXPECT_EQ(whole->sequence, 7u) << "the new memory has no work, its neighbour has";
}

TEST_F(BlockChainTest, ABlockIsOfAGraphIfAPartOfItIs) {
  for (const bool is_left_captured : {false, true}) {
    for (const bool is_right_captured : {false, true}) {
      HeapBlock& left = live(8 * kMib);
      HeapBlock& middle = live(2 * kMib);
      HeapBlock& right = live(4 * kMib);
      static_cast<void>(live(2 * kMib));  // so that the hole behind it is no neighbour
      take_memory(middle);
      left.captured = is_left_captured;
      right.captured = is_right_captured;
      release(left, nullptr);
      release(right, nullptr);
      Growth growth;
      ASSERT_TRUE(chain.begin(growth, 14 * kMib, kFineChunkBytes, own));
      HeapBlock& whole = slots.insert(growth.end());
      EXPECT_EQ(whole.bytes, 14 * kMib) << is_left_captured << is_right_captured;
      EXPECT_EQ(whole.captured, is_left_captured || is_right_captured);
      slots.remove(whole);
      whole.use.store(BlockUse::live);
    }
  }
}

// The number of a common block is its age; that of a stream's block is what others wait for.
TEST_F(BlockChainTest, AJoinedBlockIsAsYoungAsItsYoungestPart) {
  for (const bool is_left_younger : {false, true}) {
    HeapBlock& left = live(8 * kMib);
    HeapBlock& middle = live(2 * kMib);
    HeapBlock& right = live(4 * kMib);
    static_cast<void>(live(2 * kMib));  // so that the hole behind it is no neighbour
    take_memory(middle);
    release(left, nullptr, is_left_younger ? 9 : 5);
    release(right, nullptr, is_left_younger ? 5 : 9);
    Growth growth;
    ASSERT_TRUE(chain.begin(growth, 14 * kMib, kFineChunkBytes, own));
    HeapBlock& whole = slots.insert(growth.end());
    EXPECT_EQ(whole.bytes, 14 * kMib);
    EXPECT_EQ(whole.sequence, 9u) << is_left_younger;
    slots.remove(whole);
  }
}

TEST_F(BlockChainTest, BlocksOfAnotherStreamAreNoNeighbours) {
  HeapBlock& left = live(6 * kMib);
  release(left, &other);
  Growth growth;
  ASSERT_TRUE(chain.begin(growth, 10 * kMib, kFineChunkBytes, own));
  EXPECT_EQ(growth.hole().bytes, 10 * kMib);
  EXPECT_EQ(use_of(left), BlockUse::free);
}

TEST_F(BlockChainTest, GrowsABlockOfAnySizeThatSavesMemory) {
  HeapBlock& left = live(4 * kMib);
  HeapBlock& middle = live(8 * kMib);
  static_cast<void>(live(2 * kMib));  // so that the large hole has no free neighbour
  take_memory(middle);
  release(left, nullptr);
  Growth growth;
  ASSERT_TRUE(chain.begin(growth, 10 * kMib, kFineChunkBytes, own));
  EXPECT_EQ(growth.hole().data, left.end());
  EXPECT_EQ(growth.hole().bytes, 6 * kMib);
}

// The largest of so many that not all of them are considered.
TEST_F(BlockChainTest, GrowsTheLargestOfManyBlocks) {
  std::vector<HeapBlock*> free;
  std::vector<HeapBlock*> holes;
  for (std::size_t i = 0; i < 40; ++i) {
    free.push_back(&live((i == 20 ? 4 : 2) * kMib));
    holes.push_back(&live(4 * kMib));
  }
  static_cast<void>(live(2 * kMib));
  // Later ones come first in their bin.
  for (std::size_t i = 0; i < free.size(); ++i) {
    take_memory(*holes[i]);
    release(*free[i], nullptr);
  }
  Growth growth;
  ASSERT_TRUE(chain.begin(growth, 5 * kMib, kFineChunkBytes, own));
  EXPECT_EQ(growth.hole().bytes, 2 * kMib);
  EXPECT_TRUE(growth.hole().previous == free[20] || growth.hole().next == free[20]);
}

TEST_F(BlockChainTest, AGrowthKeepsItsNeighboursUntilItEnds) {
  HeapBlock& left = live(6 * kMib);
  release(left, nullptr);
  {
    Growth growth;
    ASSERT_TRUE(chain.begin(growth, 10 * kMib, kFineChunkBytes, own));
    EXPECT_EQ(chain.growths(), 1);
    EXPECT_EQ(use_of(left), BlockUse::in_transition);
    EXPECT_EQ(use_of(growth.hole()), BlockUse::mapping);
    EXPECT_EQ(slots.find(2 * kMib, own, Search::exhaustive), nullptr);
  }
  EXPECT_EQ(chain.growths(), 0);
  EXPECT_EQ(slots.find(6 * kMib, own, Search::own), &left);
  ASSERT_NE(left.next, nullptr);
  EXPECT_EQ(use_of(*left.next), BlockUse::hole);
  EXPECT_EQ(left.next->bytes, kRange - 6 * kMib) << "the hole is not one again";
}

TEST_F(BlockChainTest, HasNoGrowthWithoutAddresses) {
  Growth growth;
  EXPECT_FALSE(chain.begin(growth, kRange + 1, kFineChunkBytes, own));
  EXPECT_FALSE(growth.has_begun());
  EXPECT_EQ(use_of(*chain.first()), BlockUse::hole);
}

TEST_F(BlockChainTest, CoversItsRangeWhateverHappens) {
  std::mt19937 random(1);
  std::vector<HeapBlock*> all_live;
  std::array<Growth, 4> growths;
  const auto size = [&] { return (1 + random() % 16) * kMib; };
  for (int step = 0; step < 20000; ++step) {
    Growth& growth = growths[random() % growths.size()];
    switch (random() % 5) {
      case 0:
        if (!growth.has_begun())
          static_cast<void>(chain.begin(growth, size(), kFineChunkBytes, own));
        break;
      case 1:
        if (growth.has_begun()) slots.insert(growth.end());
        break;
      case 2:
        growth.cancel();
        break;
      case 3:
        if (HeapBlock* block = slots.find(size(), own, Search::exhaustive)) {
          const std::size_t head = random() % 2 * kMib / 2;
          HeapBlock& part = chain.extract(*block, head, block->bytes - head - random() % 2 * 512);
          if (random() % 2 == 0) {
            chain.insert_hole(part);
          } else {
            part.use.store(BlockUse::live);
            all_live.push_back(&part);
          }
        }
        break;
      case 4:
        if (!all_live.empty()) {
          std::swap(all_live[random() % all_live.size()], all_live.back());
          all_live.back()->use.store(BlockUse::in_transition);
          const std::array<StreamBlocks*, 3> streams{nullptr, &own, &other};
          release(*all_live.back(), streams[random() % streams.size()]);
          all_live.pop_back();
        }
        break;
    }
    const std::byte* end = base;
    const HeapBlock* before = nullptr;
    for (const HeapBlock* block = chain.first(); block != nullptr; block = block->next) {
      ASSERT_EQ(block->data, end);
      ASSERT_EQ(block->previous, before);
      const bool both_holes = before != nullptr && use_of(*before) == BlockUse::hole &&
                              use_of(*block) == BlockUse::hole;
      ASSERT_FALSE(both_holes);
      ASSERT_NE(use_of(*block), BlockUse::unused);
      end = block->end();
      before = block;
    }
    ASSERT_EQ(end, base + kRange);
  }
}

}  // namespace
}  // namespace gantry::memory
