// gantry's memory for CCCL, and CCCL's resources for gantry.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#include <gantry/memory/cccl.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/event.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using cuda::mr::device_accessible;

// An error of another library.
struct TheirError : std::bad_alloc {
  explicit TheirError(const char* why) : why(why) {}
  const char* what() const noexcept override { return why.c_str(); }

  std::string why;
};
using ThrowingResource = DeviceResourceThrowing<TheirError>;

static_assert(cuda::mr::async_resource_with<DeviceResource, device_accessible>);
static_assert(cuda::mr::async_resource_with<ThrowingResource, device_accessible>);
static_assert(!cuda::mr::async_resource_with<DeviceResource, cuda::mr::host_accessible>);

// A move is a copy.
#define PLAIN_VALUE(T) static_assert(std::is_trivially_copyable_v<T>)
PLAIN_VALUE(DeviceResource);
PLAIN_VALUE(ThrowingResource);
PLAIN_VALUE(TemporaryMemory);

class CcclTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    GANTRY_REQUIRE_DEVICES(1);
  }
  const Device device_ = Device::cuda(0);

  std::int64_t in_use() const { return stats(device_).allocated_bytes.all.current; }
};

TEST_F(CcclTest, StreamsKeepTheirHandles) {
  const Stream stream = Stream::from_pool(device_);
  EXPECT_EQ(to_stream_ref(stream).get(), stream.native_handle());
  EXPECT_EQ(from_stream_ref(to_stream_ref(stream), device_).native_handle(),
            stream.native_handle());
}

TEST_F(CcclTest, AReferenceOfCcclAllocatesAndFrees) {
  DeviceResource resource(device_);
  cuda::mr::async_resource_ref<device_accessible> ref = resource;
  const Stream stream = Stream::from_pool(device_);
  const std::int64_t before = in_use();
  std::mt19937 random(7);
  std::vector<std::pair<void*, std::size_t>> blocks;
  for (int i = 0; i < 300; ++i) {
    const std::size_t bytes = 1 + random() % 100'000;
    const std::size_t alignment = std::size_t{1} << (random() % 13);
    void* data = nullptr;
    switch (random() % 3) {
      case 0:
        data = ref.allocate_async(bytes, alignment, to_stream_ref(stream));
        break;
      case 1:
        data = resource.allocate(to_stream_ref(stream), bytes, alignment);
        break;
      default:
        data = ref.allocate(bytes, alignment);
    }
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0U);
    driver().fill(data, i, bytes, stream.native());
    blocks.emplace_back(data, bytes);
  }
  EXPECT_GT(in_use(), before);
  stream.synchronize();
  DeviceResource other(device_);
  EXPECT_EQ(resource, other);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [data, bytes] = blocks[i];
    if (i % 2 == 0) {
      ref.deallocate(data, bytes);
    } else {
      other.deallocate_async(data, bytes, to_stream_ref(stream));
    }
  }
  EXPECT_EQ(in_use(), before);
  EXPECT_EQ(resource.allocate_async(0, to_stream_ref(stream)), nullptr);
  resource.deallocate_async(nullptr, 0, to_stream_ref(stream));
  int no_memory_of_gantry = 0;
  resource.deallocate(&no_memory_of_gantry, 4);
  EXPECT_THROW(static_cast<void>(resource.allocate(std::size_t{1} << 60, 256)), OutOfMemoryError);
}

TEST_F(CcclTest, AFreeOnAnotherStreamIsBehindItsWork) {
  DeviceResource resource(device_);
  const Stream first = Stream::from_pool(device_);
  const Stream second = Stream::from_pool(device_);
  constexpr std::size_t kBytes = 3'000'000;  // a free block of this size is reused at once
  void* const data = resource.allocate_async(kBytes, to_stream_ref(first));
  second.wait(first);
  auto hold = std::make_unique<testing::StreamHold>(second);
  resource.deallocate_async(data, kBytes, to_stream_ref(second));
  void* const while_used = resource.allocate_async(kBytes, to_stream_ref(first));
  EXPECT_NE(while_used, data);
  hold.reset();
  resource.deallocate_async(while_used, kBytes, to_stream_ref(first));
  synchronize(device_);
}

// RMM's pools free their chunks without a stream, long after the stream of the allocation.
TEST_F(CcclTest, AStreamMayEndBeforeTheFree) {
  static_cast<void>(Stream::from_pool(device_));  // made before the driver gives a handle out again
  DeviceResource resource(device_);
  const std::int64_t before = in_use();
  testing::ForeignStream ended;
  void* const data = resource.allocate_async(3'000'000, to_stream_ref(ended.stream()));
  ended.destroy();
  {
    const testing::FaultDriver calls;
    resource.deallocate_sync(data, 3'000'000);
    EXPECT_EQ(calls.calls("is_capturing"), 0U) << "the driver is asked about a stream that is gone";
    void* const next = resource.allocate_sync(3'000'000);
    EXPECT_EQ(next, data) << "the free is complete";
    resource.deallocate_sync(next, 3'000'000);
  }
  EXPECT_EQ(in_use(), before);
}

