// Clocks of captured streams, and of streams that gantry does not own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include <gantry/core/error.hpp>

#include "streams/stream_clock.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/reused_handle.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

class StreamClockCaptureTest : public testing::DeviceTest {};

TEST_F(StreamClockCaptureTest, CapturedRecordsAndWaitsOrderNobody) {
  const Stream first = Stream::from_pool();
  const Stream second = Stream::from_pool();
  StreamClock& a = StreamClock::of(first);
  StreamClock& b = StreamClock::of(second);
  first.synchronize();
  const std::uint64_t mark = a.next_mark();
  driver().begin_capture(first.native(), CaptureMode::thread_local_);
  Event forked = first.record();
  second.wait(forked);
  Event joined = second.record();
  first.wait(joined);
  EXPECT_FALSE(a.poll());
  EXPECT_FALSE(b.poll());
  EXPECT_FALSE(a.order_before(b)) << "nothing of ours may get into the graph";
  EXPECT_THROW(a.wait_for(mark), CudaError);
  EXPECT_FALSE(b.is_after(a, mark));
  EXPECT_EQ(a.next_mark(), mark);
  driver().destroy_graph(driver().end_capture(first.native()));
  EXPECT_FALSE(b.is_after(a, mark));
  forked.record(first);  // a plain record again
  second.wait(forked);
  EXPECT_TRUE(b.is_after(a, mark));
  second.synchronize();
}

TEST_F(StreamClockCaptureTest, PollSeesOtherStreamsDuringACapture) {
  const Stream captured = Stream::from_pool();
  const Stream stream = Stream::from_pool();
  StreamClock& clock = StreamClock::of(stream);
  driver().begin_capture(captured.native(), CaptureMode::global);
  const std::uint64_t mark = clock.next_mark();
  while (clock.completed() < mark) clock.poll(mark);
  driver().destroy_graph(driver().end_capture(captured.native()));
}

TEST_F(StreamClockCaptureTest, HandleThatIsUsedAgainGetsAClockOfItsOwn) {
  // A created stream may or may not get the handle of a destroyed one: try until it does.
  const NativeStream native = driver().create_stream(0, 0);
  const Stream first = Stream::external(native.handle, Device::cuda(0));
  StreamClock& old = StreamClock::of(first);
  const std::uint64_t mark = old.next_mark();
  driver().destroy_stream(native);
  const auto again = gantry::testing::stream_with_handle_of(native);
  if (!again) GTEST_SKIP() << "no handle was used again";

  EXPECT_FALSE(old.is_retired());
  const Stream second = Stream::external(again->handle, Device::cuda(0));
  StreamClock& fresh = StreamClock::of(second);
  EXPECT_NE(second.id(), first.id());
  EXPECT_NE(&fresh, &old);
  EXPECT_TRUE(old.is_retired());
  EXPECT_FALSE(fresh.is_retired());
  EXPECT_EQ(Stream::external(again->handle, Device::cuda(0)).id(), second.id());

  EXPECT_FALSE(fresh.is_after(old, mark));
  EXPECT_FALSE(old.is_after(old, mark)) << "its handle is another stream's";
  const testing::FaultDriver calls;
  EXPECT_FALSE(old.poll());
  static_cast<void>(first.record());
  first.synchronize();
  EXPECT_LT(old.completed(), mark) << "that was the other stream";
  EXPECT_EQ(old.ticket(), old.next_mark());
  EXPECT_EQ(calls.calls("record_event"), 1u) << "of first.record()";
  EXPECT_TRUE(old.order_before(fresh));
  EXPECT_EQ(calls.calls("synchronize_device"), 1u);
  EXPECT_GE(old.completed(), mark);
  EXPECT_TRUE(fresh.is_after(old, mark));
  driver().destroy_stream(*again);
}

TEST_F(StreamClockCaptureTest, HandleThatBecomesAPooledStreamsRetiresItsClock) {
  const int device = device_count() - 1;
  const NativeStream native = driver().create_stream(device, 0);
  const Stream foreign = Stream::external(native.handle, Device::cuda(device));
  StreamClock& old = StreamClock::of(foreign);
  driver().destroy_stream(native);
  std::optional<Stream> again;
  for (int i = 0; i < 64 && !again; ++i) {
    const auto priority = i < 32 ? StreamPriority::normal : StreamPriority::high;
    const Stream pooled = Stream::from_pool(Device::cuda(device), priority);
    if (pooled.native() == native) again = pooled;
  }
  if (!again) GTEST_SKIP() << "the handle was not used again";
  EXPECT_TRUE(old.is_retired());
  EXPECT_FALSE(StreamClock::of(*again).is_retired());
  const testing::FaultDriver calls;
  EXPECT_EQ(old.ticket(), old.next_mark());
  EXPECT_EQ(calls.calls("record_event"), 0u) << "that would mark the pooled stream";
}

TEST_F(StreamClockCaptureTest, TicketsOfExternalStreamsOutliveTheStream) {
  const NativeStream native = driver().create_stream(0, 0);
  const Stream stream = Stream::external(native.handle, Device::cuda(0));
  StreamClock& clock = StreamClock::of(stream);
  StreamClock& waiter = StreamClock::of(Stream::from_pool());
  testing::StreamHold hold(stream);
  const std::uint64_t ticket = clock.ticket();
  const std::uint64_t second = clock.ticket();
  EXPECT_GT(second, ticket);
  driver().destroy_stream(native);

  testing::FaultDriver calls;
  EXPECT_FALSE(clock.poll());
  EXPECT_LT(clock.completed(), ticket);
  EXPECT_TRUE(clock.order_before(waiter, ticket));
  EXPECT_TRUE(waiter.is_after(clock, ticket));
  EXPECT_FALSE(waiter.is_after(clock, second));
  hold.release();
  while (clock.completed() < second) clock.poll();
  EXPECT_EQ(calls.calls("record_event"), 0u) << "the stream is gone";
  EXPECT_EQ(calls.calls("is_capturing"), 1u) << "of the waiter";

  const std::uint64_t uncovered = clock.next_mark();
  clock.wait_for(uncovered);
  EXPECT_EQ(calls.calls("synchronize_device"), 1u);
  EXPECT_GE(clock.completed(), uncovered);
}

TEST_F(StreamClockCaptureTest, TicketNeverThrows) {
  const NativeStream native = driver().create_stream(0, 0);
  const Stream stream = Stream::external(native.handle, Device::cuda(0));
  StreamClock& clock = StreamClock::of(stream);
  testing::FaultDriver faults;
  for (const char* call : {"is_capturing", "record_event"}) {
    faults.fail_on(call, 1);
    const std::uint64_t ticket = clock.ticket();
    EXPECT_LT(clock.completed(), ticket) << call;
    clock.wait_for(ticket);
    EXPECT_GE(clock.completed(), ticket) << call;
  }
  driver().destroy_stream(native);
}

}  // namespace
}  // namespace gantry
