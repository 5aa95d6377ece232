#include <gantry/memory/caching_allocator.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

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
  Block block = allocate(1000, Stream::current()).release();
  Block copy = block;
  block.allocator->deallocate(block);
  ::testing::internal::CaptureStderr();
  copy.allocator->deallocate(copy);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("freed twice"));
  EXPECT_EQ(stats().allocation.all.current, 0);
}

TEST_F(CachingAllocatorTest, RawPointersGoBackByAddress) {
  EXPECT_EQ(alloc(0), nullptr);
  memory::free(nullptr);
  void* data = alloc(1000);
  EXPECT_EQ(allocated(), 1024u);
  EXPECT_THAT([&] { memory::free(static_cast<std::byte*>(data) + 512); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("free: expected a pointer from gantry::memory::alloc, but got 0x")));
  memory::free(data);
  EXPECT_EQ(allocated(), 0u);
  EXPECT_THROW(memory::free(data), InvalidArgument);
}

class CountingAllocator final : public Allocator {
 public:
  Block allocate(std::size_t bytes, Stream stream) override {
    ++count;
    Block block = under.allocate(bytes, stream);
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

  Allocator& under = allocator(Device::cuda(0));
  int count = 0;
};

TEST_F(CachingAllocatorTest, CanBeReplacedPerDevice) {
  CountingAllocator counting;
  Allocator* before = set_allocator(Device::cuda(0), &counting);
  EXPECT_EQ(before, &counting.under);
  EXPECT_EQ(&allocator(Device::cuda(0)), &counting);
  EXPECT_EQ(&allocator(Device::cuda()), &counting);
  Buffer buffer = allocate(1000, Stream::current());
  void* raw = alloc(1000);
  EXPECT_EQ(counting.count, 2);
  EXPECT_EQ(set_allocator(Device::cuda(0), nullptr), &counting);
  memory::free(raw);
  buffer.reset();
  EXPECT_EQ(counting.count, 0) << "blocks did not return to the allocator that made them";
  EXPECT_EQ(&allocator(Device::cuda(0)), before);
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