TEST_F(CcclTest, OneHandleMayNameAStreamOfEachThread) {
  DeviceResource resource(device_);
  constexpr std::size_t kBytes = 3'000'000;  // a free block of this size is reused at once
  const auto per_thread = [] { return to_stream_ref(testing::per_thread_stream()); };
  void* const data = resource.allocate_async(kBytes, per_thread());
  std::unique_ptr<testing::StreamHold> hold;
  std::thread([&] {
    hold = std::make_unique<testing::StreamHold>(testing::per_thread_stream());
    resource.deallocate_async(data, kBytes, per_thread());
  }).join();
  void* const mine = resource.allocate_async(kBytes, per_thread());
  EXPECT_NE(mine, data) << "reused while another thread's stream works with it";
  hold.reset();
  resource.deallocate_async(mine, kBytes, per_thread());
  synchronize(device_);
}

TEST_F(CcclTest, ALibraryMayWantAnErrorOfItsOwn) {
  ThrowingResource resource(device_);
  cuda::mr::async_resource_ref<device_accessible> ref = resource;
  const cuda::stream_ref stream = to_stream_ref(Stream::from_pool(device_));
  constexpr std::size_t kTooMuch = std::size_t{1} << 60;
  const auto expect_their_error = [](auto&& allocate) {
    try {
      static_cast<void>(allocate());
      ADD_FAILURE() << "too much memory was allocated";
    } catch (const TheirError& error) {
      EXPECT_NE(std::string(error.what()).find("out of memory"), std::string::npos);
    }
  };
  expect_their_error([&] { return ref.allocate(kTooMuch, 256); });
  expect_their_error([&] { return ref.allocate_async(kTooMuch, 256, stream); });
  expect_their_error([&] { return resource.allocate_async(kTooMuch, stream); });
  expect_their_error([&] { return resource.allocate(stream, kTooMuch, 256); });
  expect_their_error([&] { return resource.allocate_sync(kTooMuch); });
  EXPECT_THROW(static_cast<void>(resource.allocate_sync(8, 3)), InvalidArgument);
  // One memory for both.
  DeviceResource plain(device_);
  EXPECT_TRUE(plain == resource);
  const std::int64_t before = in_use();
  plain.deallocate(resource.allocate(100), 100);
  resource.deallocate_async(plain.allocate_async(100, stream), 100, stream);
  EXPECT_EQ(in_use(), before);
}

TEST_F(CcclTest, DevicesHaveResourcesOfTheirOwn) {
  GANTRY_REQUIRE_DEVICES(2);
  EXPECT_FALSE(DeviceResource(Device::cuda(0)) == DeviceResource(Device::cuda(1)));
  EXPECT_EQ(DeviceResource(Device::cuda(1)).device(), Device::cuda(1));
}

// A resource of another library: here gantry's own, which counts.
struct Counting {
  DeviceResource memory;
  std::shared_ptr<std::pair<int, int>> calls = std::make_shared<std::pair<int, int>>();
  std::shared_ptr<std::vector<void*>> freed = std::make_shared<std::vector<void*>>();  // later
  std::shared_ptr<std::vector<void*>> streams = std::make_shared<std::vector<void*>>();

  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    ++calls->first;
    return driver_memory(bytes, alignment, stream);
  }
  void deallocate_async(void* data, std::size_t, std::size_t, cuda::stream_ref stream) {
    ++calls->second;
    streams->push_back(stream.get());
    freed->push_back(data);
  }
  static void* driver_memory(std::size_t bytes, std::size_t, cuda::stream_ref) {
    return driver().allocate(0, bytes);
  }
};

TEST_F(CcclTest, AResourceServesADeviceOfGantry) {
  const Counting counting{DeviceResource(device_)};
  const auto before =
      set_allocator(device_, std::make_shared<ResourceAllocator<Counting>>(counting, device_));
  EXPECT_EQ(allocator(device_).name(), "resource");
  const Stream stream = Stream::from_pool(device_);
  const Stream other = Stream::from_pool(device_);
  {
    Buffer some = memory::allocate(stream, 1000);
    const Buffer none = memory::allocate(stream, 0);
    EXPECT_NE(some.data(), nullptr);
    EXPECT_EQ(none.data(), nullptr);
    some.block().allocator->record_stream(some.block(), other);
    EXPECT_EQ(counting.calls->first, 1);
    EXPECT_EQ(counting.calls->second, 0);
  }
  EXPECT_EQ(counting.calls->second, 1);
  // A free makes the stream wait for the recorded ones.
  auto hold = std::make_unique<testing::StreamHold>(other);
  {
    const Buffer used = memory::allocate(stream, 1000);
    for (int i = 0; i < 3; ++i) used.block().allocator->record_stream(used.block(), other);
  }
  EXPECT_FALSE(stream.query());
  hold.reset();
  synchronize(device_);
  // The block is another stream's now, and freed there.
  testing::StreamHold busy(other);
  {
    const Buffer moved = memory::allocate(stream, 1000);
    moved.block().allocator->record_stream(moved.block(), other);
    moved.block().allocator->set_stream(moved.block(), other);
  }
  EXPECT_EQ(counting.streams->back(), other.native_handle());
  EXPECT_TRUE(stream.query());
  busy.release();
  synchronize(device_);
  set_allocator(device_, before);
  for (void* data : *counting.freed) driver().deallocate(0, data);
}

TEST_F(CcclTest, TemporaryMemoryIsOfItsStream) {
  const Stream stream = Stream::from_pool(device_);
  TemporaryMemory temporary(stream);
  const std::int64_t before = in_use();
  char* const data = temporary.allocate(5000);
  driver().fill(data, 1, 5000, stream.native());
  EXPECT_GT(in_use(), before);
  temporary.deallocate(data, 5000);
  EXPECT_EQ(in_use(), before);
}

}  // namespace
}  // namespace gantry::memory
