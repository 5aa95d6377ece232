// Random use of the caching allocator, compared with a naive model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/memory/caching_allocator.hpp>

#include "memory/policy/size_policy.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::expect_stats_add_up;

// The ranges that callers hold now.
class LiveRanges {
 public:
  // False if the range overlaps one that is live.
  bool insert(const Block& block) {
    const std::lock_guard lock(mutex_);
    const auto begin = reinterpret_cast<std::uintptr_t>(block.data);
    const auto end = begin + block.bytes;
    const auto after = ranges_.lower_bound(begin);
    if (after != ranges_.end() && after->first < end) return false;
    if (after != ranges_.begin() && std::prev(after)->second > begin) return false;
    ranges_.emplace(begin, end);
    return true;
  }
  void erase(const Block& block) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(reinterpret_cast<std::uintptr_t>(block.data));
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> ranges_;
};

std::size_t random_bytes(std::mt19937& random) {
  const std::size_t limit = std::size_t{1} << (random() % 23);
  return 1 + random() % limit;
}

class AllocatorOracleTest : public gantry::testing::HeapTest {};

TEST_F(AllocatorOracleTest, StatisticsAgreeWithTheModel) {
  const std::vector<Stream> streams = {Stream::current(), Stream::from_pool(), Stream::from_pool()};
  const Stats before = stats();
  std::mt19937 random(7);
  std::vector<Block> live;
  std::int64_t requested = 0;
  std::int64_t rounded = 0;
  std::int64_t allocations = 0;
  std::int64_t peak = 0;
  for (int step = 0; step < 20000; ++step) {
    const bool grow = live.empty() || (live.size() < 200 && random() % 100 < 55);
    if (grow) {
      const std::size_t bytes = random_bytes(random);
      Buffer buffer = allocate(streams[random() % streams.size()], bytes);
      live.push_back(buffer.release());
      requested += static_cast<std::int64_t>(bytes);
      rounded += static_cast<std::int64_t>(block_bytes(bytes));
      ++allocations;
    } else {
      std::swap(live[random() % live.size()], live.back());
      requested -= static_cast<std::int64_t>(live.back().bytes);
      rounded -= static_cast<std::int64_t>(block_bytes(live.back().bytes));
      live.back().allocator->deallocate(live.back());
      live.pop_back();
    }
    if (random() % 500 == 0) empty_cache();
    const Stats now = stats();
    peak = std::max(peak, now.allocated_bytes.all.current);
    ASSERT_EQ(now.requested_bytes.all.current, requested);
    ASSERT_EQ(now.allocation.all.current, static_cast<std::int64_t>(live.size()));
    ASSERT_EQ(now.active.all.current, now.allocation.all.current);
    ASSERT_EQ(now.active_bytes.all.current, now.allocated_bytes.all.current);
    ASSERT_GE(now.allocated_bytes.all.current, rounded);
    ASSERT_LE(now.allocated_bytes.all.current,
              rounded + static_cast<std::int64_t>(live.size() * kBlockGrain));
    if (step % 100 == 0) expect_stats_add_up(now);
  }
  EXPECT_EQ(stats().allocation.all.allocated - before.allocation.all.allocated, allocations);
  EXPECT_EQ(max_allocated(), static_cast<std::size_t>(peak));
  for (Block& block : live) block.allocator->deallocate(block);
  empty_cache();
  EXPECT_EQ(reserved(), 0u);
  EXPECT_GT(max_reserved(), 0u);
  reset_peak_stats();
  EXPECT_EQ(max_reserved(), 0u);
  EXPECT_EQ(max_allocated(), 0u);
}

TEST_F(AllocatorOracleTest, ThreadsAndStreamsNeverShareMemory) {
  LiveRanges ranges;
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < kThreads; ++seed) {
    threads.emplace_back([&ranges, seed] {
      std::mt19937 random(seed);
      const Device device = Device::cuda(static_cast<int>(seed) % std::min(2, device_count()));
      const Stream own = Stream::from_pool(device);
      const Stream other = Stream::from_pool(device);
      std::vector<Buffer> live;
      const auto drop = [&](std::size_t index) {
        ranges.erase(live[index].block());
        live.erase(live.begin() + static_cast<long>(index));
      };
      for (int step = 0; step < 2000; ++step) {
        if (live.size() > 30 || (!live.empty() && random() % 2 == 0)) {
          drop(random() % live.size());
          continue;
        }
        const Stream& stream = random() % 4 == 0 ? other : own;
        live.push_back(allocate(stream, random_bytes(random)));
        const Block& block = live.back().block();
        ASSERT_TRUE(ranges.insert(block)) << "two live blocks overlap";
        driver().fill(block.data, static_cast<std::uint8_t>(seed),
                      std::min<std::size_t>(block.bytes, 4096), stream.native());
        if (random() % 4 == 0) {
          const Stream& user = stream == own ? other : own;
          user.wait(stream);
          driver().fill(block.data, 9, std::min<std::size_t>(block.bytes, 512), user.native());
          allocator(device).record_stream(block, user);
        }
        if (random() % 300 == 0) empty_cache();
      }
      while (!live.empty()) drop(live.size() - 1);
      synchronize(device);
    });
  }
  for (std::thread& thread : threads) thread.join();
  empty_cache();
  for (int i = 0; i < std::min(2, device_count()); ++i) {
    const Stats now = stats(Device::cuda(i));
    expect_stats_add_up(now);
    EXPECT_EQ(now.active_bytes.all.current, 0);
    EXPECT_EQ(now.reserved_bytes.all.current, 0);
  }
}

}  // namespace
}  // namespace gantry::memory
