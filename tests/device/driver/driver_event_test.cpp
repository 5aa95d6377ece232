#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "device/sim/streams/sim_launch.hpp"
#include "tests/device/driver/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::cuda_error_of;
using testing::DeviceBytes;
using testing::Gate;
using ::testing::HasSubstr;
using testing::PinnedBytes;
using ::testing::StartsWith;
using testing::TestEvent;
using testing::TestStream;

class DriverEventTest : public testing::DriverTest {};

constexpr int kInvalidHandle = 400;
constexpr int kNotReady = 600;

TEST_F(DriverEventTest, EventWithoutARecordIsReached) {
  const TestEvent event(0);
  const TestStream stream(0);
  EXPECT_TRUE(driver().query_event(event));
  driver().synchronize_event(event);
  driver().wait_event(stream, event);
  driver().synchronize_stream(stream);
}

TEST_F(DriverEventTest, QueryIsFalseUntilTheRecordIsReached) {
  const TestStream stream(0);
  const TestEvent event(0);
  Gate gate(stream);
  driver().record_event(event, stream);
  EXPECT_FALSE(driver().query_event(event));
  gate.open();
  driver().synchronize_event(event);
  EXPECT_TRUE(driver().query_event(event));
}

TEST_F(DriverEventTest, ReachedIsFalseUntilTheRecordIsReached) {
  const TestStream stream(0);
  const TestEvent event(0);
  EXPECT_TRUE(driver().event_reached(event));
  Gate gate(stream);
  driver().record_event(event, stream);
  EXPECT_FALSE(driver().event_reached(event));
  gate.open();
  driver().synchronize_stream(stream);
  EXPECT_TRUE(driver().event_reached(event));
}

TEST_F(DriverEventTest, ReachedLeavesFaultsAlone) {
  const TestStream stream(0);
  const TestEvent event(0);
  FaultRecord* const record = driver().fault_record(0);
  record->dim = 0;
  record->index = 7;
  record->size = 2;
  std::atomic_ref(record->raised).store(1, std::memory_order_release);
  driver().record_event(event, stream);
  while (!driver().event_reached(event)) std::this_thread::yield();
  EXPECT_THROW(driver().synchronize_stream(stream), IndexError);
}

TEST_F(DriverEventTest, ReachedLeavesErrorsOfTheStreamAlone) {
  GANTRY_REQUIRE_SIM();
  const TestStream stream(0);
  const TestEvent before(0);
  const TestEvent behind(0);
  driver().record_event(before, stream);
  sim::launch(stream, [] { throw InvalidArgument("on purpose"); });
  driver().record_event(behind, stream);
  while (!driver().event_reached(before)) std::this_thread::yield();
  EXPECT_THROW(driver().synchronize_event(behind), InvalidArgument);
  EXPECT_TRUE(driver().event_reached(behind)) << "the error was reported";

  sim::launch(stream, [] { throw InvalidArgument("on purpose"); });
  std::atomic<bool> arrived = false;
  const TestEvent later(0);
  const TestStream other(0);
  driver().record_event(later, stream);
  driver().wait_event(other, later);
  driver().launch_host_function(
      other, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, &arrived);
  driver().synchronize_stream(other);
  EXPECT_TRUE(arrived.load());
  EXPECT_FALSE(driver().event_reached(later)) << "work before it failed";
  EXPECT_THROW(driver().synchronize_stream(stream), InvalidArgument);
}

TEST_F(DriverEventTest, ReachedIsAllowedWhileThisThreadCaptures) {
  const TestStream captured(0);
  const TestStream stream(0);
  const TestEvent outside(0);
  driver().record_event(outside, stream);
  driver().synchronize_stream(stream);
  driver().begin_capture(captured, CaptureMode::global);
  EXPECT_TRUE(driver().event_reached(outside));
  const NativeGraph graph = driver().end_capture(captured);  // throws if the capture was spoilt
  driver().destroy_graph(graph);
}

TEST_F(DriverEventTest, AQuestionAboutAnEventOfACaptureSpoilsTheCapture) {
  const TestStream captured(0);
  const TestEvent inside(0);
  for (const CaptureMode mode :
       {CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed}) {
    driver().begin_capture(captured, mode);
    driver().record_event(inside, captured);
    EXPECT_FALSE(driver().event_reached(inside));
    EXPECT_THROW((void)driver().end_capture(captured), CudaError);
    EXPECT_FALSE(driver().event_reached(inside)) << "after the capture";
  }
}

TEST_F(DriverEventTest, RecordDoesNotWaitForLaterWork) {
  const TestStream stream(0);
  const TestEvent event(0);
  driver().record_event(event, stream);
  const Gate gate(stream);
  driver().synchronize_event(event);
  EXPECT_TRUE(driver().query_event(event));
  EXPECT_FALSE(driver().query_stream(stream));
}

TEST_F(DriverEventTest, WaitOrdersTwoStreams) {
  const TestStream producer(0);
  const TestStream consumer(0);
  const TestEvent ready(0);
  const DeviceBytes device(0, 1 << 20);
  const PinnedBytes result(1 << 20);
  driver().fill(device.data(), 0, 1 << 20, producer);
  Gate gate(producer);
  driver().fill(device.data(), 0x77, 1 << 20, producer);
  driver().record_event(ready, producer);
  driver().wait_event(consumer, ready);
  driver().copy(result.data(), device.data(), 1 << 20, consumer);
  EXPECT_FALSE(driver().query_stream(consumer));
  gate.open();
  driver().synchronize_stream(consumer);
  EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(1 << 20, 0x77));
}

