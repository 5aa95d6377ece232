#include <gantry/streams/event.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <utility>

#include <gantry/core/error.hpp>
#include <gantry/device/guard.hpp>
#include <gantry/streams/stream.hpp>

#include "streams/interprocess_events.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/pipe_process.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using ::testing::ThrowsMessage;

class EventTest : public testing::DeviceTest {};

TEST_F(EventTest, IsMadeByItsFirstRecord) {
  Event event;
  EXPECT_FALSE(event.is_created());
  EXPECT_EQ(event.native_handle(), nullptr);
  EXPECT_TRUE(event.query());
  event.synchronize();
  event.wait();
  EXPECT_THAT([&] { static_cast<void>(event.device()); },
              ThrowsMessage<InvalidArgument>(
                  "Event::device: expected a recorded event, but got one without device"));
  event.record();
  EXPECT_TRUE(event.is_created());
  EXPECT_EQ(event.device(), Device::cuda(0));
  event.synchronize();
}

TEST_F(EventTest, IsReachedWhenTheWorkBeforeItIsDone) {
  const Stream stream = Stream::from_pool();
  testing::StreamHold hold(stream);
  const Event event = stream.record();
  EXPECT_FALSE(event.query());
  hold.release();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(EventTest, WaitBindsToTheRecordMadeBeforeIt) {
  const Stream first = Stream::from_pool();
  const Stream second = Stream::from_pool();
  Event event;
  event.record(first);
  event.wait(second);
  const testing::StreamHold hold(first);
  event.record(first);
  second.synchronize();  // would never return if it waited for the second record
  EXPECT_FALSE(event.query());
}

TEST_F(EventTest, QueryAsksForTheLastRecord) {
  const Stream first = Stream::from_pool();
  const Stream second = Stream::from_pool();
  Event event;
  const testing::StreamHold hold(first);
  event.record(first);
  EXPECT_FALSE(event.query());
  event.record(second);
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(EventTest, WaitOutlivesTheEvent) {
  const Stream first = Stream::from_pool();
  const Stream second = Stream::from_pool();
  testing::StreamHold hold(first);
  {
    const Event event = first.record();
    second.wait(event);
  }
  // The pooled event behind it is used again at once.
  const Event again = Stream::from_pool().record();
  again.synchronize();
  EXPECT_FALSE(second.query());
  hold.release();
  second.synchronize();
}

TEST_F(EventTest, NewEventDoesNotSeeWhatItsPooledEventWasUsedFor) {
  const Stream stream = Stream::from_pool();
  const testing::StreamHold hold(stream);
  { const Event event = stream.record(); }
  const Event fresh;
  EXPECT_TRUE(fresh.query());
}

TEST_F(EventTest, RecordCreatesNoEventOnceThePoolHasOne) {
  const Stream stream = Stream::from_pool();
  { const Event event = stream.record(); }
  const testing::FaultDriver calls;
  for (int i = 0; i < 100; ++i) static_cast<void>(stream.record());
  EXPECT_EQ(calls.calls("create_event"), 0u);
  EXPECT_EQ(calls.calls("destroy_event"), 0u);
  EXPECT_EQ(calls.calls("record_event"), 100u);
}

TEST_F(EventTest, RecordsTheCurrentStreamOfItsDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  Event event;
  event.record();
  const DeviceGuard guard(Device::cuda(1));
  event.record();
  EXPECT_EQ(event.device(), Device::cuda(0));
  event.synchronize();
}

TEST_F(EventTest, RefusesStreamsOfAnotherDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  Event event;
  event.record(Stream::current(Device::cuda(0)));
  EXPECT_THAT([&] { event.record(Stream::current(Device::cuda(1))); },
              ThrowsMessage<InvalidArgument>(
                  "Event device cuda:0 does not match recording stream's device cuda:1."));
  event.wait(Stream::current(Device::cuda(1)));
  synchronize(Device::cuda(1));
}

TEST_F(EventTest, MovesItsEvent) {
  Event event = Stream::current().record();
  void* handle = event.native_handle();
  Event moved(std::move(event));
  EXPECT_EQ(moved.native_handle(), handle);
  EXPECT_FALSE(event.is_created());
  Event assigned;
  assigned.record();
  assigned = std::move(moved);
  EXPECT_EQ(assigned.native_handle(), handle);
  EXPECT_EQ(assigned.device(), Device::cuda(0));
  event.record();  // usable again
  event.synchronize();
}

TEST_F(EventTest, MeasuresTime) {
  const Stream stream = Stream::from_pool();
  Event begin({.timing = true});
  Event end({.timing = true});
  begin.record(stream);
  end.record(stream);
  end.synchronize();
  EXPECT_GE(begin.elapsed_ms(end), 0.0f);
  EXPECT_LE(end.elapsed_ms(begin), 0.0f);
}

TEST_F(EventTest, MeasuresTimeOnlyOfTimedAndRecordedEvents) {
  Event timed({.timing = true});
  Event untimed;
  timed.record();
  untimed.record();
  EXPECT_THAT([&] { static_cast<void>(timed.elapsed_ms(untimed)); },
              ThrowsMessage<InvalidArgument>("Both events must be created with timing = true."));
  const Event unrecorded({.timing = true});
  EXPECT_THAT([&] { static_cast<void>(timed.elapsed_ms(unrecorded)); },
              ThrowsMessage<InvalidArgument>(
                  "Both events must be recorded before calculating elapsed time."));
  const Stream stream = Stream::from_pool();
  const testing::StreamHold hold(stream);
  Event pending({.timing = true});
  pending.record(stream);
  EXPECT_THROW(static_cast<void>(timed.elapsed_ms(pending)), CudaError);
}

TEST_F(EventTest, KeepsItsOptions) {
  const Event event({.timing = true, .blocking = true});
  EXPECT_TRUE(event.options().timing);
  EXPECT_TRUE(event.options().blocking);
  EXPECT_FALSE(event.options().interprocess);
}

TEST_F(EventTest, FailedRecordLeavesItUsable) {
  const Stream stream = Stream::from_pool();
  testing::FaultDriver faults;
  Event event({.timing = true});
  faults.fail_on("create_event", 1);
  EXPECT_THROW(event.record(stream), CudaError);
  EXPECT_FALSE(event.is_created());
  faults.fail_on("record_event", 1);
  EXPECT_THROW(event.record(stream), CudaError);
  EXPECT_TRUE(event.query());
  event.record(stream);
  event.synchronize();
}

TEST_F(EventTest, InterprocessExcludesTiming) {
  EXPECT_THAT([] { const Event event({.timing = true, .interprocess = true}); },
              ThrowsMessage<InvalidArgument>("Event: expected an interprocess event without "
                                             "timing, but got timing = true"));
}

TEST_F(EventTest, ExportsOnlyInterprocessEvents) {
  Event event;
  event.record();
  EXPECT_THAT(
      [&] { static_cast<void>(event.ipc_handle()); },
      ThrowsMessage<InvalidArgument>("Event::ipc_handle: expected an event made with interprocess "
                                     "= true, but got one without"));
}

TEST_F(EventTest, StaysForOtherProcessesOnceItIsExported) {
  testing::FaultDriver driver;
  {
    Event plain({.interprocess = true});
    plain.record();
    Event exported({.interprocess = true});
    exported.record();
    exported.synchronize();  // only what is reached ever goes
    (void)exported.ipc_handle();
    const Event moved(std::move(exported));
  }
  EXPECT_EQ(driver.calls("destroy_event"), 1U);
  for (std::size_t i = 0; i < InterprocessEvents::kRetained; ++i) {
    Event event({.interprocess = true});
    (void)event.ipc_handle();
  }
  EXPECT_EQ(driver.calls("destroy_event"), 2U) << "the oldest goes when there are too many";
  driver.fail_on("create_event", 1, testing::kOutOfMemory, 2);
  Event last({.interprocess = true});
  last.record();
  EXPECT_EQ(driver.calls("destroy_event"), 4U) << "or when the driver makes no more";
}

TEST_F(EventTest, GivesUpAnExportedEventThatIsReachedBehindOneThatIsNot) {
  const Stream busy = Stream::from_pool();
  const testing::StreamHold hold(busy);
  testing::FaultDriver driver;
  // Whatever earlier tests left.
  while (InterprocessEvents::destroy_oldest()) {
  }
  for (const Stream& stream : {busy, Stream::default_stream()}) {
    Event event({.interprocess = true});
    event.record(stream);
    (void)event.ipc_handle();
  }
  Stream::default_stream().synchronize();
  driver.fail_on("create_event", 1, testing::kOutOfMemory, 1);
  Event event({.interprocess = true});
  EXPECT_NO_THROW(event.record());
}

TEST_F(EventTest, FailsWhenTheDriverMakesNoMoreForOtherProcesses) {
  testing::FaultDriver driver;
  driver.fail_on("create_event", 1, testing::kOutOfMemory, 2 * InterprocessEvents::kRetained);
  Event event({.interprocess = true});
  EXPECT_THROW(event.record(), CudaError);
  driver.fail_nothing();
  event.record();
  EXPECT_TRUE(event.is_created());
}

TEST_F(EventTest, OrdersWorkOfTwoProcesses) {
  testing::PipeProcess exporter({std::string(GANTRY_TEST_PROGRAM_DIR) + "/event_exporter"});
  std::istringstream words(exporter.read_line());
  std::string word;
  ASSERT_TRUE(words >> word && word == "handle");
  IpcEventHandle handle;
  for (std::byte& byte : handle.bytes) {
    int value = -1;
    ASSERT_TRUE(words >> value);
    byte = static_cast<std::byte>(value);
  }
  const Event event = Event::from_ipc(handle, Device::cuda(0));
  EXPECT_TRUE(event.is_created());
  const Stream stream = Stream::from_pool();
  stream.wait(event);
  EXPECT_FALSE(event.query());
  EXPECT_FALSE(stream.query());
  const Stream last = Stream::from_pool(Device::cuda(device_count() - 1));
  last.wait(event);
  EXPECT_FALSE(last.query());
  exporter.write_line("release");
  stream.synchronize();
  last.synchronize();
  EXPECT_TRUE(event.query());
  EXPECT_EQ(exporter.read_line(), "released");
  exporter.write_line("quit");
  EXPECT_EQ(exporter.wait(), 0);
}

}  // namespace
}  // namespace gantry
