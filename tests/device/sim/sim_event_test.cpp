#include <sys/resource.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

class SimEventTest : public SimMachineTest {
 protected:
  ~SimEventTest() override { driver_.destroy_event(event_); }

  NativeStream first_ = driver_.create_stream(0, 0);
  NativeStream second_ = driver_.create_stream(0, 0);
  NativeEvent event_ = driver_.create_event(0, {});
};

TEST_F(SimEventTest, WaitBindsToTheRecordThatTheEventHolds) {
  // As in CUDA: recording again, on work that never ends here, does not touch the earlier wait.
  std::atomic<int> step{0};
  driver_.record_event(event_, first_);
  driver_.wait_event(second_, event_);
  const Gate gate(first_);
  driver_.record_event(event_, first_);
  sim::launch(second_, [&] { step = 1; });
  driver_.synchronize_stream(second_);
  EXPECT_EQ(step, 1);
  EXPECT_FALSE(driver_.query_event(event_));
}

TEST_F(SimEventTest, TheTimeIsThatOfTheRecordThatTheEventHolds) {
  const NativeEvent start = driver_.create_event(0, {.timing = true});
  const NativeEvent end = driver_.create_event(0, {.timing = true});
  Gate gate(first_);
  driver_.record_event(start, first_);
  driver_.record_event(start, second_);
  driver_.record_event(end, second_);
  driver_.synchronize_event(end);
  const float elapsed = driver_.elapsed_ms(start, end);
  EXPECT_GE(elapsed, 0);
  gate.open();
  driver_.synchronize_stream(first_);
  EXPECT_EQ(driver_.elapsed_ms(start, end), elapsed) << "a late record counted";
  for (const NativeEvent event : {start, end}) driver_.destroy_event(event);
}

TEST_F(SimEventTest, AnErrorOfLaterWorkIsNotThatOfTheEvent) {
  driver_.record_event(event_, first_);
  sim::launch(first_, [] { throw std::runtime_error("failed later"); });
  // The second stream is behind the failure, which it does not report.
  const NativeEvent behind = driver_.create_event(0, {});
  driver_.record_event(behind, first_);
  driver_.wait_event(second_, behind);
  driver_.synchronize_stream(second_);
  EXPECT_NO_THROW(driver_.synchronize_event(event_));
  EXPECT_THROW(driver_.synchronize_stream(first_), std::runtime_error);
  driver_.destroy_event(behind);
}

TEST_F(SimEventTest, WaitHoldsTheStreamUntilTheRecordIsReached) {
  int value = 0;
  int seen = -1;
  Gate gate(first_);
  sim::launch(first_, [&] { value = 42; });
  driver_.record_event(event_, first_);
  driver_.wait_event(second_, event_);
  sim::launch(second_, [&] { seen = value; });
  EXPECT_FALSE(driver_.query_stream(second_));
  gate.open();
  driver_.synchronize_stream(second_);
  EXPECT_EQ(seen, 42);
}

TEST_F(SimEventTest, AProcessHasAsManyInterprocessEventsAsWithCuda) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_max < 5000) GTEST_SKIP() << "each is an open file, and too few are allowed";
  const NativeEventFlags flags{.timing = false, .blocking = false, .interprocess = true};
  std::vector<NativeEvent> events;
  try {
    while (events.size() < 5000) events.push_back(driver_.create_event(0, flags));
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), 2);
  }
  EXPECT_EQ(events.size(), 4096u);
  driver_.destroy_event(driver_.create_event(0, {}));
  driver_.destroy_event(events.back());
  events.back() = driver_.create_event(0, flags);
  for (NativeEvent event : events) driver_.destroy_event(event);
}

TEST_F(SimEventTest, WaitCrossesDevicesAndOutlivesTheEvent) {
  const NativeStream far = driver_.create_stream(3, 0);
  int value = 0;
  int seen = -1;
  {
    const Gate gate(first_);
    sim::launch(first_, [&] { value = 7; });
    const NativeEvent brief = driver_.create_event(0, {});
    driver_.record_event(brief, first_);
    driver_.wait_event(far, brief);
    driver_.destroy_event(brief);
    const NativeEvent reused = driver_.create_event(0, {});
    driver_.record_event(reused, second_);
    driver_.destroy_event(reused);
    sim::launch(far, [&] { seen = value; });
  }
  driver_.synchronize_stream(far);
  EXPECT_EQ(seen, 7);
}

