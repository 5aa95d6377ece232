#include <gantry/streams/stream.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/extend/driver.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/foreign_stream.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class StreamTest : public testing::DeviceTest {};

constexpr int kPoolSize = 32;

TEST_F(StreamTest, DefaultStreamIsCurrentAtFirst) {
  const Stream stream = Stream::current();
  EXPECT_EQ(stream, Stream::default_stream());
  EXPECT_EQ(stream.native_handle(), nullptr);
  EXPECT_EQ(stream.id(), 0u);
  EXPECT_EQ(stream.device(), Device::cuda(0));
  EXPECT_EQ(stream.priority(), StreamPriority::normal);
}

TEST_F(StreamTest, PoolGoesRoundAndReturnsToTheFirst) {
  for (const StreamPriority priority : {StreamPriority::normal, StreamPriority::high}) {
    std::vector<Stream> round;
    std::set<std::uint64_t> ids;
    for (int i = 0; i < kPoolSize; ++i) {
      round.push_back(Stream::from_pool(Device::cuda(0), priority));
      ids.insert(round.back().id());
      EXPECT_NE(round.back().native_handle(), nullptr);
      EXPECT_EQ(round.back().priority(), priority);
    }
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(kPoolSize));
    EXPECT_FALSE(ids.contains(0));
    for (int i = 0; i < kPoolSize; ++i) {
      EXPECT_EQ(Stream::from_pool(Device::cuda(0), priority), round[static_cast<std::size_t>(i)]);
    }
  }
}

TEST_F(StreamTest, PrioritiesShareNoStream) {
  std::set<std::uint64_t> ids;
  for (int i = 0; i < kPoolSize; ++i) {
    ids.insert(Stream::from_pool(Device::cuda(0), StreamPriority::normal).id());
    ids.insert(Stream::from_pool(Device::cuda(0), StreamPriority::high).id());
  }
  EXPECT_EQ(ids.size(), 2u * kPoolSize);
}

TEST_F(StreamTest, ThePoolIsMadeAtOnceAlsoAfterAFailure) {
  GANTRY_REQUIRE_DEVICES(2);
  testing::FaultDriver driver;
  const Device device = Device::cuda(1);
  driver.fail_on("create_stream", 1);
  EXPECT_THROW(static_cast<void>(Stream::from_pool(device)), CudaError);
  (void)Stream::from_pool(device);
  // The one that failed, and the one beside the default stream.
  EXPECT_EQ(driver.calls("create_stream"), 2u + 2u * kPoolSize);
  driver.reset_counts();
  std::set<void*> handles;
  for (const StreamPriority priority : {StreamPriority::normal, StreamPriority::high}) {
    for (int i = 0; i < kPoolSize; ++i) {
      handles.insert(Stream::from_pool(device, priority).native_handle());
    }
  }
  EXPECT_EQ(handles.size(), 2u * kPoolSize);
  EXPECT_EQ(driver.calls("create_stream"), 0u);
}

