#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

class SimStreamTest : public SimMachineTest {
 protected:
  NativeStream stream_ = driver_.create_stream(0, 0);
};

std::size_t thread_count() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST_F(SimStreamTest, RunsTasksInOrderOnOneOtherThread) {
  std::vector<int> order;
  std::thread::id thread;
  sim::launch(stream_, [&] { thread = std::this_thread::get_id(); });
  for (int i = 0; i < 5000; ++i) sim::launch(stream_, [&order, i] { order.push_back(i); });
  driver_.synchronize_stream(stream_);
  ASSERT_EQ(order.size(), 5000u);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(order[static_cast<std::size_t>(i)], i);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_F(SimStreamTest, KeepsEachHostThreadsOrderWhenSeveralSubmit) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 2000;
  std::vector<int> last(kThreads, -1);
  std::atomic<int> wrong{0};
  std::vector<std::thread> hosts;
  for (int h = 0; h < kThreads; ++h) {
    hosts.emplace_back([&, h] {
      for (int i = 0; i < kTasks; ++i) {
        sim::launch(stream_, [&last, &wrong, h, i] {
          int& before = last[static_cast<std::size_t>(h)];
          if (before != i - 1) ++wrong;
          before = i;
        });
      }
    });
  }
  for (std::thread& host : hosts) host.join();
  driver_.synchronize_stream(stream_);
  EXPECT_EQ(wrong, 0);
  for (const int value : last) EXPECT_EQ(value, kTasks - 1);
}

TEST_F(SimStreamTest, QueryCountsTheRunningTask) {
  EXPECT_TRUE(driver_.query_stream(stream_));
  std::promise<void> entered;
  std::promise<void> leave;
  sim::launch(stream_, [&] {
    entered.set_value();
    leave.get_future().wait();
  });
  entered.get_future().wait();  // the queue is empty now, the task is not done
  EXPECT_FALSE(driver_.query_stream(stream_));
  leave.set_value();
  driver_.synchronize_stream(stream_);
  EXPECT_TRUE(driver_.query_stream(stream_));
}

TEST_F(SimStreamTest, ATaskEndsBehindTheObjectsThatItOwns) {
  std::promise<void> entered;
  std::promise<void> leave;
  std::shared_ptr<void> owned(nullptr, [&](void*) {
    entered.set_value();
    leave.get_future().wait();
  });
  sim::launch(stream_, [owned = std::move(owned)] {});
  entered.get_future().wait();  // the task has run, and its object is being destroyed
  EXPECT_FALSE(driver_.query_stream(stream_));
  leave.set_value();
  driver_.synchronize_stream(stream_);
  EXPECT_TRUE(driver_.query_stream(stream_));
}

TEST_F(SimStreamTest, StreamsDoNotWaitForEachOther) {
  const Gate gate(stream_);
  const NativeStream other = driver_.create_stream(0, 0);
  bool ran = false;
  sim::launch(other, [&] { ran = true; });
  driver_.synchronize_stream(other);
  EXPECT_TRUE(ran);
  bool default_ran = false;
  sim::launch({0, nullptr}, [&] { default_ran = true; });
  driver_.synchronize_stream({0, nullptr});
  EXPECT_TRUE(default_ran);
}

TEST_F(SimStreamTest, StartsNoThreadBeforeTheFirstTask) {
  const std::size_t before = thread_count();
  std::vector<NativeStream> streams;
  for (int i = 0; i < 256; ++i) streams.push_back(driver_.create_stream(i % kDevices, 0));
  for (const NativeStream stream : streams) EXPECT_TRUE(driver_.query_stream(stream));
  EXPECT_LE(thread_count(), before);
  sim::launch(streams[0], [] {});
  driver_.synchronize_stream(streams[0]);
  EXPECT_LE(thread_count(), before + 1);
}

TEST_F(SimStreamTest, DestroyedStreamsStillRunTheirWorkAndAreReused) {
  const std::size_t before = thread_count();
  int ran = 0;
  for (int i = 0; i < 200; ++i) {
    const NativeStream brief = driver_.create_stream(1, 0);
    sim::launch(brief, [&ran] { ++ran; });
    driver_.destroy_stream(brief);
    driver_.synchronize_device(1);
    ASSERT_EQ(ran, i + 1);
    expect_cuda_error(400, "launching a kernel", [&] { sim::launch(brief, [] {}); });
  }
  EXPECT_LE(thread_count(), before + 2);
}

