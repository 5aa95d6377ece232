// Clocks of captured streams, and of streams that gantry does not own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <utility>

#include <gantry/core/error.hpp>

#include "streams/clock_registry.hpp"
#include "streams/stream_clock.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/reused_handle.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

class StreamClockCaptureTest : public testing::DeviceTest {
 protected:
  void TearDown() override {
    ClockRegistry::instance().verify();
    DeviceTest::TearDown();
  }
};

TEST_F(StreamClockCaptureTest, CapturedRecordsAndWaitsOrderNobody) {
  const Stream first = Stream::from_pool();
  const Stream second = Stream::from_pool();
  StreamClock& a = StreamClock::of(first);
  StreamClock& b = StreamClock::of(second);
  first.synchronize();
  const std::uint64_t sequence = a.next_sequence();
  driver().begin_capture(first.native(), CaptureMode::thread_local_);
  Event forked = first.record();
  second.wait(forked);
  Event joined = second.record();
  first.wait(joined);
  EXPECT_FALSE(a.poll());
  EXPECT_FALSE(b.poll());
  EXPECT_FALSE(a.make_wait(b)) << "nothing of ours may get into the graph";
  EXPECT_THROW(a.wait_for(sequence), CudaError);
  EXPECT_FALSE(b.happens_after(a, sequence));
  EXPECT_EQ(a.next_sequence(), sequence);
  driver().destroy_graph(driver().end_capture(first.native()));
  EXPECT_FALSE(b.happens_after(a, sequence));
  forked.record(first);  // a plain record again
  second.wait(forked);
  EXPECT_TRUE(b.happens_after(a, sequence));
  second.synchronize();
}

TEST_F(StreamClockCaptureTest, PollSeesOtherStreamsDuringACapture) {
  const Stream captured = Stream::from_pool();
  const Stream stream = Stream::from_pool();
  StreamClock& clock = StreamClock::of(stream);
  driver().begin_capture(captured.native(), CaptureMode::global);
  const std::uint64_t sequence = clock.next_sequence();
  while (clock.completed() < sequence) clock.poll(sequence);
  driver().destroy_graph(driver().end_capture(captured.native()));
}

// A driver for which another thread begins a capture right before an event is recorded.
class CaptureBeforeRecord : public testing::FaultDriver {
 public:
  void record_event(NativeEvent event, NativeStream stream) override {
    if (std::exchange(begins_capture, false)) {
      wrapped().begin_capture(stream, CaptureMode::relaxed);
    }
    FaultDriver::record_event(event, stream);
  }

  bool begins_capture = false;
};

TEST_F(StreamClockCaptureTest, ACaptureThatBeginsBeforeTheEventOfAClockIsNotSpoilt) {
  const Stream stream = Stream::from_pool();
  StreamClock& clock = StreamClock::of(stream);
  stream.synchronize();
  CaptureBeforeRecord racing;
  racing.begins_capture = true;
  const std::uint64_t sequence = clock.record_sequence();
  clock.cover(sequence);
  ASSERT_FALSE(racing.begins_capture);
  EXPECT_FALSE(clock.poll(sequence));
  ASSERT_NO_THROW(driver().destroy_graph(driver().end_capture(stream.native())));
  while (clock.completed() < sequence) clock.poll(sequence);
}

TEST_F(StreamClockCaptureTest, ACaptureThatBeginsDuringAWaitIsNoError) {
  const Stream stream = Stream::from_pool();
  StreamClock& clock = StreamClock::of(stream);
  StreamClock& waiter = StreamClock::of(Stream::from_pool());
  testing::StreamHold hold(stream);
  const auto expect_false = [&](auto wait) {
    CaptureBeforeRecord racing;
    racing.begins_capture = true;
    EXPECT_FALSE(wait());
    ASSERT_FALSE(racing.begins_capture);
    EXPECT_FALSE(racing.is_capturing(waiter.native()));
    ASSERT_NO_THROW(driver().destroy_graph(driver().end_capture(stream.native())));
  };
  const std::uint64_t sequence = clock.next_sequence();
  expect_false([&] { return clock.try_wait_for(sequence); });
  expect_false([&] { return clock.make_wait(waiter); });
  hold.release();
  EXPECT_TRUE(clock.try_wait_for(sequence));
  EXPECT_TRUE(clock.make_wait(waiter));
}

TEST_F(StreamClockCaptureTest, HandleThatIsUsedAgainGetsAClockOfItsOwn) {
  // A created stream may or may not get the handle of a destroyed one: try until it does.
  const NativeStream native = driver().create_stream(0, 0);
  const Stream first = Stream::external(native.handle, Device::cuda(0));
  StreamClock& old = StreamClock::of(first);
  const std::uint64_t sequence = old.next_sequence();
  driver().destroy_stream(native);
  const auto again = gantry::testing::stream_with_handle_of(native);
  if (!again) GTEST_SKIP() << "no handle was used again";

  EXPECT_FALSE(old.is_invalidated());
  const Stream second = Stream::external(again->handle, Device::cuda(0));
  StreamClock& fresh = StreamClock::of(second);
  EXPECT_NE(second.id(), first.id());
  EXPECT_NE(&fresh, &old);
  EXPECT_TRUE(old.is_invalidated());
  EXPECT_FALSE(fresh.is_invalidated());
  EXPECT_EQ(Stream::external(again->handle, Device::cuda(0)).id(), second.id());

  EXPECT_FALSE(fresh.happens_after(old, sequence));
  EXPECT_FALSE(old.happens_after(old, sequence)) << "its handle is another stream's";
  const testing::FaultDriver calls;
  EXPECT_FALSE(old.poll());
  static_cast<void>(first.record());
  first.synchronize();
  EXPECT_LT(old.completed(), sequence) << "that was the other stream";
  EXPECT_EQ(old.record_sequence(), old.next_sequence());
  EXPECT_EQ(calls.calls("record_event"), 1u) << "of first.record()";
  EXPECT_TRUE(old.make_wait(fresh));
  EXPECT_EQ(calls.calls("synchronize_device"), 1u);
  EXPECT_GE(old.completed(), sequence);
  EXPECT_TRUE(fresh.happens_after(old, sequence));
  driver().destroy_stream(*again);
}

