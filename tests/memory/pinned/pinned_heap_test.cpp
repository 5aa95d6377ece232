#include "memory/pinned/pinned_heap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/pinned_allocator.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::StreamHold;

constexpr std::size_t kMib = std::size_t{1} << 20;

void expect_stats_add_up(const HostStats& stats) {
  for (const Stat& stat :
       {stats.allocations, stats.allocated_bytes, stats.active_requests, stats.active_bytes}) {
    EXPECT_EQ(stat.current, stat.allocated - stat.freed);
    EXPECT_GE(stat.current, 0);
    EXPECT_GE(stat.peak, stat.current);
  }
  EXPECT_LE(stats.active_bytes.current, stats.allocated_bytes.current);
  EXPECT_EQ(stats.num_host_alloc, stats.allocations.allocated);
  EXPECT_EQ(stats.num_host_free, stats.allocations.freed);
  EXPECT_EQ(stats.host_alloc_time.count, stats.num_host_alloc);
  EXPECT_EQ(stats.host_free_time.count, stats.num_host_free);
  for (const HostTimes& times : {stats.host_alloc_time, stats.host_free_time}) {
    EXPECT_LE(times.min, times.avg());
    EXPECT_LE(times.avg(), times.max);
    EXPECT_LE(times.max, times.total);
  }
}

class PinnedHeapTest : public gantry::testing::DeviceTest {
 protected:
  void TearDown() override {
    heap_.verify();
    heap_.empty_cache();
    const HostStats stats = heap_.stats();
    expect_stats_add_up(stats);
    EXPECT_EQ(stats.active_requests.current, 0);
    EXPECT_EQ(stats.active_bytes.current, 0);
    EXPECT_EQ(stats.allocations.current, 0);
    EXPECT_EQ(stats.allocated_bytes.current, 0);
    DeviceTest::TearDown();
  }

  PinnedHeap heap_{std::vector<int>(static_cast<std::size_t>(device_count()), -1)};
};

TEST_F(PinnedHeapTest, CountsSegmentsAndBlocks) {
  HeapBlock& small = heap_.allocate(1000);
  HeapBlock& large = heap_.allocate(3 * kMib);
  HostStats stats = heap_.stats();
  expect_stats_add_up(stats);
  EXPECT_EQ(stats.active_requests.current, 2);
  EXPECT_EQ(stats.active_bytes.current, static_cast<std::int64_t>(1024 + 3 * kMib));
  EXPECT_EQ(stats.allocations.current, 2);
  EXPECT_EQ(stats.allocated_bytes.current, static_cast<std::int64_t>(4 * kMib));
  heap_.deallocate(small);
  heap_.deallocate(large);
  heap_.deallocate(large);  // once more is nothing
  stats = heap_.stats();
  EXPECT_EQ(stats.active_requests.current, 0);
  EXPECT_EQ(stats.allocated_bytes.current, static_cast<std::int64_t>(4 * kMib));
  EXPECT_EQ(stats.active_bytes.peak, static_cast<std::int64_t>(1024 + 3 * kMib));
  heap_.reset_peak_stats();
  EXPECT_EQ(heap_.stats().active_bytes.peak, 0);
  EXPECT_EQ(heap_.stats().allocated_bytes.peak, static_cast<std::int64_t>(4 * kMib));
}

TEST_F(PinnedHeapTest, SegmentsGrowWithWhatIsHeld) {
  std::vector<HeapBlock*> blocks;
  for (int i = 0; i < 4096; ++i) blocks.push_back(&heap_.allocate(16384));
  EXPECT_LE(heap_.stats().num_host_alloc, 10);
  EXPECT_LE(heap_.stats().allocated_bytes.current, static_cast<std::int64_t>(128 * kMib));
  for (HeapBlock* block : blocks) heap_.deallocate(*block);
}