TEST_F(SimStreamTest, RethrowsATasksErrorOnceAndDropsWhatFollowed) {
  bool ran = false;
  {
    const Gate gate(stream_);
    sim::launch(stream_, [] { throw std::runtime_error("task failed"); });
    sim::launch(stream_, [&] { ran = true; });
  }
  try {
    driver_.synchronize_stream(stream_);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "task failed");
  }
  EXPECT_FALSE(ran);
  EXPECT_NO_THROW(driver_.synchronize_stream(stream_));
  sim::launch(stream_, [&] { ran = true; });
  driver_.synchronize_stream(stream_);
  EXPECT_TRUE(ran);
}

TEST_F(SimStreamTest, QueryRethrowsWhileDroppedWorkIsQueued) {
  const NativeStream other = driver_.create_stream(0, 0);
  const NativeEvent event = driver_.create_event(0, {});
  bool ran = false;
  {
    const Gate gate(other);
    driver_.record_event(event, other);
    const NativeEvent failed = driver_.create_event(0, {});
    sim::launch(stream_, [] { throw std::runtime_error("task failed"); });
    driver_.record_event(failed, stream_);
    driver_.wait_event(stream_, event);
    sim::launch(stream_, [&] { ran = true; });
    EXPECT_THROW(driver_.synchronize_event(failed), std::runtime_error);
    EXPECT_FALSE(driver_.query_stream(stream_));  // the wait holds: order outlives an error
    driver_.destroy_event(failed);
  }
  driver_.synchronize_device(0);
  EXPECT_FALSE(ran);
  driver_.destroy_event(event);
}

TEST_F(SimStreamTest, DeviceSynchronizationRethrowsTheErrorOfAnyStream) {
  sim::launch(stream_, [] { throw IndexError("index 7 is out of bounds"); });
  EXPECT_NO_THROW(driver_.synchronize_device(1));
  EXPECT_THROW(driver_.synchronize_device(0), IndexError);
  EXPECT_NO_THROW(driver_.synchronize_device(0));
}

TEST_F(SimStreamTest, WhoWaitsForAFailedStreamGoesOn) {
  const NativeStream waiting = driver_.create_stream(1, 0);
  const NativeEvent event = driver_.create_event(0, {});
  sim::launch(stream_, [] { throw std::runtime_error("task failed"); });
  driver_.record_event(event, stream_);
  driver_.wait_event(waiting, event);
  bool ran = false;
  sim::launch(waiting, [&] { ran = true; });
  driver_.synchronize_stream(waiting);
  EXPECT_TRUE(ran);
  EXPECT_THROW(driver_.synchronize_event(event), std::runtime_error);
  driver_.destroy_event(event);
}

TEST_F(SimStreamTest, RunsHostFunctionsInOrder) {
  std::vector<int> order;
  sim::launch(stream_, [&] { order.push_back(1); });
  driver_.launch_host_function(
      stream_, [](void* data) { static_cast<std::vector<int>*>(data)->push_back(2); }, &order);
  sim::launch(stream_, [&] { order.push_back(3); });
  driver_.synchronize_stream(stream_);
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  expect_cuda_error(1, "launching a host function on stream 1 of cuda:0",
                    [&] { driver_.launch_host_function(stream_, nullptr, nullptr); });
}

TEST_F(SimStreamTest, TasksMayNotCallTheDriver) {
  sim::launch(stream_, [this] { (void)driver_.allocate(0, 4096); });
  expect_cuda_error(800, "a task on a stream called the driver",
                    [&] { driver_.synchronize_stream(stream_); });
}

TEST_F(SimStreamTest, RefusesStreamsOfAnotherDeviceAndUnknownOnes) {
  expect_cuda_error(400, "cuda:1 has no such stream", [&] {
    driver_.synchronize_stream({1, stream_.handle});
  });
  int local = 0;
  expect_cuda_error(400, "querying a stream", [&] { (void)driver_.query_stream({0, &local}); });
  expect_cuda_error(101, "expected 0 to 3, but got 4", [&] {
    driver_.synchronize_stream({4, nullptr});
  });
}

