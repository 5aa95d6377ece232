#include "streams/stream_clock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <utility>

#include <gantry/core/error.hpp>

#include "device/sim/streams/sim_launch.hpp"
#include "streams/clock_registry.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A stream that no other test has ordered with anything.
class FreshStream {
 public:
  explicit FreshStream(int device = 0)
      : native_(driver().create_stream(device, 0)),
        stream_(Stream::external(native_.handle, Device::cuda(device))) {}
  ~FreshStream() { driver().destroy_stream(native_); }
  FreshStream(const FreshStream&) = delete;
  FreshStream& operator=(const FreshStream&) = delete;
  operator const Stream&() const { return stream_; }
  const Stream* operator->() const { return &stream_; }
  [[nodiscard]] StreamClock& clock() const { return StreamClock::of(stream_); }
  [[nodiscard]] NativeStream native() const { return native_; }

 private:
  NativeStream native_;
  Stream stream_;
};

class StreamClockTest : public testing::DeviceTest {
 protected:
  void TearDown() override {
    ClockRegistry::instance().verify();
    DeviceTest::TearDown();
  }
  static void poll_until(StreamClock& clock, std::uint64_t sequence) {
    while (clock.completed() < sequence) {
      clock.poll(sequence);
      std::this_thread::yield();
    }
  }
};