TEST_F(PinnedHeapTest, ALateStreamHoldsBackItsOwnBlocksOnly) {
  const Stream late = Stream::from_pool();
  const Stream other = Stream::from_pool();
  HeapBlock& first = heap_.allocate(kMib);
  HeapBlock& second = heap_.allocate(kMib);
  void* free_soon = second.data;
  StreamHold hold(late);
  heap_.record_use(first, late, true);
  heap_.record_use(second, other, true);
  heap_.deallocate(first);
  heap_.deallocate(second);
  EXPECT_EQ(heap_.stats().active_requests.current, 2);
  other.synchronize();
  HeapBlock& reused = heap_.allocate(kMib);
  EXPECT_EQ(reused.data, free_soon);
  EXPECT_EQ(heap_.stats().active_requests.current, 2) << "the late stream's block was given out";
  hold.release();
  heap_.deallocate(reused);
}

TEST_F(PinnedHeapTest, ABlockWaitsForAllItsStreams) {
  const std::vector<Stream> streams = {Stream::from_pool(), Stream::from_pool(),
                                       Stream::from_pool()};
  for (std::size_t last = 0; last < streams.size(); ++last) {
    HeapBlock& block = heap_.allocate(kMib);
    void* data = block.data;
    StreamHold hold(streams[last]);
    for (const Stream& stream : streams) heap_.record_use(block, stream, true);
    heap_.deallocate(block);
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if (i != last) streams[i].synchronize();
    }
    HeapBlock& other = heap_.allocate(kMib);
    EXPECT_NE(other.data, data);
    hold.release();
    streams[last].synchronize();
    HeapBlock& again = heap_.allocate(kMib);
    EXPECT_EQ(again.data, data) << "not given back after the last stream";
    heap_.deallocate(other);
    heap_.deallocate(again);
    heap_.empty_cache();
  }
}

TEST_F(PinnedHeapTest, AUseEndsWithTheWorkSubmittedBeforeIt) {
  const Stream stream = Stream::from_pool();
  HeapBlock& used = heap_.allocate(kMib);
  HeapBlock& recorded = heap_.allocate(kMib);
  void* free_soon = used.data;
  heap_.record_use(used, stream, false);
  heap_.record_use(recorded, stream, false);
  heap_.record_use(recorded, stream, true);  // up to the free: the longer one counts
  stream.synchronize();
  StreamHold hold(stream);
  heap_.deallocate(used);
  heap_.deallocate(recorded);
  EXPECT_EQ(heap_.stats().active_requests.current, 1);
  HeapBlock& again = heap_.allocate(kMib);
  EXPECT_EQ(again.data, free_soon);
  heap_.deallocate(again);
  hold.release();
}

TEST_F(PinnedHeapTest, ForeignStreamsMayBeDestroyedAfterTheFree) {
  const NativeStream native = driver().create_stream(0, 0);
  HeapBlock& block = heap_.allocate(kMib);
  heap_.record_use(block, Stream::external(native.handle, Device::cuda(0)), true);
  heap_.deallocate(block);
  driver().synchronize_stream(native);
  driver().destroy_stream(native);
  heap_.empty_cache();
  EXPECT_EQ(heap_.stats().active_requests.current, 0);
}

TEST_F(PinnedHeapTest, PollingRaisesNobodysErrors) {
  GANTRY_REQUIRE_SIM();
  const Stream stream = Stream::from_pool();
  HeapBlock& block = heap_.allocate(kMib);
  heap_.record_use(block, stream, true);
  driver().launch_host_function(
      stream.native(), [](void*) { throw std::runtime_error("a failing task"); }, nullptr);
  heap_.deallocate(block);
  for (int i = 0; i < 10; ++i) {
    HeapBlock& other = heap_.allocate(kMib);
    heap_.deallocate(other);
  }
  EXPECT_THROW(stream.synchronize(), std::runtime_error) << "somebody else consumed the error";
  stream.synchronize();
}

