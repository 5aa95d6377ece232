#include <gantry/memory/caching_allocator.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class CachingAllocatorTest : public gantry::testing::HeapTest {};

TEST_F(CachingAllocatorTest, NamesItself) {
  EXPECT_EQ(allocator_backend(), "vmm");
  EXPECT_EQ(allocator(Device::cuda(0)).name(), "vmm");
  EXPECT_EQ(allocator(Device::cpu()).name(), "cpu");
}

TEST_F(CachingAllocatorTest, SecondFreeIsIgnored) {
  Block block = allocate(Stream::current(), 1000).release();
  Block copy = block;
  block.allocator->deallocate(block);
  ::testing::internal::CaptureStderr();
  copy.allocator->deallocate(copy);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("freed twice"));
  EXPECT_EQ(stats().allocation.all.current, 0);
}

TEST_F(CachingAllocatorTest, RawPointersGoBackByAddress) {
  EXPECT_EQ(allocate_raw(0), nullptr);
  memory::deallocate_raw(nullptr);
  void* data = allocate_raw(1000);
  EXPECT_EQ(allocated(), 1024u);
  EXPECT_THAT(
      [&] { memory::deallocate_raw(static_cast<std::byte*>(data) + 512); },
      ThrowsMessage<InvalidArgument>(HasSubstr(
          "deallocate_raw: expected a pointer from gantry::memory::allocate_raw, but got 0x")));
  memory::deallocate_raw(data);
  EXPECT_EQ(allocated(), 0u);
  EXPECT_THROW(memory::deallocate_raw(data), InvalidArgument);
}

// The built-in allocator, whatever is set now.
Allocator& caching_allocator() {
  static Allocator& caching = allocator(Device::cuda(0));
  return caching;
}

class CountingAllocator final : public Allocator {
 public:
  Block allocate(const Stream& stream, std::size_t bytes, std::size_t alignment) override {
    ++count;
    Block block = under.allocate(stream, bytes, alignment);
    block.allocator = this;
    return block;
  }
  void deallocate(Block& block) noexcept override {
    --count;
    under.deallocate(block);
  }
  void record_stream(const Block& block, const Stream& stream) override {
    under.record_stream(block, stream);
  }
  void empty_cache(Device device) override { under.empty_cache(device); }
  std::string name() const override { return "counting"; }

  Allocator& under = caching_allocator();
  std::atomic<int> count = 0;
};

TEST_F(CachingAllocatorTest, CanBeReplacedPerDevice) {
  const auto counting = std::make_shared<CountingAllocator>();
  EXPECT_EQ(set_allocator(Device::cuda(0), counting), nullptr);
  EXPECT_EQ(&allocator(Device::cuda(0)), counting.get());
  EXPECT_EQ(&allocator(Device::cuda()), counting.get());
  Buffer buffer = allocate(Stream::current(), 1000);
  void* raw = allocate_raw(1000);
  EXPECT_EQ(counting->count, 2);
  EXPECT_EQ(set_allocator(Device::cuda(0), nullptr), counting);
  memory::deallocate_raw(raw);
  buffer.reset();
  EXPECT_EQ(counting->count, 0) << "blocks did not return to the allocator that made them";
  EXPECT_EQ(&allocator(Device::cuda(0)), &counting->under);
}

// Makes a new allocator the device's. The previous one ends if no block keeps it alive.
std::weak_ptr<Allocator> replace_allocator() {
  return set_allocator(Device::cuda(0), std::make_shared<CountingAllocator>());
}

TEST_F(CachingAllocatorTest, BlocksKeepAReplacedAllocatorAlive) {
  const Stream stream = Stream::current(Device::cuda(0));
  replace_allocator();
  EXPECT_TRUE(replace_allocator().expired());
  Buffer buffer = allocate(stream, 1000);
  buffer.reset();
  EXPECT_TRUE(replace_allocator().expired()) << "a freed buffer keeps it alive";

  buffer = allocate(stream, 1000);
  void* raw = allocate_raw(1000, stream);
  const std::weak_ptr<Allocator> replaced = replace_allocator();
  EXPECT_EQ(buffer.owner(), replaced.lock());
  Buffer moved = std::move(buffer);
  buffer = std::move(moved);
  EXPECT_FALSE(replaced.expired());
  buffer.reset();
  EXPECT_FALSE(replaced.expired()) << "the raw pointer does not keep it alive";
  deallocate_raw(raw);
  EXPECT_TRUE(replaced.expired());

  Block block = allocate(stream, 1000).release();
  const std::weak_ptr<Allocator> kept = replace_allocator();
  block.allocator->deallocate(block);
  EXPECT_EQ(std::static_pointer_cast<CountingAllocator>(kept.lock())->count, 0);
  set_allocator(Device::cuda(0), nullptr);
  EXPECT_EQ(allocate(stream, 1000).owner(), nullptr);
}

TEST_F(CachingAllocatorTest, IsReplacedWhileThreadsAllocate) {
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&ends] {
      const Stream stream = Stream::default_stream(Device::cuda(0));
      while (!ends) {
        const Buffer buffer = allocate(stream, 1000);
        deallocate_raw(allocate_raw(1000, stream));
      }
    });
  }
  for (int i = 0; i < 500; ++i) {
    if (i % 2 == 0) {
      replace_allocator();
    } else {
      set_allocator(Device::cuda(0), nullptr);
    }
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(set_allocator(Device::cuda(0), nullptr), nullptr);
}

TEST_F(CachingAllocatorTest, RefusesBadArguments) {
  for (const double fraction : {0.0, -1.0, 1.5}) {
    EXPECT_THAT([&] { set_fraction(fraction); },
                ThrowsMessage<InvalidArgument>(
                    HasSubstr("set_fraction: expected a number above 0 and at most 1, but got ")));
  }
  EXPECT_THROW(set_fraction(0.5, Device::cpu()), InvalidArgument);
  EXPECT_THROW(static_cast<void>(allocator(Device::cuda(device_count()))), InvalidArgument);
  EXPECT_THROW(static_cast<void>(stats(Device::cpu())), InvalidArgument);
  EXPECT_THAT([] { add_oom_observer({}); },
              ThrowsMessage<InvalidArgument>(
                  "add_oom_observer: expected a function, but got an empty one"));
}

}  // namespace
}  // namespace gantry::memory
