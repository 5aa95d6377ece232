#include <gantry/tensor/storage.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include <gantry/memory/cpu_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/tensor/raw_tensor.hpp"

namespace gantry {
namespace {

TEST(StorageTest, IsSharedAndFreedWithTheLastHandle) {
  for (const Device place : testing::all_places()) {
    Storage first = Storage::allocate(100, place);
    EXPECT_EQ(first.bytes(), 100U);
    EXPECT_EQ(first.device(), place);
    EXPECT_NE(first.data(), nullptr);
    EXPECT_NE(first.block(), nullptr);
    const Storage second = first;
    EXPECT_EQ(first, second);
    EXPECT_EQ(first.use_count(), 2);
    EXPECT_FALSE(first == Storage::allocate(100, place));
    first = Storage();
    EXPECT_FALSE(first.defined());
    EXPECT_TRUE(second.defined());
  }
}

// Small memory of the CPU is part of the storage.
TEST(StorageTest, HasItsOwnAlignedMemoryOfEverySize) {
  std::vector<Storage> storages;
  for (std::size_t bytes = 1; bytes <= 600; ++bytes) {
    storages.push_back(Storage::allocate(bytes, Device::cpu()));
    const Storage& storage = storages.back();
    ASSERT_EQ(storage.bytes(), bytes);
    ASSERT_FALSE(storage.is_pinned());
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(storage.data()) % 64, 0U);
    ASSERT_NE(storage.block(), nullptr);
    EXPECT_EQ(storage.block()->data, storage.data());
    EXPECT_EQ(storage.block()->bytes, bytes);
    EXPECT_EQ(storage.block()->allocator, &memory::cpu_allocator());
    std::memset(storage.data(), static_cast<int>(bytes % 251), bytes);
  }
  for (const Storage& storage : storages) {
    const auto* const data = static_cast<const unsigned char*>(storage.data());
    for (std::size_t i = 0; i < storage.bytes(); ++i) ASSERT_EQ(data[i], storage.bytes() % 251);
  }
}

TEST(StorageTest, MayBeEmpty) {
  for (const Device place : testing::all_places()) {
    const Storage none = Storage::allocate(0, place);
    EXPECT_TRUE(none.defined());
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(none.device(), place);
  }
  EXPECT_EQ(Storage().data(), nullptr);
  EXPECT_EQ(Storage().bytes(), 0U);
}

class StorageDeviceTest : public testing::DeviceTest {};

TEST_F(StorageDeviceTest, AllocatorBytesBalance) {
  const Device device = Device::cuda(0);
  const std::size_t before = memory::allocated(device);
  {
    const Tensor t = zeros({1000}, {.device = device});
    const Tensor view = t.narrow(0, 10, 20);
    EXPECT_GE(memory::allocated(device), before + 4000);
    const Tensor sum = t + t;
  }
  EXPECT_EQ(memory::allocated(device), before);
}

TEST_F(StorageDeviceTest, RecordedMemoryIsNotReusedBeforeTheStreamIsDone) {
  const Stream side = Stream::from_pool();
  void* address = nullptr;
  {
    testing::StreamHold hold(side);
    {
      const Tensor t = zeros({1000}, {.device = "cuda:0"});
      address = t.data();
      t.record_stream(side);
    }
    const Tensor next = zeros({1000}, {.device = "cuda:0"});
    EXPECT_NE(next.data(), address);
  }
  side.synchronize();
}

TEST_F(StorageDeviceTest, LaterWorkOfAStreamDoesNotDelayReuse) {
  const Stream side = Stream::from_pool();
  const auto pending = [] { return memory::stats(Device::cuda(0)).pending_bytes; };
  const std::int64_t before = pending();
  std::optional<Tensor> used = zeros({1000}, {.device = "cuda:0"});
  std::optional<Tensor> recorded = zeros({1000}, {.device = "cuda:0"});
  used->record_use(side);
  recorded->record_stream(side);
  side.synchronize();
  const testing::StreamHold hold(side);
  used.reset();
  EXPECT_EQ(pending(), before);
  recorded.reset();
  EXPECT_EQ(pending(), before + 4096);
}

TEST_F(StorageDeviceTest, FreedMemoryIsReusedOnItsStream) {
  void* address = nullptr;
  {
    const Tensor t = zeros({1000}, {.device = "cuda:0"});
    address = t.data();
  }
  EXPECT_EQ(zeros({1000}, {.device = "cuda:0"}).data(), address);
}

}  // namespace
}  // namespace gantry
