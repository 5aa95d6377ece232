#include "memory/blocks/heap_block.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gantry::memory {
namespace {

TEST(HeapBlockTest, ChangesFromEachOfTheNamedStates) {
  for (const BlockUse from : {BlockUse::unused, BlockUse::in_transition}) {
    HeapBlock block;
    block.use.store(from);
    block.change({BlockUse::unused, BlockUse::in_transition}, BlockUse::free);
    EXPECT_EQ(block.use.load(), BlockUse::free);
  }
}

#ifndef NDEBUG
TEST(HeapBlockDeathTest, AChangeFromAnotherStateEndsTheProcess) {
  HeapBlock block;
  block.use.store(BlockUse::pending);
  EXPECT_DEATH(block.change(BlockUse::live, BlockUse::free), "broken invariant: a block is not in");
  EXPECT_DEATH(block.change({BlockUse::live, BlockUse::cached}, BlockUse::free), "heap_block.hpp");
}
#endif

TEST(HeapBlockTest, SplitsAndJoinsWithItsNeighbours) {
  alignas(64) std::byte memory[4096];
  HeapBlock whole;
  whole.data = memory;
  whole.bytes = sizeof memory;
  HeapBlock right;
  HeapBlock middle;
  split_block(whole, 3072, right);
  split_block(whole, 1024, middle);
  EXPECT_EQ(whole.next, &middle);
  EXPECT_EQ(middle.next, &right);
  EXPECT_EQ(right.previous, &middle);
  EXPECT_EQ(middle.data, whole.end());
  EXPECT_EQ(right.data, middle.end());
  EXPECT_EQ(right.end(), memory + sizeof memory);
  absorb_next(whole);
  EXPECT_EQ(whole.next, &right);
  EXPECT_EQ(right.previous, &whole);
  EXPECT_EQ(whole.bytes, 3072U);
}

}  // namespace
}  // namespace gantry::memory
