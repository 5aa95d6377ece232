// What a kernel wrote to the fault record comes out as IndexError at the next synchronizing call.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/device/driver_fixture.hpp"

namespace gantry {
namespace {

using testing::TestEvent;
using testing::TestStream;

class DriverFaultTest : public testing::DriverTest {
 protected:
  /// What a kernel does that meets an index out of range.
  static void raise(int device) {
    FaultRecord* record = driver().fault_record(device);
    record->dim = 0;
    record->index = 5;
    record->size = 3;
    std::atomic_ref(record->raised).store(1, std::memory_order_release);
  }

  template <class Call>
  static std::string index_error_of(Call call) {
    try {
      call();
    } catch (const IndexError& error) {
      return std::string(error.device()) + ": " + error.what();
    }
    return "no error";
  }

  static constexpr const char* kText =
      "cuda:0: index 5 is out of bounds for dimension 0 with size 3";
};

TEST_F(DriverFaultTest, TextNamesTheOperationAndTheDevice) {
  raise(0);
  driver().fault_record(0)->op = "gather";
  EXPECT_EQ(index_error_of([] { driver().synchronize_device(0); }),
            "cuda:0: gather on cuda:0: index 5 is out of bounds for dimension 0 with size 3");
  driver().fault_record(0)->op = nullptr;
}

TEST_F(DriverFaultTest, RecordStaysInPlace) {
  EXPECT_EQ(driver().fault_record(0), driver().fault_record(0));
  EXPECT_EQ(driver().fault_record(0)->raised, 0u);
}

TEST_F(DriverFaultTest, StreamSynchronizationRaisesItOnce) {
  const TestStream stream(0);
  raise(0);
  EXPECT_EQ(index_error_of([&] { driver().synchronize_stream(stream); }), kText);
  EXPECT_EQ(index_error_of([&] { driver().synchronize_stream(stream); }), "no error");
}

TEST_F(DriverFaultTest, DeviceSynchronizationRaisesIt) {
  raise(0);
  EXPECT_EQ(index_error_of([] { driver().synchronize_device(0); }), kText);
  EXPECT_EQ(index_error_of([] { driver().synchronize_device(0); }), "no error");
}

TEST_F(DriverFaultTest, SuccessfulQueryRaisesIt) {
  const TestStream stream(0);
  raise(0);
  EXPECT_EQ(index_error_of([&] { (void)driver().query_stream(stream); }), kText);
}

TEST_F(DriverFaultTest, OtherDevicesDoNotRaiseIt) {
  GANTRY_REQUIRE_DEVICES(2);
  const TestStream other(1);
  raise(0);
  EXPECT_EQ(index_error_of([&] { driver().synchronize_stream(other); }), "no error");
  EXPECT_EQ(index_error_of([] { driver().synchronize_device(1); }), "no error");
  EXPECT_NE(index_error_of([] { driver().synchronize_device(0); }), "no error");
}

TEST_F(DriverFaultTest, EventSynchronizationRaisesIt) {
  const TestEvent event(0);
  raise(0);
  EXPECT_EQ(index_error_of([&] { driver().synchronize_event(event); }), kText);
}

TEST_F(DriverFaultTest, SuccessfulEventQueryRaisesIt) {
  const TestStream stream(0);
  const TestEvent event(0);
  driver().record_event(event, stream);
  while (!driver().event_reached(event)) {
  }
  raise(0);
  EXPECT_EQ(index_error_of([&] { (void)driver().query_event(event); }), kText);
  EXPECT_TRUE(driver().query_event(event));
}

}  // namespace
}  // namespace gantry