TEST_F(SimEventTest, NeverRecordedIsReachedAndWaitedForByNobody) {
  EXPECT_TRUE(driver_.query_event(event_));
  driver_.synchronize_event(event_);
  driver_.wait_event(second_, event_);
  driver_.synchronize_stream(second_);
}

TEST_F(SimEventTest, SynchronizeWaitsForTheRecordOnly) {
  std::atomic<bool> ran{false};
  sim::launch(first_, [&] { ran = true; });
  driver_.record_event(event_, first_);
  const Gate gate(first_);
  driver_.synchronize_event(event_);
  EXPECT_TRUE(ran);
  EXPECT_TRUE(driver_.query_event(event_));
  EXPECT_FALSE(driver_.query_stream(first_));
}

TEST_F(SimEventTest, LongChainsOfRecordsStayInOrder) {
  int counter = 0;
  for (int i = 0; i < 1500; ++i) {
    sim::launch(first_, [&counter] { ++counter; });
    driver_.record_event(event_, first_);
    driver_.wait_event(second_, event_);
    sim::launch(second_, [&counter] { ++counter; });
    driver_.record_event(event_, second_);
    driver_.wait_event(first_, event_);
  }
  driver_.synchronize_device(0);
  EXPECT_EQ(counter, 3000);
}

TEST_F(SimEventTest, TasksOfTwoStreamsAlternateWhereEachWaitsForTheOther) {
  for (const NativeStream other : {second_, driver_.create_stream(3, 0)}) {
    const NativeEvent back = driver_.create_event(other.device, {});
    int turn = 0;
    int wrong = 0;
    {
      // All are queued before the first one runs, and fit into the queues.
      const Gate gate(first_);
      for (int i = 0; i < 200; ++i) {
        sim::launch(first_, [&, i] { wrong += turn++ == 2 * i ? 0 : 1; });
        driver_.record_event(event_, first_);
        driver_.wait_event(other, event_);
        sim::launch(other, [&, i] { wrong += turn++ == 2 * i + 1 ? 0 : 1; });
        driver_.record_event(back, other);
        driver_.wait_event(first_, back);
      }
    }
    driver_.synchronize_stream(first_);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(turn, 400);
    driver_.destroy_event(back);
  }
}

TEST_F(SimEventTest, RefusesTheWrongDeviceAndDeadEvents) {
  const NativeStream far = driver_.create_stream(1, 0);
  expect_cuda_error(400, "recording an event on stream 1 of cuda:1",
                    [&] { driver_.record_event(event_, far); });
  EXPECT_TRUE(driver_.query_event(event_));
  const NativeEvent dead = driver_.create_event(0, {});
  driver_.destroy_event(dead);
  expect_cuda_error(400, "there is no such event", [&] { driver_.record_event(dead, first_); });
  expect_cuda_error(400, "there is no such event", [&] { (void)driver_.query_event(dead); });
  expect_cuda_error(400, "there is no such event", [&] { driver_.wait_event(first_, nullptr); });
  expect_cuda_error(1, "an interprocess event cannot have timing", [&] {
    (void)driver_.create_event(0, {.timing = true, .blocking = false, .interprocess = true});
  });
  expect_cuda_error(400, "not made for other processes",
                    [&] { (void)driver_.export_event(event_); });
}

TEST_F(SimEventTest, MeasuresTimeBetweenReachedRecords) {
  const NativeEvent begin = driver_.create_event(0, {.timing = true});
  const NativeEvent end = driver_.create_event(0, {.timing = true});
  expect_cuda_error(400, "never recorded", [&] { (void)driver_.elapsed_ms(begin, end); });
  driver_.record_event(begin, first_);
  Gate gate(first_);
  driver_.record_event(end, first_);
  expect_cuda_error(600, "not reached", [&] { (void)driver_.elapsed_ms(begin, end); });
  gate.open();
  driver_.synchronize_event(end);
  const float forward = driver_.elapsed_ms(begin, end);
  EXPECT_GE(forward, 0.0F);
  EXPECT_EQ(driver_.elapsed_ms(end, begin), -forward);
  driver_.record_event(event_, first_);
  driver_.synchronize_event(event_);
  expect_cuda_error(400, "without timing", [&] { (void)driver_.elapsed_ms(begin, event_); });
  driver_.destroy_event(begin);
  driver_.destroy_event(end);
}

}  // namespace
}  // namespace gantry::testing
