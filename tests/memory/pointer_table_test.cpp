#include "memory/pointer_table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "memory/policy/size_policy.hpp"

namespace gantry::memory {
namespace {

void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value * kBlockGrain); }

// A few blocks lie in the table's lines, many go to what is beside them.
class PointerTableSizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(PointerTableSizes, AgreesWithAMap) {
  const std::size_t most = GetParam();
  PointerTable table;
  BlockSlab<HeapBlock> slab;
  slab.reserve(most);
  std::map<void*, HeapBlock*> model;
  std::mt19937 random(1);
  for (std::size_t step = 0; step < 100 * 1000 + 20 * most; ++step) {
    void* data = address(1 + random() % (3 * most));
    if (model.size() < most && !model.contains(data) && random() % 4 != 0) {
      HeapBlock& block = slab.take();
      table.insert(data, block);
      model.emplace(data, &block);
      continue;
    }
    const auto known = model.find(data);
    HeapBlock* found = table.take(data);
    ASSERT_EQ(found, known == model.end() ? nullptr : known->second);
    if (found == nullptr) continue;
    model.erase(known);
    slab.recycle(*found);
  }
  EXPECT_GT(model.size(), most / 2);
  for (const auto& [data, block] : model) {
    EXPECT_EQ(table.take(data), block);
    EXPECT_EQ(table.take(data), nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(Blocks, PointerTableSizes, ::testing::Values(900, 40'000));

TEST(PointerTableTest, ServesManyThreads) {
  PointerTable table;
  std::vector<HeapBlock> blocks(4);
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      HeapBlock& own = blocks[thread];
      for (std::uintptr_t i = 0; i < 20000; ++i) {
        void* data = address(1 + 4 * (i % 500) + thread);
        table.insert(data, own);
        ASSERT_EQ(table.take(data), &own);
        ASSERT_EQ(table.take(data), nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gantry::memory
