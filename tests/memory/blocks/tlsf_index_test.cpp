// The index against a list of the blocks that are in it.
#include "memory/blocks/tlsf_index.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace gantry::memory {
namespace {

constexpr std::size_t kLargest =
    std::numeric_limits<std::size_t>::max() / kBlockGrain * kBlockGrain;

// Between one grain and 2^40 bytes, evenly over the powers of two.
std::size_t any_size(std::mt19937_64& random) {
  const std::size_t top = std::size_t{1} << (random() % 32);
  return (top + random() % top) * kBlockGrain;
}

// The index may serve a request from the bin above its own, whose blocks are up to 1/32 larger than
// what its own bin holds at most.
std::size_t bin_end(std::size_t bytes) {
  const std::size_t step = std::max(kBlockGrain, std::bit_floor(bytes) / 32);
  return (bytes / step + 1) * step;
}

std::size_t smallest_fit(const std::vector<HeapBlock*>& in, std::size_t bytes) {
  std::size_t best = 0;
  for (const HeapBlock* block : in) {
    if (block->bytes >= bytes && (best == 0 || block->bytes < best)) best = block->bytes;
  }
  return best;
}

TEST(TlsfIndexTest, FindsFitsAmongWhatIsThere) {
  TlsfIndex index;
  std::deque<HeapBlock> blocks(300);
  std::vector<HeapBlock*> out;
  std::vector<HeapBlock*> in;
  for (HeapBlock& block : blocks) out.push_back(&block);
  std::mt19937_64 random(1);
  const auto move = [&random](std::vector<HeapBlock*>& from, std::vector<HeapBlock*>& to) {
    std::swap(from[random() % from.size()], from.back());
    to.push_back(from.back());
    from.pop_back();
    return to.back();
  };
  for (int step = 0; step < 100000; ++step) {
    // Between few and many, so that bins and words become empty and full again.
    const bool grows = step / 2000 % 2 == 0;
    if (!out.empty() && (in.empty() || random() % 8 < (grows ? 5u : 3u))) {
      HeapBlock* block = move(out, in);
      block->bytes = any_size(random);
      index.insert(*block);
    } else {
      index.remove(*move(in, out));
    }
    ASSERT_EQ(index.empty(), in.empty());
    const std::size_t bytes = any_size(random);
    const HeapBlock* found = index.find(bytes);
    const std::size_t best = smallest_fit(in, bytes);
    ASSERT_EQ(found == nullptr, best == 0) << bytes;
    if (found == nullptr) continue;
    ASSERT_GE(found->bytes, bytes);
    const std::size_t above = smallest_fit(in, bin_end(bytes));
    ASSERT_TRUE(found->bytes - best <= best / 32 ||
                (best < bin_end(bytes) && found->bytes - above <= above / 32))
        << "neither from the bin of the best fit nor from the next one above the request's";
    ASSERT_TRUE(std::ranges::find(in, found) != in.end());
  }
}

// A request that the first block of its bin is too small for is served from above; if nothing is
// there, by a block behind the first one.
TEST(TlsfIndexTest, LooksBehindTheFirstOfABinOnlyIfNothingIsAbove) {
  TlsfIndex index;
  std::deque<HeapBlock> blocks(3);
  blocks[0].bytes = 1030 * kBlockGrain;
  blocks[1].bytes = 1025 * kBlockGrain;
  blocks[2].bytes = 2000 * kBlockGrain;
  for (HeapBlock& block : blocks) index.insert(block);
  EXPECT_EQ(index.find(1025 * kBlockGrain), &blocks[1]);
  EXPECT_EQ(index.find(1028 * kBlockGrain), &blocks[2]);
  index.remove(blocks[2]);
  EXPECT_EQ(index.find(1028 * kBlockGrain), &blocks[0]);
  EXPECT_EQ(index.find(1031 * kBlockGrain), nullptr);
}

/// Gives blocks random sizes, which are returned, and inserts them.
std::multiset<std::size_t> insert_all(TlsfIndex& index, std::deque<HeapBlock>& blocks) {
  std::mt19937_64 random(2);
  std::multiset<std::size_t> sizes;
  for (HeapBlock& block : blocks) {
    block.bytes = any_size(random);
    sizes.insert(block.bytes);
    index.insert(block);
  }
  return sizes;
}

TEST(TlsfIndexTest, VisitsEveryBlockFromSmallToLarge) {
  TlsfIndex index;
  std::deque<HeapBlock> blocks(500);
  const std::multiset<std::size_t> sizes = insert_all(index, blocks);
  std::multiset<std::size_t> visited;
  std::size_t last = 0;
  index.for_each(0, [&](HeapBlock& block) {
    EXPECT_LE(last, block.bytes + block.bytes / 32);
    last = block.bytes;
    visited.insert(block.bytes);
    index.remove(block);
    return true;
  });
  EXPECT_EQ(visited, sizes);
  EXPECT_TRUE(index.empty());
  EXPECT_EQ(index.find(kBlockGrain), nullptr);
}

TEST(TlsfIndexTest, VisitsEveryBlockFromLargeToSmall) {
  TlsfIndex index;
  index.for_each_from_largest([](const HeapBlock&) {
    ADD_FAILURE() << "there is no block";
    return true;
  });
  std::deque<HeapBlock> blocks(500);
  const std::multiset<std::size_t> sizes = insert_all(index, blocks);
  std::multiset<std::size_t> visited;
  std::size_t last = kLargest;
  index.for_each_from_largest([&](const HeapBlock& block) {
    EXPECT_GE(last + last / 32, block.bytes);
    last = block.bytes;
    visited.insert(block.bytes);
    return true;
  });
  EXPECT_EQ(visited, sizes);
  std::size_t calls = 0;
  index.for_each_from_largest([&](const HeapBlock&) { return ++calls < 7; });
  EXPECT_EQ(calls, 7u);
}

TEST(TlsfIndexTest, AcceptsAsTheCallerDoes) {
  TlsfIndex index;
  std::deque<HeapBlock> blocks(64);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].bytes = (1000 + 100 * i) * kBlockGrain;
    blocks[i].sequence = i % 7 == 3 ? 1 : 0;
    index.insert(blocks[i]);
  }
  const HeapBlock* found =
      index.find_if(2000 * kBlockGrain, [](const HeapBlock& block) { return block.sequence == 1; });
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found, &blocks[10]);
  EXPECT_EQ(index.find_if(0, [](const HeapBlock&) { return false; }), nullptr);
  EXPECT_EQ(index.largest(), &blocks.back());
}

TEST(TlsfIndexTest, KnowsSizesThatNoDeviceHas) {
  TlsfIndex index;
  HeapBlock block;
  block.bytes = std::size_t{1} << 52;
  index.insert(block);
  EXPECT_EQ(index.find(std::size_t{1} << 51), &block);
  EXPECT_EQ(index.find(kLargest), nullptr);
  EXPECT_EQ(index.largest(), &block);
  index.remove(block);
  EXPECT_EQ(index.largest(), nullptr);
}

}  // namespace
}  // namespace gantry::memory