TEST_F(PinnedHeapTest, EveryDriverCallMayFail) {
  const Stream user = Stream::from_pool();
  const NativeStream native = driver().create_stream(0, 0);
  const Stream foreign = Stream::external(native.handle, Device::cuda(0));
  const auto scenario = [&] {
    std::vector<HeapBlock*> blocks;
    const auto free_all = [&] {
      for (HeapBlock* block : blocks) heap_.deallocate(*block);
      blocks.clear();
    };
    try {
      for (int i = 0; i < 3; ++i) blocks.push_back(&heap_.allocate(kMib));
      heap_.record_use(*blocks[0], user, true);
      heap_.record_use(*blocks[1], user, true);
      heap_.record_use(*blocks[1], foreign, true);
      free_all();
      blocks.push_back(&heap_.allocate(5 * kMib));
      blocks.push_back(&heap_.allocate(kMib));
    } catch (...) {
      free_all();
      throw;
    }
    free_all();
    heap_.empty_cache();
  };
  FaultDriver driver;
  scenario();
  auto counts = driver.counts();
  ASSERT_GE(counts["allocate_pinned"], 4u);
  for (const auto& [call, count] : counts) {
    if (call.starts_with("destroy_") || call == "restore_device") continue;
    if (call == "event_reached") continue;  // noexcept
    for (const auto failure : {gantry::testing::kUnknown, gantry::testing::kOutOfMemory}) {
      for (std::uint64_t nth = 1; nth <= count; ++nth) {
        SCOPED_TRACE(call + " " + std::to_string(nth));
        driver.reset_counts();
        driver.fail_on(call, nth, failure);
        try {
          scenario();
        } catch (const Error&) {
        }
        driver.fail_nothing();
        expect_stats_add_up(heap_.stats());
        synchronize(Device::cuda(0));
        heap_.empty_cache();
        EXPECT_EQ(heap_.stats().active_requests.current, 0);
        EXPECT_EQ(heap_.stats().allocated_bytes.current, 0);
      }
    }
  }
  driver.destroy_stream(native);
}

TEST_F(PinnedHeapTest, DevicesOfOneNodeShareTheirMemoryOthersDoNot) {
  GANTRY_REQUIRE_SIM();
  GANTRY_REQUIRE_DEVICES(3);
  std::vector<int> nodes(static_cast<std::size_t>(device_count()), 0);
  nodes[1] = 1;
  PinnedHeap heap(nodes);
  set_device(Device::cuda(0));
  HeapBlock& block = heap.allocate(kMib);
  void* data = block.data;
  heap.deallocate(block);
  set_device(Device::cuda(1));
  HeapBlock& far = heap.allocate(kMib);
  EXPECT_NE(far.data, data);
  set_device(Device::cuda(2));
  HeapBlock& near = heap.allocate(kMib);
  EXPECT_EQ(near.data, data);
  heap.deallocate(near);
  {
    // Memory far away is better than none.
    set_device(Device::cuda(1));
    FaultDriver driver;
    driver.fail_on("allocate_pinned", 1, gantry::testing::kOutOfMemory, 100);
    HeapBlock& any = heap.allocate(kMib);
    EXPECT_EQ(any.data, data);
    heap.deallocate(any);
  }
  heap.deallocate(far);
  heap.empty_cache();
  EXPECT_EQ(heap.stats().allocated_bytes.current, 0);
}

