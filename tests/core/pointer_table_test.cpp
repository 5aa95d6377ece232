#include "core/pointer_table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace gantry {
namespace {

void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value * 512); }

// A few blocks lie in the table's lines, many go to what is beside them.
class PointerTableSizes : public ::testing::TestWithParam<std::size_t> {};

TEST_P(PointerTableSizes, AgreesWithAMap) {
  const std::size_t most = GetParam();
  PointerTable<int> table;
  std::vector<int> objects(100 * 1000 + 20 * most);
  std::map<void*, int*> model;
  std::mt19937 random(1);
  for (std::size_t step = 0; step < objects.size(); ++step) {
    void* data = address(1 + random() % (3 * most));
    if (model.size() < most && !model.contains(data) && random() % 4 != 0) {
      table.insert(data, objects[step]);
      model.emplace(data, &objects[step]);
      continue;
    }
    const auto known = model.find(data);
    int* found = table.take(data);
    ASSERT_EQ(found, known == model.end() ? nullptr : known->second);
    if (found == nullptr) continue;
    model.erase(known);
  }
  EXPECT_GT(model.size(), most / 2);
  for (const auto& [data, object] : model) {
    EXPECT_EQ(table.take(data), object);
    EXPECT_EQ(table.take(data), nullptr);
  }
}

INSTANTIATE_TEST_SUITE_P(Objects, PointerTableSizes, ::testing::Values(900, 40'000));

TEST(PointerTableTest, ServesManyThreads) {
  PointerTable<int> table;
  std::vector<int> objects(4);
  std::vector<std::thread> threads;
  for (std::uintptr_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      int& own = objects[thread];
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
}  // namespace gantry
