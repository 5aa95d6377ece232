// What a kernel wrote to the fault record comes out as IndexError at the next synchronizing call.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/idle_stream.hpp"
#include "device/sim/streams/sim_launch.hpp"
#include "tests/device/driver/driver_fixture.hpp"

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

// A caller that must not see the error does not take the stream's memory for unused either.
TEST_F(DriverFaultTest, AStreamThatFailedIsNotIdle) {
  GANTRY_REQUIRE_SIM();
  const TestStream failed(0);
  const TestStream other(0);
  const TestEvent event(0);
  sim::launch(failed, [] { throw std::runtime_error("a task failed"); });
  driver().record_event(event, failed);
  driver().wait_event(other, event);
  driver().synchronize_stream(other);
  EXPECT_FALSE(is_idle(failed));
  EXPECT_THROW(driver().synchronize_stream(failed), std::runtime_error);
  EXPECT_TRUE(is_idle(failed));
}

TEST_F(DriverFaultTest, SuccessfulQueryRaisesIt) {
  const TestStream stream(0);
  raise(0);
  EXPECT_EQ(index_error_of([&] { (void)driver().query_stream(stream); }), kText);
}

// Two threads look at a stream while a third reports one fault after the other, as kernels do.
TEST_F(DriverFaultTest, OneOfSeveralThreadsRaisesEachFault) {
  constexpr std::int64_t kFaults = 20'000;
  const TestStream stream(0);
  FaultRecord* record = driver().fault_record(0);
  std::atomic<bool> stop{false};
  std::array<std::vector<std::string>, 2> seen;
  std::vector<std::thread> threads;
  for (auto& mine : seen) {
    threads.emplace_back([&] {
      for (bool last = false; !last;) {
        last = stop;
        const std::string text = index_error_of([&] { (void)driver().query_stream(stream); });
        if (text == "no error") {
          std::this_thread::yield();
        } else {
          mine.push_back(text);
        }
      }
    });
  }
  const std::atomic_ref raised(record->raised);
  for (std::int64_t i = 0; i < kFaults; ++i) {
    std::uint32_t none = FaultRecord::kNone;
    while (!raised.compare_exchange_weak(none, FaultRecord::kWriting)) {
      none = FaultRecord::kNone;
      std::this_thread::yield();
    }
    record->dim = 0;
    record->index = i;
    record->size = i;
    raised.store(FaultRecord::kRaised, std::memory_order_release);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> expected;
  for (std::int64_t i = 0; i < kFaults; ++i) {
    const std::string number = std::to_string(i);
    expected.insert("cuda:0: index " + number + " is out of bounds for dimension 0 with size " +
                    number);
  }
  EXPECT_EQ(seen[0].size() + seen[1].size(), expected.size());
  seen[0].insert(seen[0].end(), seen[1].begin(), seen[1].end());
  EXPECT_TRUE(std::set<std::string>(seen[0].begin(), seen[0].end()) == expected);
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
