// Limits of a store's table: bytes of its entries, and waiters of a client.
#include "job/store/table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "job/store/waiter.hpp"

namespace gantry::store {
namespace {

constexpr int kMostWaiters = 1024;

Waiter waiter_for(const std::string& key, std::uint64_t id = 1) {
  return {.client = 7, .id = id, .keys = {key}, .wants_value = true};
}
Waiter waiter_for_two(const std::string& prefix, std::uint32_t ends = 0) {
  return {.client = 7,
          .id = 1,
          .keys = {},
          .wants_value = true,
          .prefix = prefix,
          .count = 2,
          .ends = ends};
}

class StoreTableTest : public ::testing::Test {
 protected:
  void TearDown() override { table.verify(); }

  Table table;
};

TEST_F(StoreTableTest, AReplacedOrErasedValueMakesRoom) {
  constexpr int kParts = 16;
  const std::string part(kMaxTableBytes / kParts, 'x');
  for (int i = 0; i <= kParts; ++i) ASSERT_TRUE(table.write("key", part)) << i;
  for (int i = 0; i <= kParts; ++i) {
    ASSERT_TRUE(table.write("other key", part)) << i;
    ASSERT_TRUE(table.erase("other key"));
  }
  EXPECT_EQ(table.find("key")->size(), part.size());
}

TEST_F(StoreTableTest, AClientHasABoundedNumberOfWaiters) {
  for (int i = 1; i <= kMostWaiters; ++i) {
    ASSERT_TRUE(table.park(waiter_for("key", static_cast<std::uint64_t>(i)))) << i;
  }
  EXPECT_FALSE(table.park(waiter_for("key")));
  EXPECT_FALSE(table.park(waiter_for_two("gather")));
  Waiter other = waiter_for("key");
  other.client = 8;
  EXPECT_TRUE(table.park(std::move(other)));
  table.forget(7, 5);
  EXPECT_TRUE(table.park(waiter_for("key", 5)));
  EXPECT_FALSE(table.park(waiter_for("key")));
}

TEST_F(StoreTableTest, AWaiterThatIsTakenOutCountsNoMore) {
  for (int i = 0; i <= kMostWaiters; ++i) {
    ASSERT_TRUE(table.park(waiter_for("key"))) << i;
    ASSERT_EQ(table.take("key").size(), 1u);
  }
  for (int i = 0; i <= kMostWaiters; ++i) {
    ASSERT_TRUE(table.park(waiter_for_two("outdated"))) << i;
    ASSERT_EQ(table.take_outdated(1).size(), 1u);
  }
  ASSERT_TRUE(table.write("gather/1", ""));
  for (int i = 0; i <= kMostWaiters; ++i) {
    ASSERT_TRUE(table.park(waiter_for_two("gather"))) << i;
    ASSERT_TRUE(table.write("gather/0", ""));
    ASSERT_EQ(table.take("gather/0").size(), 1u);
    ASSERT_TRUE(table.erase("gather/0"));
  }
  for (int i = 0; i <= kMostWaiters; ++i) {
    ASSERT_TRUE(table.park(waiter_for("lost"))) << i;
    ASSERT_EQ(table.take_all().size(), 1u);
  }
}

}  // namespace
}  // namespace gantry::store
