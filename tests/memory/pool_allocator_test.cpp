// A MemPool whose segments come from an allocator of the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/mem_pool.hpp>
#include <gantry/memory/snapshot.hpp>

#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::kMib;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Memory of the driver, counted.
class OwnAllocator final : public Allocator {
 public:
  explicit OwnAllocator(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~OwnAllocator() override {
    EXPECT_EQ(blocks, 0) << "an allocator lives as long as its blocks";
    --alive_;
  }
  OwnAllocator(const OwnAllocator&) = delete;
  OwnAllocator& operator=(const OwnAllocator&) = delete;

  Block allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) override {
    EXPECT_EQ(stream, Stream::default_stream(stream.device()));
    if (is_empty) throw OutOfMemoryError("the program's allocator is empty", OomReport{}, "cuda:0");
    if (foreign)
      return Block{.data = this, .bytes = bytes, .device = Device::cpu(), .allocator = this};
    void* data = driver().allocate(stream.device().index, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0u);
    ++blocks;
    asked.push_back(bytes);
    return {.data = data, .bytes = bytes, .device = stream.device(), .allocator = this};
  }
  void deallocate(Block& block) noexcept override {
    if (block.device.is_cpu()) return;
    driver().deallocate(block.device.index, block.data);
    --blocks;
  }
  std::string name() const override { return "own"; }

  std::atomic<int> blocks{0};
  std::vector<std::size_t> asked;
  bool is_empty = false;
  bool foreign = false;

 private:
  std::atomic<int>& alive_;
};

class PoolAllocatorTest : public gantry::testing::HeapTest {
 protected:
  std::atomic<int> alive{0};
  std::shared_ptr<OwnAllocator> own = std::make_shared<OwnAllocator>(alive);
  const Stream stream = Stream::current();
};

TEST_F(PoolAllocatorTest, BlocksArePiecesOfItsSegments) {
  MemPool pool(Device::cuda(0), {.allocator = own});
  const Buffer a = pool.allocate(stream, 3 * kMib);
  const Buffer b = pool.allocate(stream, 4 * kMib);
  ASSERT_EQ(own->blocks, 1) << "one segment serves both";
  EXPECT_GE(own->asked[0], 7 * kMib);
  EXPECT_EQ(reserved(), own->asked[0]) << "it counts as memory of this process";
  for (const Buffer* buffer : {&a, &b}) {
    driver().fill(buffer->data(), 5, buffer->bytes(), stream.native());
  }
  stream.synchronize();
  const Snapshot taken = snapshot(pool);
  ASSERT_EQ(taken.segments.size(), 1u);
  EXPECT_EQ(taken.segments[0].total_bytes, own->asked[0]);
  EXPECT_FALSE(taken.segments[0].is_expandable);
  const Buffer outside = allocate(stream, 3 * kMib);
  EXPECT_EQ(own->blocks, 1) << "other pools do not use it";
}

TEST_F(PoolAllocatorTest, LivesAsLongAsItsMemory) {
  std::optional<MemPool> pool(std::in_place, Device::cuda(0), MemPoolOptions{.allocator = own});
  std::optional<Buffer> block = pool->allocate(stream, 3 * kMib);
  own.reset();
  EXPECT_EQ(alive, 1);
  pool.reset();
  EXPECT_EQ(alive, 1) << "a block lives";
  block.reset();
  empty_cache();
  EXPECT_EQ(alive, 0);
}

TEST_F(PoolAllocatorTest, PeersMayUseEveryBlockAgainWhenItsMemoryIsGone) {
  const Allocator& whole = allocator(Device::cuda(0));
  ASSERT_TRUE(whole.is_peer_accessible());
  std::optional<MemPool> pool(std::in_place, Device::cuda(0), MemPoolOptions{.allocator = own});
  EXPECT_FALSE(whole.is_peer_accessible()) << "peers cannot use memory of 'own'";
  {
    const MemPool second(Device::cuda(0), {.allocator = own});
    const MemPool plain;
  }
  empty_cache();
  EXPECT_FALSE(whole.is_peer_accessible()) << "the first pool is still there";
  std::optional<Buffer> block = pool->allocate(stream, 3 * kMib);
  pool.reset();
  EXPECT_FALSE(whole.is_peer_accessible()) << "a block lives";
  block.reset();
  empty_cache();
  EXPECT_TRUE(whole.is_peer_accessible());
}

TEST_F(PoolAllocatorTest, EmptyCacheFreesItsSegmentsIfOthersMayTakeThem) {
  MemPool pool(Device::cuda(0), {.use_on_oom = true, .allocator = own});
  { const Buffer freed = pool.allocate(stream, 3 * kMib); }
  EXPECT_EQ(own->blocks, 1) << "cached";
  empty_cache();
  EXPECT_EQ(own->blocks, 0);
}

TEST_F(PoolAllocatorTest, AnEmptyOneIsOutOfMemoryWithTheWholeReport) {
  MemPool pool(Device::cuda(0), {.allocator = own});
  own->is_empty = true;
  try {
    static_cast<void>(pool.allocate(stream, 3 * kMib));
    ADD_FAILURE() << "the allocator has no memory";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.breakdown().requested, static_cast<std::int64_t>(3 * kMib));
    EXPECT_GT(error.breakdown().total, 0);
  }
  own->is_empty = false;
  EXPECT_NO_THROW(static_cast<void>(pool.allocate(stream, 3 * kMib)));
}

TEST_F(PoolAllocatorTest, MemoryOfAnotherDeviceIsRefused) {
  MemPool pool(Device::cuda(0), {.allocator = own});
  own->foreign = true;
  EXPECT_THAT([&] { static_cast<void>(pool.allocate(stream, 3 * kMib)); },
              ThrowsMessage<InvalidArgument>(HasSubstr(
                  "MemPool: expected memory of cuda:0 from the pool's allocator 'own', but got "
                  "memory of cpu")));
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(PoolAllocatorTest, WhatItsMemoryCannotDoIsRefused) {
  MemPool pool(Device::cuda(0), {.allocator = own});
  const Buffer block = pool.allocate(stream, 3 * kMib);
  EXPECT_THAT([&] { pool.release_physical(); },
              ThrowsMessage<NotSupported>(HasSubstr("but got that of allocator 'own'")));
  EXPECT_TRUE(pool.has_physical());
  EXPECT_THAT([&] { static_cast<void>(export_ipc(block.block())); },
              ThrowsMessage<NotSupported>(HasSubstr("but got that of allocator 'own'")));
}

TEST_F(PoolAllocatorTest, APoolAfterItHasMemoryOfItsOwn) {
  { const MemPool pool(Device::cuda(0), {.allocator = own}); }
  MemPool plain;
  const Buffer block = plain.allocate(stream, 3 * kMib);
  EXPECT_EQ(own->blocks, 0);
  MemPool second(Device::cuda(0), {.allocator = own});
  const Buffer other = second.allocate(stream, 3 * kMib);
  EXPECT_EQ(own->blocks, 1);
}

}  // namespace
}  // namespace gantry::memory
