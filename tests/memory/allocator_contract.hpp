// What every Allocator must do. Instantiate AllocatorContract with a provider for each one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/allocator.hpp>
#include <gantry/memory/buffer.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::testing {

/// One implementation under test.
struct AllocatorProvider {
  std::string label;
  std::function<memory::Allocator&()> get;
  Device device = Device::cpu();  ///< where its blocks live
  bool defers_reuse = true;       ///< record_stream holds a freed block back

  friend std::ostream& operator<<(std::ostream& out, const AllocatorProvider& provider) {
    return out << provider.label;
  }
};

class AllocatorContract : public DeviceTest,
                          public ::testing::WithParamInterface<AllocatorProvider> {
 protected:
  [[nodiscard]] memory::Allocator& allocator() const { return GetParam().get(); }
  [[nodiscard]] memory::Buffer make(std::size_t bytes, const Stream& stream) const {
    return memory::Buffer(allocator().allocate(stream, bytes));
  }
  /// Fills a block with `value` in the order of `stream`, on the host if it lives there.
  void fill(const memory::Block& block, std::uint8_t value, const Stream& stream) const {
    if (GetParam().device.is_cuda()) {
      driver().fill(block.data, value, block.bytes, stream.native());
    } else {
      std::memset(block.data, value, block.bytes);
    }
  }
  [[nodiscard]] std::vector<std::uint8_t> read(const memory::Block& block,
                                               const Stream& stream) const {
    std::vector<std::uint8_t> bytes(block.bytes);
    if (GetParam().device.is_cuda()) {
      driver().copy(bytes.data(), block.data, block.bytes, stream.native());
      stream.synchronize();
    } else {
      std::memcpy(bytes.data(), block.data, block.bytes);
    }
    return bytes;
  }
};

TEST_P(AllocatorContract, DescribesItsBlocks) {
  const Stream stream = Stream::current();
  for (const std::size_t bytes : {1u, 511u, 512u, 513u, 1u << 20, (1u << 20) + 1, 3u << 20}) {
    memory::Block block = allocator().allocate(stream, bytes);
    EXPECT_NE(block.data, nullptr);
    EXPECT_EQ(block.bytes, bytes);
    EXPECT_EQ(block.device, GetParam().device);
    EXPECT_EQ(block.allocator, &allocator());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data) % 64, 0u);
    allocator().deallocate(block);
    EXPECT_EQ(block.data, nullptr);
    EXPECT_EQ(block.allocator, nullptr);
    EXPECT_EQ(block.handle, nullptr);
  }
}

TEST_P(AllocatorContract, NoBytesGiveANullBlock) {
  memory::Block block = allocator().allocate(Stream::current(), 0);
  EXPECT_EQ(block.data, nullptr);
  EXPECT_EQ(block.bytes, 0u);
  EXPECT_EQ(block.device, GetParam().device);
  allocator().record_stream(block, Stream::current());
  allocator().deallocate(block);
  const memory::Buffer buffer = make(0, Stream::current());
}

TEST_P(AllocatorContract, GivesMemoryThatKeepsWhatIsWritten) {
  const Stream stream = Stream::from_pool();
  std::vector<memory::Buffer> buffers;
  for (std::size_t i = 0; i < 20; ++i) {
    buffers.push_back(make(1 + i * 7919, stream));
    fill(buffers.back().block(), static_cast<std::uint8_t>(i), stream);
  }
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const auto bytes = read(buffers[i].block(), stream);
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [i](auto byte) { return byte == i; }));
  }
}

