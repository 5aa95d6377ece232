// A store's table: limits of bytes and waiters, and which waiters a written key ends.
#include "job/store/table.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>
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

// Keys come and go in any order, and members of one prefix ask for different numbers of them.
TEST_F(StoreTableTest, RandomGathersAgainstAnOracle) {
  constexpr std::uint32_t kMost = 6;
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t limit) { return random() % limit; };
  std::map<std::uint64_t, Waiter> parked;  // by request
  std::set<std::string> written;
  const auto is_whole = [&](const Waiter& waiter) {
    for (std::uint32_t i = 0; i < waiter.count; ++i) {
      if (!written.contains(fmt::format("{}/{}", waiter.prefix, i))) return false;
    }
    return true;
  };
  for (std::uint64_t id = 1; id <= 20'000; ++id) {
    const std::string prefix = below(2) == 0 ? "a" : "a/b";
    const std::string key = fmt::format("{}/{}", prefix, below(kMost));
    switch (below(4)) {
      case 0: {
        Waiter waiter = waiter_for_two(prefix);
        waiter.id = id;
        waiter.count = 1 + below(kMost);
        ASSERT_EQ(table.answer(waiter).has_value(), is_whole(waiter)) << id;
        if (is_whole(waiter)) break;
        parked.emplace(id, waiter);
        ASSERT_TRUE(table.park(waiter));
        break;
      }
      case 1:
        ASSERT_EQ(table.erase(key), written.erase(key) == 1) << id;
        break;
      case 2: {
        if (parked.empty()) break;
        const auto forgotten =
            std::next(parked.begin(), below(static_cast<std::uint32_t>(parked.size())));
        table.forget(7, forgotten->first);
        parked.erase(forgotten);
        break;
      }
      default:
        ASSERT_TRUE(table.write(key, "value"));
        written.insert(key);
        std::set<std::uint64_t> taken;
        for (const Waiter& waiter : table.take(key)) taken.insert(waiter.id);
        std::set<std::uint64_t> expected;
        for (const auto& [number, waiter] : parked) {
          if (is_whole(waiter)) expected.insert(number);
        }
        ASSERT_EQ(taken, expected) << id;
        for (const std::uint64_t number : taken) parked.erase(number);
    }
    if (id % 1000 == 0) table.verify();
  }
}

}  // namespace
}  // namespace gantry::store