// Every block against a plain map of what is in use.
TEST_F(PinnedHeapTest, RandomUseAgainstAnOracle) {
  std::mt19937 random(11);
  const std::vector<Stream> streams = {Stream::from_pool(), Stream::from_pool(),
                                       Stream::from_pool()};
  std::map<std::byte*, std::size_t> in_use;  // live, and freed under a held stream
  std::vector<HeapBlock*> live;
  std::vector<std::byte*> held;
  std::size_t live_bytes = 0;
  std::optional<StreamHold> hold;
  for (int step = 0; step < 20000; ++step) {
    if (step % 100 == 0) heap_.verify();
    const auto dice = random() % 100;
    if (dice < 50 && live.size() < 300) {
      const std::size_t bytes = 1 + (random() % (dice < 5 ? 3000000 : 20000));
      HeapBlock& block = heap_.allocate(bytes);
      const auto after = in_use.lower_bound(block.data);
      ASSERT_TRUE(after == in_use.end() || block.data + bytes <= after->first) << "overlap";
      if (after != in_use.begin()) {
        const auto before = std::prev(after);
        ASSERT_LE(before->first + before->second, block.data) << "overlap";
      }
      in_use[block.data] = bytes;
      block.data[0] = std::byte{1};
      block.data[bytes - 1] = std::byte{1};
      live.push_back(&block);
      live_bytes += block.bytes;
    } else if (dice < 97 && !live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      HeapBlock& block = *live.back();
      live.pop_back();
      live_bytes -= block.bytes;
      const bool is_held = hold && random() % 4 == 0;
      if (is_held) {
        heap_.record_use(block, streams[0], true);
        held.push_back(block.data);
      } else {
        in_use.erase(block.data);
      }
      if (random() % 8 == 0) heap_.record_use(block, streams[1 + random() % 2], true);
      heap_.deallocate(block);
    } else if (dice == 97 && !hold) {
      hold.emplace(streams[0]);
    } else if (dice == 98 && hold) {
      hold.reset();
      streams[0].synchronize();
      for (std::byte* data : held) in_use.erase(data);
      held.clear();
    } else if (dice == 99 && !hold && random() % 20 == 0) {
      heap_.empty_cache();
      ASSERT_EQ(heap_.stats().active_requests.current, static_cast<std::int64_t>(live.size()));
      ASSERT_EQ(heap_.stats().active_bytes.current, static_cast<std::int64_t>(live_bytes));
    }
    const HostStats stats = heap_.stats();
    ASSERT_GE(stats.active_requests.current, static_cast<std::int64_t>(live.size() + held.size()));
    ASSERT_LE(stats.active_bytes.current, stats.allocated_bytes.current);
  }
  hold.reset();
  for (HeapBlock* block : live) heap_.deallocate(*block);
  heap_.empty_cache();
  EXPECT_EQ(heap_.stats().allocated_bytes.current, 0) << "segments did not become whole";
}

TEST_F(PinnedHeapTest, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      std::mt19937 random(seed);
      const Stream stream = Stream::from_pool(Device::cuda(0));
      std::vector<HeapBlock*> live;
      for (int step = 0; step < 1500; ++step) {
        const std::size_t bytes = 1 + random() % 50000;
        HeapBlock& block = heap_.allocate(bytes);
        std::memset(block.data, static_cast<int>(seed), bytes);
        live.push_back(&block);
        if (live.size() > 12) {
          std::swap(live[random() % live.size()], live.back());
          HeapBlock& last = *live.back();
          EXPECT_EQ(last.data[0], static_cast<std::byte>(seed));
          EXPECT_EQ(last.data[last.requested.load() - 1], static_cast<std::byte>(seed));
          if (random() % 3 == 0) heap_.record_use(last, stream, true);
          heap_.deallocate(last);
          live.pop_back();
        }
        if (step % 500 == 499 && seed == 0) heap_.empty_cache();
      }
      for (HeapBlock* block : live) heap_.deallocate(*block);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostStatsTest, HasTheKeysOfTorch) {
  std::set<std::string> wanted = {"num_host_alloc", "num_host_free"};
  for (const char* name : {"allocations", "allocated_bytes", "active_requests", "active_bytes"}) {
    for (const char* part : {"current", "peak", "allocated", "freed"}) {
      wanted.insert(std::string(name) + "." + part);
    }
  }
  for (const char* name : {"host_alloc_time", "host_free_time"}) {
    for (const char* part : {"total", "max", "min", "count", "avg"}) {
      wanted.insert(std::string(name) + "." + part);
    }
  }
  std::set<std::string> keys;
  for (const auto& [key, value] : host_stats_map()) keys.insert(key);
  EXPECT_EQ(keys, wanted);
}

TEST(HostStatsTest, CountsThePinnedAllocator) {
  GANTRY_REQUIRE_DEVICES(1);
  pinned_allocator().empty_cache(Device::cpu());
  const HostStats before = host_memory_stats();
  const Buffer buffer = pinned(5000);
  const HostStats now = host_memory_stats();
  expect_stats_add_up(now);
  EXPECT_EQ(now.active_requests.current, before.active_requests.current + 1);
  EXPECT_EQ(now.active_bytes.current, before.active_bytes.current + 5120);
  EXPECT_EQ(host_stats_map().at("active_bytes.current"), now.active_bytes.current);
  reset_peak_host_stats();
  EXPECT_EQ(host_memory_stats().active_bytes.peak, now.active_bytes.current);
}

}  // namespace
}  // namespace gantry::memory