TEST_F(SimStreamTest, FaultRecordIsRaisedOnceAsIndexError) {
  FaultRecord* fault = driver_.fault_record(2);
  fault->dim = 1;
  fault->index = 9;
  fault->size = 4;
  fault->raised = 1;
  EXPECT_NO_THROW(driver_.synchronize_device(0));
  try {
    driver_.synchronize_device(2);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const IndexError& error) {
    EXPECT_STREQ(error.what(), "index 9 is out of bounds for dimension 1 with size 4");
    EXPECT_EQ(error.device(), "cuda:2");
  }
  EXPECT_NO_THROW(driver_.synchronize_device(2));
}

TEST_F(SimStreamTest, EventsAndBlockingCopiesRaiseTheFaultRecordToo) {
  void* data = driver_.allocate(0, kBytes);
  const NativeEvent event = driver_.create_event(0, {});
  driver_.record_event(event, stream_);
  driver_.fault_record(0)->raised = 1;
  EXPECT_THROW(driver_.synchronize_event(event), IndexError);
  EXPECT_NO_THROW(driver_.synchronize_event(event));
  driver_.fault_record(0)->raised = 1;
  char host[4];
  EXPECT_THROW(driver_.copy(host, data, sizeof host, stream_), IndexError);
  EXPECT_NO_THROW(driver_.copy(host, data, sizeof host, stream_));
  driver_.destroy_event(event);
  driver_.deallocate(0, data);
}

TEST_F(SimStreamTest, CurrentDeviceIsPerThread) {
  driver_.set_device(3);
  EXPECT_EQ(driver_.current_device(), 3);
  std::thread([&] {
    EXPECT_EQ(driver_.current_device(), 0);
    driver_.set_device(1);
  }).join();
  EXPECT_EQ(driver_.current_device(), 3);
  expect_cuda_error(101, "setting the current device", [&] { driver_.set_device(4); });
  EXPECT_EQ(driver_.current_device(), 3);
  driver_.restore_device(0);
  EXPECT_EQ(driver_.current_device(), 0);
}

TEST_F(SimStreamTest, WordsAreAlignedAndPageLocked) {
  auto* pinned = static_cast<char*>(driver_.allocate_pinned(8));
  void* data = driver_.allocate(0, 8);
  const std::uint32_t on_stack = 0;
  const void* const wrong[] = {pinned + 2, data, &on_stack, nullptr};
  for (const void* word : wrong) {
    expect_cuda_error(1, "expected an aligned word of page-locked memory", [&] {
      driver_.wait_for_word(stream_, static_cast<const std::uint32_t*>(word), 0);
    });
  }
  driver_.begin_capture(stream_, CaptureMode::relaxed);
  expect_cuda_error(900, "waiting for a word on stream 1 of cuda:0", [&] {
    driver_.wait_for_word(stream_, reinterpret_cast<std::uint32_t*>(pinned), 0);
  });
  expect_cuda_error(901, "", [&] { (void)driver_.end_capture(stream_); });
  driver_.deallocate(0, data);
  driver_.deallocate_pinned(pinned);
}

TEST_F(SimStreamTest, MachineEndsThoughAStreamWaitsForAWord) {
  auto* word = static_cast<std::uint32_t*>(driver_.allocate_pinned(sizeof(std::uint32_t)));
  driver_.wait_for_word(stream_, word, 1);
  bool ran = false;
  sim::launch(stream_, [&] { ran = true; });
  EXPECT_FALSE(driver_.query_stream(stream_));
  owner_.reset();
  EXPECT_TRUE(ran) << "what is queued runs before the end";
}

TEST(SimExitTest, ProcessMayEndWithWorkInFlight) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Driver* leaked = make_sim_driver(2).release();
        const NativeStream stream = leaked->create_stream(1, 0);
        sim::launch(stream, [] { std::promise<void>().get_future().wait(); });
        for (int i = 0; i < 100; ++i) sim::launch(stream, [] {});
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gantry::testing