TEST_F(StreamClockTest, EveryStreamHasOneClock) {
  const Stream pooled = Stream::from_pool();
  const FreshStream external;
  StreamClock& clock = StreamClock::of(pooled);
  EXPECT_EQ(&clock, &StreamClock::of(pooled));
  EXPECT_EQ(&clock, StreamClock::find(0, pooled.id()));
  EXPECT_EQ(clock.id(), pooled.id());
  EXPECT_EQ(clock.device(), 0);
  EXPECT_EQ(clock.native(), pooled.native());
  EXPECT_FALSE(clock.is_external());
  EXPECT_FALSE(StreamClock::of(Stream::default_stream()).is_external());
  EXPECT_TRUE(external.clock().is_external());
  EXPECT_NE(external.clock().slot(), clock.slot());
  EXPECT_EQ(StreamClock::find(0, 1'000'000'000), nullptr);
}

TEST_F(StreamClockTest, StreamIsAfterItselfAndAfterNobodyElse) {
  const FreshStream a;
  const FreshStream b;
  const testing::StreamHold hold(a);
  const std::uint64_t sequence = a.clock().next_sequence();
  EXPECT_TRUE(a.clock().happens_after(a.clock(), sequence));
  EXPECT_FALSE(b.clock().happens_after(a.clock(), sequence));
}

TEST_F(StreamClockTest, WaitOrdersWhatWasSubmittedBeforeTheRecordOnly) {
  const FreshStream a;
  const FreshStream b;
  const testing::StreamHold hold(a);
  const std::uint64_t before = a.clock().next_sequence();
  const Event event = a->record();
  const std::uint64_t behind = a.clock().next_sequence();
  EXPECT_GT(behind, before);
  EXPECT_FALSE(b.clock().happens_after(a.clock(), before)) << "a record alone orders nobody";
  b->wait(event);
  EXPECT_TRUE(b.clock().happens_after(a.clock(), before));
  EXPECT_FALSE(b.clock().happens_after(a.clock(), behind));
  EXPECT_FALSE(a.clock().happens_after(b.clock(), b.clock().next_sequence()))
      << "order has a direction";
}

TEST_F(StreamClockTest, StreamWaitOrders) {
  const FreshStream a;
  const FreshStream b;
  const testing::StreamHold hold(a);
  const std::uint64_t sequence = a.clock().next_sequence();
  b->wait(a);
  EXPECT_TRUE(b.clock().happens_after(a.clock(), sequence));
  EXPECT_FALSE(b.clock().happens_after(a.clock(), a.clock().next_sequence()));
}

TEST_F(StreamClockTest, OrderIsTransitiveInTheOrderOfTheWaits) {
  const FreshStream a;
  const FreshStream b;
  const FreshStream c;
  const FreshStream d;
  const testing::StreamHold hold(a);
  const std::uint64_t sequence = a.clock().next_sequence();
  const Event early = b->record();  // before b waits for a
  b->wait(a);
  c->wait(b);
  d->wait(early);
  EXPECT_TRUE(c.clock().happens_after(a.clock(), sequence));
  EXPECT_FALSE(d.clock().happens_after(a.clock(), sequence));
}

TEST_F(StreamClockTest, OrderCrossesDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const FreshStream a(0);
  const FreshStream b(1);
  const FreshStream c(0);
  const testing::StreamHold hold(a);
  const std::uint64_t sequence = a.clock().next_sequence();
  b->wait(a);
  c->wait(b);
  EXPECT_TRUE(c.clock().happens_after(a.clock(), sequence));
}

TEST_F(StreamClockTest, OldEventOrdersAfterItsOwnRecordOnly) {
  const FreshStream a;
  const FreshStream b;
  const testing::StreamHold hold(a);
  const std::uint64_t first = a.clock().next_sequence();
  const Event old = a->record();
  const std::uint64_t second = a.clock().next_sequence();
  const Event newer = a->record();
  b->wait(old);
  EXPECT_TRUE(b.clock().happens_after(a.clock(), first));
  EXPECT_FALSE(b.clock().happens_after(a.clock(), second));
}

TEST_F(StreamClockTest, RecordingAgainDoesNotExtendAnEarlierWait) {
  const FreshStream a;
  const FreshStream b;
  const FreshStream c;
  const testing::StreamHold hold(a);
  Event event = a->record();
  b->wait(event);
  const std::uint64_t sequence = a.clock().next_sequence();
  event.record(a);
  EXPECT_FALSE(b.clock().happens_after(a.clock(), sequence));
  Event moved(std::move(event));
  Event assigned;
  assigned = std::move(moved);
  c->wait(assigned);
  EXPECT_TRUE(c.clock().happens_after(a.clock(), sequence)) << "moves carry the sequence";
}

TEST_F(StreamClockTest, FailedRecordKeepsTheOldMark) {
  const FreshStream a;
  const FreshStream b;
  const testing::StreamHold hold(a);
  const std::uint64_t first = a.clock().next_sequence();
  Event event = a->record();
  const std::uint64_t second = a.clock().next_sequence();
  testing::FaultDriver faults;
  faults.fail_on("record_event", 1);
  EXPECT_THROW(event.record(a), CudaError);
  faults.fail_on("wait_event", 1);
  EXPECT_THROW(b->wait(event), CudaError);
  EXPECT_FALSE(b.clock().happens_after(a.clock(), first)) << "the wait did not happen";
  b->wait(event);
  EXPECT_TRUE(b.clock().happens_after(a.clock(), first));
  EXPECT_FALSE(b.clock().happens_after(a.clock(), second));
}

TEST_F(StreamClockTest, InterprocessEventsOrderNobody) {
  const FreshStream a;
  const FreshStream b;
  testing::StreamHold hold(a);
  const std::uint64_t sequence = a.clock().next_sequence();
  Event event({.interprocess = true});
  event.record(a);
  b->wait(event);
  EXPECT_FALSE(b.clock().happens_after(a.clock(), sequence));
  hold.release();
  event.synchronize();
  EXPECT_LT(a.clock().completed(), sequence);
}

TEST_F(StreamClockTest, HostWaitsComplete) {
  const FreshStream a;
  const FreshStream b;
  StreamClock& clock = a.clock();
  auto expect_completed = [&](const char* how, auto&& wait) {
    const std::uint64_t sequence = clock.next_sequence();
    EXPECT_FALSE(b.clock().happens_after(clock, sequence)) << how;
    wait();
    EXPECT_GE(clock.completed(), sequence) << how;
    EXPECT_TRUE(b.clock().happens_after(clock, sequence)) << how;
    EXPECT_LT(clock.completed(), clock.next_sequence()) << how << " completed what came after it";
  };
  expect_completed("Stream::synchronize", [&] { a->synchronize(); });
  expect_completed("Stream::query", [&] { EXPECT_TRUE(a->query()); });
  expect_completed("Event::synchronize", [&] { a->record().synchronize(); });
  expect_completed("Event::query", [&] {
    const Event event = a->record();
    driver().synchronize_stream(a.native());
    EXPECT_TRUE(event.query());
  });
  expect_completed("gantry::synchronize", [&] { synchronize(Device::cuda(0)); });
}

TEST_F(StreamClockTest, CompletionIsTransitive) {
  const FreshStream a;
  const FreshStream b;
  const std::uint64_t sequence = a.clock().next_sequence();
  b->wait(a);
  b->synchronize();
  EXPECT_GE(a.clock().completed(), sequence);
}

TEST_F(StreamClockTest, UnreachedWorkIsNotCompleted) {
  const FreshStream a;
  testing::StreamHold hold(a);
  const std::uint64_t sequence = a.clock().next_sequence();
  const Event event = a->record();
  EXPECT_FALSE(event.query());
  EXPECT_FALSE(a->query());
  a.clock().poll();
  EXPECT_LT(a.clock().completed(), sequence);
  hold.release();
  event.synchronize();
  EXPECT_GE(a.clock().completed(), sequence);
}

TEST_F(StreamClockTest, PollFollowsTheStream) {
  const Stream stream = Stream::from_pool();
  stream.synchronize();
  StreamClock& clock = StreamClock::of(stream);
  testing::StreamHold hold(stream);
  const std::uint64_t sequence = clock.next_sequence();
  testing::FaultDriver calls;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(clock.poll(sequence));
  EXPECT_EQ(calls.calls("record_event"), 1u) << "one event is under way at a time";
  EXPECT_LT(clock.completed(), sequence);
  hold.release();
  poll_until(clock, sequence);
  EXPECT_EQ(calls.calls("record_event"), 1u) << "the pending event covered it";
  EXPECT_FALSE(clock.poll(sequence));
  EXPECT_EQ(calls.calls("record_event"), 1u) << "nothing was wanted";
  EXPECT_EQ(calls.calls("query_event") + calls.calls("query_stream"), 0u);
}

TEST_F(StreamClockTest, PollNeverThrows) {
  const Stream stream = Stream::from_pool();
  StreamClock& clock = StreamClock::of(stream);
  stream.synchronize();
  testing::FaultDriver faults;
  for (const char* call : {"is_capturing", "record_event", "event_reached"}) {
    faults.reset_counts();
    faults.fail_on(call, 1);
    const std::uint64_t sequence = clock.next_sequence();
    EXPECT_FALSE(clock.poll(sequence) && clock.completed() < sequence) << call;
    poll_until(clock, sequence);
  }
}

TEST_F(StreamClockTest, PollLeavesFaultsOfKernelsAlone) {
  const Stream stream = Stream::from_pool();
  stream.synchronize();
  FaultRecord* const record = driver().fault_record(0);
  record->dim = 1;
  record->index = 9;
  record->size = 3;
  std::atomic_ref(record->raised).store(1, std::memory_order_release);
  StreamClock& clock = StreamClock::of(stream);
  poll_until(clock, clock.next_sequence());
  EXPECT_THROW(stream.synchronize(), IndexError);
}

TEST_F(StreamClockTest, PollDoesNotReportAFailedStream) {
  GANTRY_REQUIRE_SIM();
  const Stream stream = Stream::from_pool();
  StreamClock& clock = StreamClock::of(stream);
  sim::launch(stream.native(), [] { throw InvalidArgument("on purpose"); });
  const std::uint64_t sequence = clock.next_sequence();
  EXPECT_FALSE(clock.poll());
  // Until the failure is there; the driver alone is asked, so that no clock learns of it.
  const FreshStream other;
  const NativeEvent event = driver().create_event(0, {});
  driver().record_event(event, stream.native());
  driver().wait_event(other.native(), event);
  driver().synchronize_stream(other.native());
  driver().destroy_event(event);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(clock.poll());
  EXPECT_LT(clock.completed(), sequence);
  EXPECT_THAT([&] { clock.wait_for(sequence); }, ThrowsMessage<InvalidArgument>("on purpose"));
  clock.wait_for(sequence);
  EXPECT_GE(clock.completed(), sequence);
}

TEST_F(StreamClockTest, WaitForBlocksUntilTheMark) {
  const Stream stream = Stream::from_pool();
  StreamClock& clock = StreamClock::of(stream);
  std::atomic<bool> done = false;
  testing::StreamHold hold(stream);
  driver().launch_host_function(
      stream.native(), [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); },
      &done);
  const std::uint64_t sequence = clock.next_sequence();
  std::thread releaser([&] { hold.release(); });
  clock.wait_for(sequence);
  EXPECT_TRUE(done.load());
  EXPECT_GE(clock.completed(), sequence);
  releaser.join();
  const testing::FaultDriver calls;
  clock.wait_for(sequence);
  EXPECT_EQ(calls.total_calls(), 0u);
}

TEST_F(StreamClockTest, MakeWaitIsOneWaitAndNoneIfOrdered) {
  const Stream a = Stream::from_pool();
  const FreshStream b;
  StreamClock& clock = StreamClock::of(a);
  testing::StreamHold hold(a);
  const std::uint64_t sequence = clock.next_sequence();
  testing::FaultDriver calls;
  EXPECT_TRUE(clock.make_wait(b.clock()));
  EXPECT_EQ(calls.calls("wait_event"), 1u);
  EXPECT_TRUE(b.clock().happens_after(clock, sequence));
  EXPECT_FALSE(b->query());
  EXPECT_TRUE(clock.make_wait(b.clock(), sequence));
  EXPECT_EQ(calls.calls("wait_event"), 1u);
  hold.release();
  b->synchronize();
  EXPECT_GE(clock.completed(), sequence);
}

TEST_F(StreamClockTest, MakeWaitRecordsAnewForWorkBehindTheEventUnderWay) {
  const Stream a = Stream::from_pool();
  const FreshStream b;
  StreamClock& clock = StreamClock::of(a);
  const testing::StreamHold hold(a);
  const std::uint64_t first = clock.next_sequence();
  EXPECT_FALSE(clock.poll(first));
  const std::uint64_t second = clock.next_sequence();
  testing::FaultDriver calls;
  EXPECT_TRUE(clock.make_wait(b.clock(), first));
  EXPECT_EQ(calls.calls("record_event"), 0u);
  EXPECT_FALSE(b.clock().happens_after(clock, second));
  EXPECT_TRUE(clock.make_wait(b.clock(), second));
  EXPECT_EQ(calls.calls("record_event"), 1u);
  EXPECT_TRUE(b.clock().happens_after(clock, second));
}

/// Looks at the clocks from inside the driver's calls.
class ClockWatcher : public testing::FaultDriver {
 public:
  ClockWatcher(const StreamClock& recorded, const StreamClock& waiting, std::uint64_t sequence)
      : recorded_(recorded), waiting_(waiting), sequence_(sequence) {}
  void record_event(NativeEvent event, NativeStream stream) override {
    EXPECT_GT(recorded_.next_sequence(), sequence_) << "numbered too late";
    ++seen;
    FaultDriver::record_event(event, stream);
  }
  void wait_event(NativeStream stream, NativeEvent event) override {
    EXPECT_FALSE(waiting_.happens_after(recorded_, sequence_)) << "joined too early";
    ++seen;
    FaultDriver::wait_event(stream, event);
  }
  int seen = 0;

 private:
  const StreamClock& recorded_;
  const StreamClock& waiting_;
  std::uint64_t sequence_;
};

TEST_F(StreamClockTest, MarksAreNumberedBeforeTheRecordAndJoinedAfterTheWait) {
  const Stream a = Stream::from_pool();
  StreamClock& clock = StreamClock::of(a);
  const testing::StreamHold hold(a);
  for (int way = 0; way < 3; ++way) {
    const FreshStream b;
    ClockWatcher watcher(clock, b.clock(), clock.next_sequence());
    switch (way) {
      case 0:
        b->wait(a);
        break;
      case 1:
        b->wait(a.record());
        break;
      default:
        clock.make_wait(b.clock());
    }
    EXPECT_EQ(watcher.seen, 2) << way;
  }
}

TEST_F(StreamClockTest, DeviceSynchronizationCompletesWhatWasHandedOutBefore) {
  GANTRY_REQUIRE_DEVICES(2);
  const FreshStream here(0);
  const FreshStream there(1);
  const std::uint64_t before = here.clock().next_sequence();
  const std::uint64_t other = there.clock().next_sequence();
  const DeviceTimestamp timestamp(0);
  const std::uint64_t during = here.clock().next_sequence();
  driver().synchronize_device(0);
  timestamp.complete();
  EXPECT_GE(here.clock().completed(), before);
  EXPECT_LT(here.clock().completed(), during);
  EXPECT_LT(there.clock().completed(), other);
  testing::FaultDriver faults;
  faults.fail_on("synchronize_device", 1);
  EXPECT_THROW(synchronize(Device::cuda(0)), CudaError);
  EXPECT_LT(here.clock().completed(), during);
}

}  // namespace
}  // namespace gantry
