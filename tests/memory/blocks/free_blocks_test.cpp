// Free blocks of several streams, without memory.
#include "memory/blocks/free_blocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include <gantry/streams/stream.hpp>

#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::kKib;

class FreeBlocksTest : public gantry::testing::DeviceTest {
 protected:
  static constexpr std::size_t kBytes = 4 * kKib;

  // Three neighbours of one range, in transition.
  void SetUp() override {
    DeviceTest::SetUp();
    slab.reserve(3);
    for (std::size_t i = 0; i < 3; ++i) {
      HeapBlock& block = slab.take();
      block.data = base + i * kBytes;
      block.bytes = kBytes;
      block.change(BlockUse::unused, BlockUse::in_transition);
      if (!blocks.empty()) {
        block.previous = blocks.back();
        block.previous->next = &block;
      }
      blocks.push_back(&block);
    }
  }
  HeapBlock& release(std::size_t index, StreamBlocks* stream, std::uint64_t sequence = 7) {
    blocks[index]->stream = stream;
    blocks[index]->sequence = sequence;
    return free.insert(*blocks[index]);
  }

  std::byte* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  BlockSlab slab;
  FreeBlocks free{slab, {}, true};
  StreamBlocks& own = free.of(Stream::current());
  StreamBlocks& other = free.of(Stream::from_pool());
  std::vector<HeapBlock*> blocks;
};

TEST_F(FreeBlocksTest, JoinsNeighboursThatTheSameStreamsMayReuse) {
  release(0, &own);
  EXPECT_EQ(release(2, &other).bytes, kBytes);
  const HeapBlock& joined = release(1, &own);
  EXPECT_EQ(joined.bytes, 2 * kBytes) << "the other stream's block stays apart";
  EXPECT_EQ(free.find(2 * kBytes, own, Search::own), &joined);
  EXPECT_EQ(free.find(2 * kBytes, other, Search::own), nullptr);
  free.verify();
}

TEST_F(FreeBlocksTest, ACommonBlockJoinsAStreamsBlock) {
  release(0, nullptr);
  const HeapBlock& joined = release(1, &own);
  EXPECT_EQ(joined.bytes, 2 * kBytes);
  EXPECT_EQ(joined.stream, &own);
  EXPECT_EQ(free.largest(), 2 * kBytes);
  free.verify();
}

TEST_F(FreeBlocksTest, FindsTheBestFitAmongOwnAndCommonBlocks) {
  blocks[1]->change(BlockUse::in_transition, BlockUse::live);  // keeps them apart
  release(0, &own);
  HeapBlock& common = release(2, nullptr);
  EXPECT_NE(free.find(kBytes, own, Search::own), nullptr);
  EXPECT_EQ(free.find(kBytes, other, Search::own), &common);
  free.remove(common);
  EXPECT_EQ(free.find(kBytes, other, Search::own), nullptr);
  free.verify();
}

#ifndef NDEBUG
using FreeBlocksDeathTest = FreeBlocksTest;

TEST_F(FreeBlocksDeathTest, VerifyFindsWhatIsBroken) {
  HeapBlock& block = release(1, &own);
  const auto expect_death = [this](auto& member, auto broken, const char* text) {
    const auto right = member;
    member = broken;
    EXPECT_DEATH(free.verify(), text);
    member = right;
  };
  expect_death(block.bin, static_cast<std::uint16_t>(block.bin + 1), "another bin");
  expect_death(block.bytes, 2 * block.bytes, "another bin");
  expect_death(block.stream, &other, "in the list of another stream");
  expect_death(block.sequence, std::uint64_t{8}, "outside the range of its stream");
  expect_death(block.data, block.data + 1, "where its neighbour");
  expect_death(blocks[2]->previous, blocks[0], "where its neighbour begins");
  expect_death(blocks[0]->next, blocks[2], "where its neighbour ends");
  block.use.store(BlockUse::live);
  EXPECT_DEATH(free.verify(), "a block of the index is not free");
  block.use.store(BlockUse::free);
  free.verify();
}
#endif

}  // namespace
}  // namespace gantry::memory