// Several handles: the pool makes a stream that it hands to nobody, too.
TEST_F(StreamClockCaptureTest, HandleThatBecomesAPooledStreamsRetiresItsClock) {
  const int device = device_count() - 1;
  std::map<void*, StreamClock*> clocks;
  for (int i = 0; i < 4; ++i) {
    void* const handle = driver().create_stream(device, 0).handle;
    clocks[handle] = &StreamClock::of(Stream::external(handle, Device::cuda(device)));
  }
  for (const auto& [handle, clock] : clocks) driver().destroy_stream({device, handle});
  int reused = 0;
  for (int i = 0; i < 64; ++i) {
    const auto priority = i < 32 ? StreamPriority::normal : StreamPriority::high;
    const Stream pooled = Stream::from_pool(Device::cuda(device), priority);
    const auto found = clocks.find(pooled.native_handle());
    if (found == clocks.end()) continue;
    ++reused;
    StreamClock& old = *found->second;
    EXPECT_TRUE(old.is_invalidated());
    EXPECT_FALSE(StreamClock::of(pooled).is_invalidated());
    const testing::FaultDriver calls;
    EXPECT_EQ(old.record_sequence(), old.next_sequence());
    EXPECT_EQ(calls.calls("record_event"), 0u) << "that would number the pooled stream";
  }
  if (reused == 0) GTEST_SKIP() << "no handle was used again";
}

TEST_F(StreamClockCaptureTest, SequencesOfExternalStreamsOutliveTheStream) {
  const NativeStream native = driver().create_stream(0, 0);
  const Stream stream = Stream::external(native.handle, Device::cuda(0));
  StreamClock& clock = StreamClock::of(stream);
  StreamClock& waiter = StreamClock::of(Stream::from_pool());
  testing::StreamHold hold(stream);
  const std::uint64_t sequence = clock.record_sequence();
  const std::uint64_t second = clock.record_sequence();
  EXPECT_GT(second, sequence);
  driver().destroy_stream(native);

  testing::FaultDriver calls;
  EXPECT_FALSE(clock.poll());
  EXPECT_LT(clock.completed(), sequence);
  EXPECT_TRUE(clock.make_wait(waiter, sequence));
  EXPECT_TRUE(waiter.happens_after(clock, sequence));
  EXPECT_FALSE(waiter.happens_after(clock, second));
  hold.release();
  while (clock.completed() < second) clock.poll();
  EXPECT_EQ(calls.calls("record_event"), 0u) << "the stream is gone";
  EXPECT_EQ(calls.calls("is_capturing"), 1u) << "of the waiter";

  const std::uint64_t uncovered = clock.next_sequence();
  clock.wait_for(uncovered);
  EXPECT_EQ(calls.calls("synchronize_device"), 1u);
  EXPECT_GE(clock.completed(), uncovered);
}

// The number of a destroyed stream, which only the device can tell.
TEST_F(StreamClockCaptureTest, NoDeviceIsSynchronizedWhileAnyStreamIsCaptured) {
  const std::array<Stream, 2> captured{Stream::from_pool(Device::cuda(0)),
                                       Stream::from_pool(Device::cuda(device_count() - 1))};
  StreamClock& waiter = StreamClock::of(Stream::from_pool());
  const NativeStream native = driver().create_stream(0, 0);
  StreamClock& clock = StreamClock::of(Stream::external(native.handle, Device::cuda(0)));
  const std::uint64_t sequence = clock.next_sequence();
  driver().destroy_stream(native);

  const testing::FaultDriver calls;
  EXPECT_TRUE(may_synchronize_devices());
  for (const Stream& one : captured) driver().begin_capture(one.native(), CaptureMode::relaxed);
  for (const Stream& one : captured) {
    EXPECT_FALSE(may_synchronize_devices());
    EXPECT_FALSE(clock.can_wait_for(sequence));
    EXPECT_FALSE(clock.try_wait_for(sequence));
    EXPECT_THROW(clock.wait_for(sequence), CudaError);
    EXPECT_FALSE(clock.make_wait(waiter, sequence));
    EXPECT_EQ(calls.calls("synchronize_device"), 0u);
    ASSERT_NO_THROW(driver().destroy_graph(driver().end_capture(one.native())));
  }
  EXPECT_TRUE(may_synchronize_devices());
  EXPECT_TRUE(clock.try_wait_for(sequence));
  EXPECT_EQ(calls.calls("synchronize_device"), 1u);
  EXPECT_GE(clock.completed(), sequence);
}

TEST_F(StreamClockCaptureTest, SequenceNeverThrows) {
  const NativeStream native = driver().create_stream(0, 0);
  const Stream stream = Stream::external(native.handle, Device::cuda(0));
  StreamClock& clock = StreamClock::of(stream);
  testing::FaultDriver faults;
  for (const char* call : {"is_capturing", "record_event"}) {
    faults.fail_on(call, 1);
    const std::uint64_t sequence = clock.record_sequence();
    EXPECT_LT(clock.completed(), sequence) << call;
    clock.wait_for(sequence);
    EXPECT_GE(clock.completed(), sequence) << call;
  }
  driver().destroy_stream(native);
}

}  // namespace
}  // namespace gantry
