// CCCL's handle 0 in a file whose calls of CUDA use the default stream of each thread.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#include <gantry/memory/cccl.hpp>

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/device_fixture.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::StreamHold;

class CcclPerThreadTest : public gantry::testing::DeviceTest {
 protected:
  const Device device_ = Device::cuda(0);
  const cuda::stream_ref null_{cudaStream_t{}};
};

TEST_F(CcclPerThreadTest, TheNullHandleIsTheThreadsDefaultStream) {
  EXPECT_EQ(from_stream_ref(null_, device_).id(), gantry::testing::per_thread_stream().id());
  for (const Stream& stream : {Stream::default_stream(device_), Stream::from_pool(device_),
                               gantry::testing::per_thread_stream()}) {
    EXPECT_EQ(from_stream_ref(to_stream_ref(stream), device_).id(), stream.id());
  }
}

TEST_F(CcclPerThreadTest, AThreadDoesNotGetWhatAnothersStreamStillUses) {
  DeviceResource resource(device_);
  constexpr std::size_t kBytes = 3'000'000;  // a free block of this size is reused at once
  void* const data = resource.allocate_async(kBytes, null_);
  StreamHold hold(gantry::testing::per_thread_stream());
  resource.deallocate_async(data, kBytes, null_);
  std::thread([&] {
    void* const theirs = resource.allocate_async(kBytes, null_);
    EXPECT_NE(theirs, data);
    resource.deallocate_async(theirs, kBytes, null_);
  }).join();
  void* const mine = resource.allocate_async(kBytes, null_);
  EXPECT_EQ(mine, data) << "the stream runs in order";
  resource.deallocate_async(mine, kBytes, null_);
  hold.release();
  synchronize(device_);
}

TEST_F(CcclPerThreadTest, AFreeIsBehindTheStreamOfItsThread) {
  DeviceResource resource(device_);
  constexpr std::size_t kBytes = 3'000'000;
  void* const data = resource.allocate_async(kBytes, null_);
  std::unique_ptr<StreamHold> hold;
  std::thread([&] {
    hold = std::make_unique<StreamHold>(gantry::testing::per_thread_stream());
    resource.deallocate_async(data, kBytes, null_);
  }).join();
  void* const mine = resource.allocate_async(kBytes, null_);
  EXPECT_NE(mine, data) << "reused while another thread's stream works with it";
  hold.reset();
  resource.deallocate_async(mine, kBytes, null_);
  synchronize(device_);
}

TEST_F(CcclPerThreadTest, FreesWithoutAStreamAreOnTheLegacyDefaultStream) {
  DeviceResource resource(device_);
  void* const data = resource.allocate_sync(5000);
  resource.deallocate_sync(data, 5000);
  void* const again = resource.allocate_sync(5000);
  EXPECT_EQ(again, data);
  resource.deallocate_sync(again, 5000);
}

}  // namespace
}  // namespace gantry::memory
