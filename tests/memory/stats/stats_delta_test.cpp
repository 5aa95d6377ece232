// Accounts and logs against counting by hand.
#include "memory/stats/stats_delta.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

namespace gantry::memory {
namespace {

using Amount = StatsDelta::Amount;

// Levels and peaks, recomputed at every step.
struct Model {
  struct Level {
    Amount now;
    Amount peak;
    void add(const Amount& amount) {
      now += amount;
      peak.blocks = std::max(peak.blocks, now.blocks);
      peak.bytes = std::max(peak.bytes, now.bytes);
      peak.requested = std::max(peak.requested, now.requested);
    }
  };
  std::array<Amount, 2> allocated;
  std::array<Level, 2> by_size;
  Level all;

  void count_allocation(std::size_t bytes, std::size_t requested) {
    const Amount amount{1, static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(requested)};
    const std::size_t side = is_small(bytes) ? 1 : 0;
    allocated[side] += amount;
    by_size[side].add(amount);
    all.add(amount);
  }
  void count_free(std::size_t bytes, std::size_t requested) {
    const Amount amount{1, static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(requested)};
    by_size[is_small(bytes) ? 1 : 0].now -= amount;
    all.now -= amount;
  }
};

void expect_equal(const Amount& a, const Amount& b) {
  EXPECT_EQ(a.blocks, b.blocks);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.requested, b.requested);
}

void expect_equal(const StatsDelta& account, const Model& model) {
  const auto expect_level = [](const StatsDelta::Level& level, const Model::Level& expected) {
    expect_equal(level.now(), expected.now);
    expect_equal(level.peak, expected.peak);
  };
  for (std::size_t side = 0; side < 2; ++side) {
    expect_equal(account.allocated[side], model.allocated[side]);
    expect_level(account.by_size[side], model.by_size[side]);
  }
  expect_level(account.all, model.all);
}

// What a heap and one thread do: some blocks go over the account, others over the thread's log,
// which enters the account before the heap counts anything itself.
TEST(StatsDeltaTest, CountsLikeTheModel) {
  std::mt19937_64 random(1);
  StatsDelta account;
  StatsDelta overflow;
  StatsLog log;
  Model model;
  std::vector<std::pair<std::size_t, std::size_t>> live;
  const auto enter = [&] {
    account.append(overflow);
    overflow = {};
    return log.move_to(account);
  };
  std::int64_t live_by_log = 0;
  for (int step = 0; step < 50000; ++step) {
    const bool by_log = random() % 100 < (step / 5000 % 2 == 0 ? 60u : 99u);
    if (!by_log) {
      live_by_log += overflow.all.now().blocks;
      live_by_log += enter();
    }
    log.make_room(overflow);
    if (!live.empty() && random() % 2 == 0) {
      // Often the one that came last, which may then be asked for again.
      if (random() % 2 == 0) std::swap(live[random() % live.size()], live.back());
      const auto [bytes, requested] = live.back();
      live.pop_back();
      model.count_free(bytes, requested);
      live_by_log -= by_log ? 0 : 1;
      by_log ? log.count_free(bytes, requested)
             : account.count_free(is_small(bytes), bytes, requested);
    } else {
      const std::size_t bytes = (1 + random() % 4) * (random() % 2 == 0 ? 512 : kSmallBlockLimit);
      const std::size_t requested = bytes - random() % 2 * 100;
      live.emplace_back(bytes, requested);
      model.count_allocation(bytes, requested);
      live_by_log += by_log ? 0 : 1;
      by_log ? log.count_allocation(bytes, requested, overflow)
             : account.count_allocation(is_small(bytes), bytes, requested);
    }
    if (step % 1000 == 0) {
      live_by_log += overflow.all.now().blocks;
      live_by_log += enter();
      expect_equal(account, model);
      EXPECT_EQ(live_by_log, static_cast<std::int64_t>(live.size()));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(StatsDeltaTest, RepeatsOfOneBlockChangeNoLevel) {
  StatsDelta account;
  StatsDelta overflow;
  StatsLog log;
  Model model;
  for (int i = 0; i < 1000; ++i) {
    log.count_allocation(1024, 1000, overflow);
    log.count_free(1024, 1000);
    model.count_allocation(1024, 1000);
    model.count_free(1024, 1000);
  }
  account.append(overflow);
  EXPECT_EQ(log.move_to(account), 0);
  expect_equal(account, model);
}

}  // namespace
}  // namespace gantry::memory
