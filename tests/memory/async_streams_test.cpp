// Frees on streams that are foreign, lost, of one thread, or whose handles come back.
#include <gtest/gtest.h>

#include <thread>

#include "tests/memory/async_allocator_fixture.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/reused_handle.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry::memory {
namespace {

using gantry::testing::FaultDriver;
using gantry::testing::ForeignStream;
using gantry::testing::kMib;
using gantry::testing::StreamHold;

TEST_F(AsyncAllocatorTest, ForeignStreamsMayBeDestroyedAfterTheFree) {
  ForeignStream owner;
  ForeignStream user;
  const Stream own = owner.stream();
  Buffer plain = make(4096, own);
  Buffer recorded = make(4 * kMib, own);
  void* data = recorded.data();
  async().record_stream(recorded.block(), user.stream());
  StreamHold hold(user.stream());
  FaultDriver faults;
  faults.fail_on("deallocate_async", 1, gantry::testing::kUnknown, 2);
  plain.reset();
  recorded.reset();
  owner.destroy();
  user.destroy();
  faults.reset_counts();
  {
    const Buffer next = make(4 * kMib, Stream::from_pool());
    EXPECT_NE(next.data(), data) << "reused while a stream works with it";
    EXPECT_EQ(faults.calls("deallocate_async"), 2u) << "both frees are made up for";
    EXPECT_EQ(faults.calls("record_event"), 0u) << "the streams are gone";
    EXPECT_EQ(stats().active.all.current, 1);
  }
  hold.release();
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 0);
}

// Not allowed, but where the driver says that a stream is gone, nothing is lost or reused too soon.
TEST_F(AsyncAllocatorTest, BlocksOfLostStreamsWaitForTheDevice) {
  GANTRY_REQUIRE_SIM();
  const Stream pooled = Stream::from_pool();
  ForeignStream owner;
  ForeignStream user;
  Buffer plain = make(4096, owner.stream());
  Buffer recorded = make(4 * kMib, pooled);
  void* data = recorded.data();
  async().record_stream(recorded.block(), user.stream());
  StreamHold hold(user.stream());
  owner.destroy();
  user.destroy();
  plain.reset();
  recorded.reset();
  EXPECT_NE(make(4 * kMib, pooled).data(), data) << "reused while a stream works with it";
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_EQ(stats().active.all.current, 2) << "nobody waited for the device";
  hold.release();
  const auto total = static_cast<double>(device_properties(Device::cuda(0)).total_memory);
  async().set_fraction((static_cast<double>(5 * kMib) + 0.5) / total, 0);
  EXPECT_NE(make(4 * kMib, pooled).data(), nullptr) << "kept though memory is short";
  EXPECT_EQ(stats().active.all.current, 0);
}

TEST_F(AsyncAllocatorTest, OnlyItsThreadCanFreeOnAPerThreadStream) {
  const Stream pooled = Stream::from_pool();
  const Stream mine = gantry::testing::per_thread_stream();
  Buffer here = make(kMib, mine);
  here.reset();
  Buffer recorded = make(kMib, pooled);
  async().record_stream(recorded.block(), mine);
  recorded.reset();
  EXPECT_EQ(stats().active.all.current, 0) << "freed in order";

  StreamHold hold(mine);
  Buffer elsewhere = make(kMib, mine);
  Buffer used = make(kMib, pooled);
  async().record_stream(used.block(), mine);
  std::thread([&] {
    elsewhere.reset();
    used.reset();
  }).join();
  EXPECT_EQ(stats().allocation.all.current, 0);
  EXPECT_EQ(stats().active.all.current, 2) << "freed on a stream of the other thread";
  hold.release();
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 0);
}

TEST_F(AsyncAllocatorTest, HandlesThatComeBackAreOtherStreams) {
  GANTRY_REQUIRE_SIM();
  const NativeStream native = driver().create_stream(0, 0);
  const Stream old = Stream::external(native.handle, Device::cuda(0));
  Buffer buffer = make(4096, old);
  driver().destroy_stream(native);
  const auto again = gantry::testing::stream_with_handle_of(native);
  if (!again) GTEST_SKIP() << "the handle did not come back";
  ASSERT_NE(Stream::external(again->handle, Device::cuda(0)).id(), old.id());
  {
    const FaultDriver driver;
    buffer.reset();
    EXPECT_EQ(driver.total_calls(), 0u) << "nothing is enqueued on the other stream";
  }
  async().empty_cache(Device::cuda(0));
  EXPECT_EQ(stats().active.all.current, 0);
  driver().destroy_stream(*again);
}

}  // namespace
}  // namespace gantry::memory
