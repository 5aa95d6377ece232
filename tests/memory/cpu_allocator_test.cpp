#include <gantry/memory/cpu_allocator.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include <gantry/core/error.hpp>
#include <gantry/memory/buffer.hpp>

namespace gantry::memory {
namespace {

using ::testing::ThrowsMessage;

TEST(CpuAllocatorTest, AlignsEveryBlock) {
  for (std::size_t bytes = 1; bytes < 300; bytes += 7) {
    const Buffer buffer(allocate_cpu(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kCpuAlignment, 0u);
    EXPECT_EQ(buffer.device(), Device::cpu());
    EXPECT_EQ(buffer.block().allocator, &cpu_allocator());
    std::memset(buffer.data(), 1, bytes);
  }
}

TEST(CpuAllocatorTest, NoBytesGiveANullBlock) {
  const Buffer buffer(allocate_cpu(0));
  EXPECT_EQ(buffer.data(), nullptr);
}

TEST(CpuAllocatorTest, SaysHowMuchWasTooMuch) {
  EXPECT_THAT(
      [] { static_cast<void>(allocate_cpu(std::size_t{1} << 60)); },
      ThrowsMessage<OutOfMemoryError>("CPU out of memory. Tried to allocate 1073741824.00 GiB."));
}

}  // namespace
}  // namespace gantry::memory