TEST_P(AllocatorContract, LiveBlocksDoNotOverlap) {
  const Stream stream = Stream::current();
  std::mt19937 random(1);
  std::map<std::uintptr_t, std::pair<std::uintptr_t, memory::Block>> live;
  for (int step = 0; step < 2000; ++step) {
    if (live.size() > 40 || (!live.empty() && random() % 3 == 0)) {
      auto victim = std::next(live.begin(), static_cast<long>(random() % live.size()));
      allocator().deallocate(victim->second.second);
      live.erase(victim);
      continue;
    }
    const std::size_t bytes = 1 + random() % (std::size_t{1} << (random() % 21));
    const memory::Block block = allocator().allocate(stream, bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(block.data);
    const auto after = live.upper_bound(begin);
    ASSERT_TRUE(after == live.end() || begin + bytes <= after->first);
    ASSERT_TRUE(after == live.begin() || std::prev(after)->second.first <= begin);
    live.emplace(begin, std::pair(begin + bytes, block));
  }
  for (auto& [begin, entry] : live) allocator().deallocate(entry.second);
}

TEST_P(AllocatorContract, BuffersGiveBackOnce) {
  memory::Buffer first = make(1000, Stream::current());
  void* data = first.data();
  memory::Buffer second(std::move(first));
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(second.data(), data);
  first = std::move(second);
  EXPECT_EQ(first.data(), data);
  EXPECT_EQ(first.bytes(), 1000u);
  memory::Block block = first.release();
  EXPECT_EQ(first.data(), nullptr);
  allocator().deallocate(block);
}

TEST_P(AllocatorContract, ReportsImpossibleRequestsAndStaysUsable) {
  const Stream stream = Stream::current();
  for (const std::size_t bytes : {std::size_t{1} << 60, std::numeric_limits<std::size_t>::max(),
                                  std::numeric_limits<std::size_t>::max() - 511}) {
    try {
      memory::Block block = allocator().allocate(stream, bytes);
      allocator().deallocate(block);
      ADD_FAILURE() << bytes << " bytes were allocated";
    } catch (const OutOfMemoryError& error) {
      EXPECT_GT(error.breakdown().requested, 0) << bytes;
    }
  }
  EXPECT_NE(make(1000, stream).data(), nullptr);
}

TEST_P(AllocatorContract, KeepsFreedBlocksFromOthersWhileARecordedStreamRuns) {
  if (!GetParam().defers_reuse) GTEST_SKIP() << "it gives memory back at once";
  const Stream own = Stream::from_pool();
  const Stream user = Stream::from_pool();
  constexpr std::size_t kBytes = 4096;
  memory::Buffer buffer = make(kBytes, own);
  void* data = buffer.data();
  StreamHold hold(user);
  allocator().record_stream(buffer.block(), user);
  buffer.reset();
  std::vector<memory::Buffer> others;
  // The memory may come back in a block that begins before it: it joins free neighbours.
  const auto overlaps = [data](const memory::Buffer& other) {
    const auto first = reinterpret_cast<std::uintptr_t>(data);
    const auto second = reinterpret_cast<std::uintptr_t>(other.data());
    return first < second + kBytes && second < first + kBytes;
  };
  for (int i = 0; i < 1200; ++i) {
    others.push_back(make(kBytes, own));
    ASSERT_FALSE(overlaps(others.back())) << "reused while a stream works with it";
  }
  hold.release();
  user.synchronize();
  bool reused = false;
  // Some look at pending blocks only when nothing else is free.
  for (int i = 0; i < 12000 && !reused; ++i) {
    others.push_back(make(kBytes, own));
    reused = overlaps(others.back());
  }
  EXPECT_TRUE(reused) << "lost after the stream was done";
}

TEST_P(AllocatorContract, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([this, seed] {
      std::mt19937 random(seed);
      const Stream stream = Stream::from_pool(Device::cuda(0));
      std::vector<memory::Buffer> live;
      for (int step = 0; step < 500; ++step) {
        live.push_back(make(1 + random() % 100000, stream));
        fill(live.back().block(), static_cast<std::uint8_t>(seed), stream);
        if (live.size() > 10) live.erase(live.begin() + static_cast<long>(random() % live.size()));
      }
      for (const memory::Buffer& buffer : live) {
        EXPECT_EQ(read(buffer.block(), stream),
                  std::vector<std::uint8_t>(buffer.bytes(), static_cast<std::uint8_t>(seed)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(AllocatorContract, EmptyCacheKeepsLiveBlocks) {
  const Stream stream = Stream::current();
  const memory::Buffer buffer = make(100000, stream);
  { const memory::Buffer free = make(5000000, stream); }
  fill(buffer.block(), 3, stream);
  allocator().empty_cache(GetParam().device);
  EXPECT_EQ(read(buffer.block(), stream), std::vector<std::uint8_t>(buffer.bytes(), 3));
}

}  // namespace gantry::testing