TEST_F(DriverEventTest, WaitOrdersTwoDevices) {
  GANTRY_REQUIRE_DEVICES(2);
  const TestStream producer(0);
  const TestStream consumer(1);
  const TestEvent ready(0);
  const DeviceBytes device(1, 64);
  const PinnedBytes result(64);
  Gate gate(producer);
  driver().record_event(ready, producer);
  driver().wait_event(consumer, ready);
  driver().fill(device.data(), 3, 64, consumer);
  driver().copy(result.data(), device.data(), 64, consumer);
  EXPECT_FALSE(driver().query_stream(consumer));
  gate.open();
  driver().synchronize_stream(consumer);
  EXPECT_EQ(result.data()[63], 3);
}

TEST_F(DriverEventTest, InterprocessEventsOrderTwoDevicesToo) {
  GANTRY_REQUIRE_DEVICES(2);
  const TestStream held(0);
  const TestStream idle(0);
  const TestStream waits_long(1);
  const TestStream waits_briefly(1);
  constexpr NativeEventFlags kFlags = {.timing = false, .blocking = false, .interprocess = true};
  const TestEvent late(0, kFlags);
  const TestEvent early(0, kFlags);
  Gate gate(held);
  driver().record_event(late, held);
  driver().wait_event(waits_long, late);
  driver().record_event(early, idle);
  driver().wait_event(waits_briefly, early);
  driver().synchronize_stream(waits_briefly);
  EXPECT_FALSE(driver().query_stream(waits_long));
  gate.open();
  driver().synchronize_stream(waits_long);
}

TEST_F(DriverEventTest, WaitBindsToTheRecordOfThatMoment) {
  const TestStream held(0);
  const TestStream waiting(0);
  const TestStream idle(0);
  const TestEvent event(0);
  Gate gate(held);
  driver().record_event(event, held);
  driver().wait_event(waiting, event);
  driver().record_event(event, idle);  // does not release who waits for the first record
  driver().synchronize_event(event);
  EXPECT_TRUE(driver().query_event(event));
  EXPECT_FALSE(driver().query_stream(waiting));
  gate.open();
  driver().synchronize_stream(waiting);
}

TEST_F(DriverEventTest, WaitIgnoresLaterRecords) {
  const TestStream held(0);
  const TestStream waiting(0);
  const TestEvent event(0);
  driver().record_event(event, waiting);
  driver().wait_event(waiting, event);
  const Gate gate(held);
  driver().record_event(event, held);
  driver().synchronize_stream(waiting);
  EXPECT_TRUE(driver().query_stream(waiting));
  EXPECT_FALSE(driver().query_event(event));
}

TEST_F(DriverEventTest, DestroyedEventStillHoldsWhoWaits) {
  const TestStream held(0);
  const TestStream waiting(0);
  const NativeEvent event = driver().create_event(0, {});
  Gate gate(held);
  driver().record_event(event, held);
  driver().wait_event(waiting, event);
  driver().destroy_event(event);
  EXPECT_FALSE(driver().query_stream(waiting));
  gate.open();
  driver().synchronize_stream(waiting);
}

TEST_F(DriverEventTest, ElapsedTimeIsMeasuredBetweenRecords) {
  const TestStream stream(0);
  const TestEvent begin(0, {.timing = true});
  const TestEvent end(0, {.timing = true});
  driver().record_event(begin, stream);
  driver().record_event(end, stream);
  driver().synchronize_event(end);
  const float forth = driver().elapsed_ms(begin, end);
  EXPECT_GE(forth, 0.0F);
  EXPECT_LE(driver().elapsed_ms(end, begin), 0.0F);
}

TEST_F(DriverEventTest, ElapsedTimeOfUnreachedEventIsNotReady) {
  const TestStream stream(0);
  const TestEvent begin(0, {.timing = true});
  const TestEvent end(0, {.timing = true});
  driver().record_event(begin, stream);
  const Gate gate(stream);
  driver().record_event(end, stream);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().elapsed_ms(begin, end); }), kNotReady);
}

TEST_F(DriverEventTest, ElapsedTimeNeedsTimingAndRecords) {
  const TestStream stream(0);
  const TestEvent plain(0);
  const TestEvent timed(0, {.timing = true});
  const TestEvent unrecorded(0, {.timing = true});
  driver().record_event(plain, stream);
  driver().record_event(timed, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().elapsed_ms(plain, timed); }), kInvalidHandle);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().elapsed_ms(timed, unrecorded); }), kInvalidHandle);
}

TEST_F(DriverEventTest, RecordOnAnotherDevicesStreamIsRefused) {
  GANTRY_REQUIRE_DEVICES(2);
  const TestStream stream(1);
  const TestEvent event(0);
  try {
    driver().record_event(event, stream);
    FAIL() << "no error";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), kInvalidHandle);
    EXPECT_EQ(error.name(), "cudaErrorInvalidResourceHandle");
    EXPECT_EQ(error.device(), "cuda:1");
    EXPECT_THAT(error.what(), StartsWith("Failed recording an event on "));
    EXPECT_THAT(error.what(), HasSubstr("of cuda:1: cudaErrorInvalidResourceHandle (400): "
                                        "invalid resource handle"));
  }
  EXPECT_TRUE(driver().query_event(event));
  driver().synchronize_stream(stream);
}

TEST_F(DriverEventTest, InterprocessExcludesTiming) {
  EXPECT_EQ(cuda_error_of([] {
              (void)driver().create_event(
                  0, {.timing = true, .blocking = false, .interprocess = true});
            }),
            1);
}

}  // namespace
}  // namespace gantry