TEST_F(StreamTest, ThreadsShareTheRoundRobin) {
  constexpr int kThreads = 4;
  std::vector<std::vector<std::uint64_t>> ids(kThreads);
  std::vector<std::thread> threads;
  for (auto& own : ids) {
    threads.emplace_back([&own] {
      for (int i = 0; i < kPoolSize; ++i) own.push_back(Stream::from_pool(Device::cuda(0)).id());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::map<std::uint64_t, int> uses;
  for (const auto& own : ids) {
    for (const std::uint64_t id : own) ++uses[id];
  }
  EXPECT_EQ(uses.size(), static_cast<std::size_t>(kPoolSize));
  for (const auto& [id, count] : uses) EXPECT_EQ(count, kThreads) << "stream " << id;
}

TEST_F(StreamTest, CurrentStreamIsPerThreadAndPerDevice) {
  const Stream mine = Stream::from_pool(Device::cuda(0));
  set_stream(mine);
  EXPECT_EQ(Stream::current(), mine);
  EXPECT_EQ(Stream::current(Device::cuda(0)), mine);
  std::thread([] {
    EXPECT_EQ(Stream::current(Device::cuda(0)), Stream::default_stream(Device::cuda(0)));
  }).join();
  if (device_count() > 1) {
    EXPECT_EQ(Stream::current(Device::cuda(1)), Stream::default_stream(Device::cuda(1)));
    const Stream other = Stream::from_pool(Device::cuda(1));
    set_stream(other);
    EXPECT_EQ(current_device(), Device::cuda(0)) << "set_stream changed the device";
    EXPECT_EQ(Stream::current(), mine);
    EXPECT_EQ(Stream::current(Device::cuda(1)), other);
    set_stream(Stream::default_stream(Device::cuda(1)));
  }
  set_stream(Stream::default_stream());
}

TEST_F(StreamTest, CurrentFollowsTheCurrentDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const DeviceGuard guard(Device::cuda(1));
  EXPECT_EQ(Stream::current().device(), Device::cuda(1));
  EXPECT_EQ(Stream::from_pool().device(), Device::cuda(1));
}

TEST_F(StreamTest, ExternalStreamsHaveStableIdsOfTheirOwn) {
  const NativeStream first = driver().create_stream(0, 0);
  const NativeStream second = driver().create_stream(0, 0);
  const Stream a = Stream::external(first.handle, Device::cuda(0));
  const Stream b = Stream::external(second.handle, Device::cuda(0));
  EXPECT_EQ(a.native_handle(), first.handle);
  EXPECT_NE(a.id(), b.id());
  EXPECT_GT(a.id(), 2u * kPoolSize);
  EXPECT_EQ(Stream::external(first.handle, Device::cuda(0)).id(), a.id());
  EXPECT_EQ(Stream::external(first.handle, Device::cuda(0)), a);
  EXPECT_FALSE(a == b);

  const Event done = a.record();
  b.wait(done);
  b.synchronize();
  EXPECT_TRUE(a.query());
  driver().destroy_stream(first);
  driver().destroy_stream(second);
}

TEST_F(StreamTest, ExternalKnowsTheStreamsOfGantry) {
  const Stream pooled = Stream::from_pool(Device::cuda(0), StreamPriority::high);
  const Stream again = Stream::external(pooled.native_handle(), Device::cuda(0));
  EXPECT_EQ(again.id(), pooled.id());
  EXPECT_EQ(again.priority(), StreamPriority::high);
  EXPECT_EQ(Stream::external(nullptr, Device::cuda(0)).id(), 0u);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): cudaStreamLegacy
  const Stream legacy = Stream::external(reinterpret_cast<void*>(1), Device::cuda(0));
  EXPECT_EQ(legacy, Stream::default_stream(Device::cuda(0)));
  EXPECT_EQ(legacy.native_handle(), nullptr);
}

TEST_F(StreamTest, EveryThreadHasADefaultStreamOfItsOwn) {
  const Stream mine = testing::per_thread_stream();
  EXPECT_EQ(mine, testing::per_thread_stream());
  EXPECT_NE(mine, Stream::default_stream());
  testing::StreamHold hold(mine);
  std::thread([&] {
    const Stream theirs = testing::per_thread_stream();
    EXPECT_NE(theirs.id(), mine.id());
    EXPECT_TRUE(theirs.query()) << "work of another thread";
  }).join();
  EXPECT_FALSE(mine.query());
  hold.release();
  mine.synchronize();
}

TEST_F(StreamTest, QueryTellsWhetherWorkIsLeft) {
  const Stream stream = Stream::from_pool(Device::cuda(0));
  EXPECT_TRUE(stream.query());
  testing::StreamHold hold(stream);
  EXPECT_FALSE(stream.query());
  hold.release();
  stream.synchronize();
  EXPECT_TRUE(stream.query());
}

TEST_F(StreamTest, WaitOrdersBehindTheWorkSubmittedSoFarOnly) {
  const Stream first = Stream::from_pool(Device::cuda(0));
  const Stream second = Stream::from_pool(Device::cuda(0));
  auto before = std::make_unique<testing::StreamHold>(first);
  second.wait(first);
  const testing::StreamHold after(first);
  EXPECT_FALSE(second.query());
  before->release();
  second.synchronize();
  EXPECT_TRUE(second.query());
  EXPECT_FALSE(first.query());
}

TEST_F(StreamTest, WaitOrdersAcrossDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const Stream first = Stream::from_pool(Device::cuda(0));
  const Stream second = Stream::from_pool(Device::cuda(1));
  std::atomic<int> value = 0;
  testing::StreamHold hold(first);
  driver().launch_host_function(
      first.native(), [](void* data) { static_cast<std::atomic<int>*>(data)->store(7); }, &value);
  second.wait(first);
  EXPECT_FALSE(second.query());
  hold.release();
  second.synchronize();
  EXPECT_EQ(value.load(), 7);
}

TEST_F(StreamTest, WaitForItselfSubmitsNothing) {
  const Stream stream = Stream::from_pool(Device::cuda(0));
  const testing::FaultDriver calls;
  stream.wait(stream);
  EXPECT_EQ(calls.calls("record_event"), 0u);
  EXPECT_EQ(calls.calls("wait_event"), 0u);
}

TEST_F(StreamTest, WaitCreatesNoEventOnceThePoolHasOne) {
  const Stream first = Stream::from_pool(Device::cuda(0));
  const Stream second = Stream::from_pool(Device::cuda(0));
  second.wait(first);
  const testing::FaultDriver calls;
  for (int i = 0; i < 100; ++i) {
    second.wait(first);
    first.wait(second);
  }
  EXPECT_EQ(calls.calls("create_event"), 0u);
  EXPECT_EQ(calls.calls("record_event"), 200u);
  EXPECT_EQ(calls.calls("wait_event"), 200u);
}

TEST_F(StreamTest, WaitKeepsItsEventWhenTheDriverFails) {
  const Stream first = Stream::from_pool(Device::cuda(0));
  const Stream second = Stream::from_pool(Device::cuda(0));
  second.wait(first);
  testing::FaultDriver faults;
  for (const char* call : {"record_event", "wait_event"}) {
    faults.reset_counts();
    faults.fail_on(call, 1);
    EXPECT_THROW(second.wait(first), CudaError) << call;
    second.wait(first);
    EXPECT_EQ(faults.calls("create_event"), 0u) << call << " lost an event";
  }
}

TEST_F(StreamTest, HasTextAndHash) {
  std::ostringstream text;
  text << Stream::default_stream(Device::cuda(0));
  EXPECT_EQ(text.str(), "stream 0 of cuda:0");
  const Stream stream = Stream::from_pool(Device::cuda(0));
  EXPECT_EQ(std::hash<Stream>{}(stream),
            std::hash<Stream>{}(Stream::external(stream.native_handle(), Device::cuda(0))));
}

TEST_F(StreamTest, RefusesDevicesThatHaveNoStreams) {
  EXPECT_THAT(
      [] { static_cast<void>(Stream::current(Device::cpu())); },
      ThrowsMessage<InvalidArgument>("Stream::current: expected a CUDA device, but got cpu"));
  EXPECT_THROW(static_cast<void>(Stream::default_stream(Device::cpu())), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Stream::from_pool(Device::cpu())), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Stream::external(nullptr, Device::cpu())), InvalidArgument);
  EXPECT_THROW(static_cast<void>(Stream::from_pool(Device::cuda(device_count()))), InvalidArgument);
}

}  // namespace
}  // namespace gantry
