// The driver's pools beside captures, and threads that are short of memory together.
#include "memory/async/async_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include <gantry/core/error.hpp>
#include <gantry/device/properties.hpp>

#include "memory/async/async_allocator.hpp"
#include "memory/backends.hpp"
#include "tests/memory/captures/capture_fixture.hpp"
#include "tests/memory/heap_fixture.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::kMib;

class AsyncPoolTest : public gantry::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    if (!driver().supports_memory_pools(0)) GTEST_SKIP() << "cuda:0 has no memory pools";
    async().empty_cache(Device::cuda(0));
  }
  void TearDown() override {
    if (!IsSkipped()) {
      async().set_fraction(1, 0);
      async().empty_cache(Device::cuda(0));
      async().verify();
      EXPECT_EQ(stats().active_bytes.all.current, 0);
      EXPECT_EQ(stats().reserved_bytes.all.current, 0);
    }
    DeviceTest::TearDown();
  }
  static DeviceAllocator& async() { return async_allocator(); }
  static Stats stats() { return async().stats(0); }
  static Buffer make(std::size_t bytes, const Stream& stream) {
    return Buffer(async().allocate(stream, bytes));
  }
};

TEST_F(AsyncPoolTest, FreesOnCapturedStreamsWaitForTheGraph) {
  const Stream stream = Stream::from_pool();
  Buffer buffer = make(4096, stream);
  gantry::testing::CapturedGraph graph(stream);
  {
    const FaultDriver driver;
    buffer.reset();
    EXPECT_EQ(driver.calls("deallocate_async"), 0u);
  }
  graph.end();  // it is not spoilt
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 1);
  graph.destroy_and_wait();
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 0);
}

TEST_F(AsyncPoolTest, RequestsThatFailAreOver) {
  const Stream stream = Stream::from_pool();
  FaultDriver driver;
  driver.fail_on("allocate_async", 1, gantry::testing::kOutOfMemory, 1000);
  EXPECT_THROW(static_cast<void>(make(4096, stream)), OutOfMemoryError);
  async().verify();
  driver.fail_on("allocate_async", 1);
  EXPECT_THROW(static_cast<void>(make(4096, stream)), CudaError);
  async().verify();
}

// Begins a capture of `stream` right before an event is recorded there.
class LateCapture : public FaultDriver {
 public:
  explicit LateCapture(NativeStream stream) : stream_(stream) {}
  void record_event(NativeEvent event, NativeStream stream) override {
    if (stream == stream_ && !is_begun_) {
      is_begun_ = true;
      begin_capture(stream, CaptureMode::global);
    }
    FaultDriver::record_event(event, stream);
  }

 private:
  const NativeStream stream_;
  bool is_begun_ = false;
};

TEST_F(AsyncPoolTest, ACaptureThatBeginsDuringAFreeIsNotJoined) {
  const Stream user = Stream::from_pool();
  Buffer buffer = make(4096, Stream::from_pool());
  async().record_stream(buffer.block(), user);
  {
    LateCapture driver(user.native());
    buffer.reset();
    NativeGraph graph = nullptr;
    EXPECT_NO_THROW(graph = driver.end_capture(user.native())) << "the pool's stream took part";
    driver.destroy_graph(graph);
  }
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 0);
}

TEST_F(AsyncPoolTest, BothSourcesGiveWayToEachOther) {
  const auto total = device_properties(Device::cuda(0)).total_memory;
  GANTRY_REQUIRE_SIM();
  const std::size_t most = total / 4 * 3;
  const Stream stream = Stream::from_pool();
  for (int i = 0; i < 2; ++i) {
    { const Buffer eager = make(most, stream); }
    stream.synchronize();
    driver().begin_capture(stream.native(), CaptureMode::relaxed);
    { const Buffer captured = make(most, stream); }
    driver().destroy_graph(driver().end_capture(stream.native()));
  }
}

// Holds a thread back in its free of a deferred block until `leave` returns.
class LateFree : public FaultDriver {
 public:
  void deallocate_async(void* data, NativeStream stream) override {
    if (armed.exchange(false)) {
      held = true;
      held.notify_all();
      leave();
    }
    FaultDriver::deallocate_async(data, stream);
  }
  std::atomic<bool> armed{false};
  std::atomic<bool> held{false};
  std::function<void()> leave;
};

TEST_F(AsyncPoolTest, MemoryThatAnotherThreadFreesIsNotMissing) {
  const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
  async().set_fraction((static_cast<double>(8 * kMib) + 0.5) / total, 0);
  const Stream stream = Stream::from_pool();
  LateFree driver;
  std::atomic<bool> is_complete{false};
  // The second thread ends early only if it reports out of memory.
  driver.leave = [&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
    while (!is_complete && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  };
  Buffer deferred = make(6 * kMib, stream);
  driver.fail_on("deallocate_async", 1);
  deferred.reset();  // made up for by the next request
  driver.armed = true;
  std::thread first([&] { static_cast<void>(make(512, stream)); });
  driver.held.wait(false);
  EXPECT_NO_THROW(static_cast<void>(make(5 * kMib, stream)));
  is_complete = true;
  first.join();
}

}  // namespace
}  // namespace gantry::memory
