// Callbacks of layers that cache allocations: when recovery calls them, and what they may do.
#include "memory/oom/memory_pressure.hpp"

#include <gtest/gtest.h>

#include <vector>

#include <gantry/ipc/ipc.hpp>
#include <gantry/memory/caching_allocator.hpp>

#include "memory/backends.hpp"
#include "memory/driver_memory.hpp"
#include "memory/heap/heap_allocator.hpp"
#include "tests/memory/heap_fixture.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::kMib;
using gantry::testing::StreamHold;

// A layer that caches one buffer of device 0. Freeing it takes the heap's lock, so nobody who holds
// the lock may call it.
class CachingLayer {
 public:
  struct Call {
    Waiting waiting;
    bool lock_was_free;
  };

  // Starts without calls and without a buffer. Callbacks cannot be removed, so there is one layer.
  static CachingLayer& fresh() {
    static auto& layer = *new CachingLayer();
    layer.cached.reset();
    layer.calls.clear();
    layer.mutex_ = heap_allocator().heap(0).lock().mutex();
    return layer;
  }

  Buffer cached;
  std::vector<Call> calls;

 private:
  CachingLayer() {
    MemoryPressureCallbacks::instance().add(
        [](int device, Waiting waiting) noexcept { return instance_->release(device, waiting); });
    instance_ = this;
  }
  bool release(int device, Waiting waiting) noexcept {
    if (device != 0) return false;
    const bool lock_was_free = mutex_->try_lock();
    if (lock_was_free) mutex_->unlock();
    calls.push_back({waiting, lock_was_free});
    if (cached.data() == nullptr || !lock_was_free) return false;
    cached.reset();
    return true;
  }

  static inline CachingLayer* instance_ = nullptr;
  AdaptiveMutex* mutex_ = nullptr;
};

class MemoryPressureTest : public gantry::testing::HeapTest {
 protected:
  void TearDown() override {
    if (!IsSkipped()) static_cast<void>(CachingLayer::fresh());
    HeapTest::TearDown();
  }
  // Every call came without the heap's lock.
  static void expect_calls(const CachingLayer& layer, Waiting waiting) {
    EXPECT_FALSE(layer.calls.empty());
    for (const CachingLayer::Call& call : layer.calls) {
      EXPECT_EQ(call.waiting, waiting);
      EXPECT_TRUE(call.lock_was_free);
    }
  }
};

TEST_F(MemoryPressureTest, RecoveryTakesWhatALayerCaches) {
  const Stream stream = Stream::current();
  limit_to(64 * kMib);
  CachingLayer& layer = CachingLayer::fresh();
  layer.cached = allocate(stream, 40 * kMib);
  EXPECT_NO_THROW(static_cast<void>(allocate(stream, 40 * kMib)));
  expect_calls(layer, Waiting::forbidden);
  EXPECT_EQ(layer.calls.size(), 1U);
}

TEST_F(MemoryPressureTest, RecoveryForDriverMemoryAsksForNoWait) {
  CachingLayer& layer = CachingLayer::fresh();
  FaultDriver faults;
  faults.fail_on("allocate", 1, gantry::testing::kOutOfMemory);
  const DriverMemory memory(0, kMib, "the test");
  expect_calls(layer, Waiting::forbidden);
}

TEST_F(MemoryPressureTest, EmptyCacheAllowsWaits) {
  CachingLayer& layer = CachingLayer::fresh();
  layer.cached = allocate(Stream::current(), 4 * kMib);
  empty_cache();
  expect_calls(layer, Waiting::allowed);
  EXPECT_EQ(reserved(), 0U);
}

// What this layer itself registers, for exported memory and for the driver's pools.
TEST_F(MemoryPressureTest, NoCallbackWaitsThatMayNot) {
  const Stream user = Stream::from_pool();
  static_cast<void>(CachingLayer::fresh());
  const Buffer exported = allocate(user, 4 * kMib);
  static_cast<void>(export_ipc(exported.block()));
  const StreamHold hold(user);
  const FaultDriver driver;
  static_cast<void>(MemoryPressureCallbacks::instance().run(0, Waiting::forbidden));
  for (const auto& [call, count] : driver.counts()) {
    EXPECT_FALSE(call.starts_with("synchronize")) << call;
  }
}

}  // namespace
}  // namespace gantry::memory
