#include <cstring>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

class SimCaptureTest : public SimMachineTest {
 protected:
  ~SimCaptureTest() override {
    driver_.destroy_event(event_);
    driver_.destroy_event(back_);
  }

  void add(NativeStream stream, int value) {
    sim::launch(stream, [this, value] { order_.push_back(value); });
  }
  /// Work of `waiting` that follows comes after the work of `stream` so far.
  void order_after(NativeStream waiting, NativeStream stream, NativeEvent event) {
    driver_.record_event(event, stream);
    driver_.wait_event(waiting, event);
  }

  NativeStream stream_ = driver_.create_stream(0, 0);
  NativeStream side_ = driver_.create_stream(0, 0);
  NativeEvent event_ = driver_.create_event(0, {});
  NativeEvent back_ = driver_.create_event(0, {});
  std::vector<int> order_;
};

TEST_F(SimCaptureTest, CollectsInsteadOfRunningAndReplays) {
  driver_.begin_capture(stream_, CaptureMode::global);
  EXPECT_TRUE(driver_.is_capturing(stream_));
  EXPECT_FALSE(driver_.is_capturing(side_));
  add(stream_, 1);
  driver_.launch_host_function(
      stream_, [](void* data) { static_cast<std::vector<int>*>(data)->push_back(2); }, &order_);
  const NativeGraph graph = driver_.end_capture(stream_);
  EXPECT_FALSE(driver_.is_capturing(stream_));
  driver_.synchronize_device(0);
  EXPECT_TRUE(order_.empty());
  driver_.launch_graph(graph, stream_);
  driver_.launch_graph(graph, side_);  // launches of one graph follow each other
  driver_.destroy_graph(graph);        // those in flight still run
  driver_.synchronize_device(0);
  EXPECT_EQ(order_, (std::vector{1, 2, 1, 2}));
  expect_cuda_error(1, "there is no such graph", [&] { driver_.launch_graph(graph, stream_); });
}

TEST_F(SimCaptureTest, ReplaysCopiesOfWhatMemoryHoldsThen) {
  void* data = driver_.allocate(0, kBytes);
  auto* pinned = static_cast<char*>(driver_.allocate_pinned(kBytes));
  std::string pageable = "pageable";
  driver_.begin_capture(stream_, CaptureMode::thread_local_);
  driver_.copy(data, pinned, 4, stream_);
  driver_.copy(static_cast<char*>(data) + 4, pageable.data(), 8, stream_);
  const NativeGraph graph = driver_.end_capture(stream_);
  std::memcpy(pinned, "now!", 4);
  pageable = "PAGEABLE";
  driver_.launch_graph(graph, stream_);
  EXPECT_EQ(read(data, 12, stream_), "now!PAGEABLE");
  driver_.destroy_graph(graph);
  driver_.deallocate(0, data);
  driver_.deallocate_pinned(pinned);
}

TEST_F(SimCaptureTest, StreamsJoinThroughEventsAndMustComeBack) {
  driver_.begin_capture(stream_, CaptureMode::global);
  add(stream_, 1);
  order_after(side_, stream_, event_);
  EXPECT_TRUE(driver_.is_capturing(side_));
  add(side_, 2);
  order_after(stream_, side_, back_);
  add(stream_, 3);
  const NativeGraph graph = driver_.end_capture(stream_);
  EXPECT_FALSE(driver_.is_capturing(side_));
  driver_.launch_graph(graph, stream_);
  driver_.synchronize_stream(stream_);
  EXPECT_EQ(order_, (std::vector{1, 2, 3}));
  driver_.destroy_graph(graph);
  expect_cuda_error(907, "event", [&] { (void)driver_.query_event(event_); });
  expect_cuda_error(907, "is over", [&] { driver_.wait_event(side_, event_); });
  driver_.record_event(event_, side_);
  driver_.synchronize_event(event_);
}

TEST_F(SimCaptureTest, UnjoinedWorkIsAnError) {
  driver_.begin_capture(stream_, CaptureMode::global);
  order_after(side_, stream_, event_);
  add(side_, 1);
  order_after(stream_, side_, back_);
  add(side_, 2);  // behind the join
  expect_cuda_error(904, "stream 2 of cuda:0 took part",
                    [&] { (void)driver_.end_capture(stream_); });
  EXPECT_FALSE(driver_.is_capturing(stream_));
  EXPECT_FALSE(driver_.is_capturing(side_));
  driver_.synchronize_stream(side_);
  EXPECT_TRUE(order_.empty());
}

TEST_F(SimCaptureTest, JoinsThroughAThirdStreamCount) {
  const NativeStream far = driver_.create_stream(1, 0);
  const NativeEvent far_event = driver_.create_event(1, {});
  driver_.begin_capture(stream_, CaptureMode::global);
  order_after(side_, stream_, event_);
  add(side_, 1);
  order_after(far, side_, back_);
  add(far, 2);
  driver_.record_event(far_event, far);
  driver_.wait_event(stream_, far_event);
  const NativeGraph graph = driver_.end_capture(stream_);
  driver_.launch_graph(graph, side_);
  driver_.synchronize_stream(side_);
  EXPECT_EQ(order_, (std::vector{1, 2}));
  driver_.destroy_graph(graph);
  driver_.destroy_event(far_event);
}

TEST_F(SimCaptureTest, IllegalCallsSpoilTheCapture) {
  void* data = driver_.allocate(0, kBytes);
  struct Case {
    const char* text;
    std::function<void()> call;
  };
  driver_.record_event(back_, side_);
  char host[4] = {};
  const Case cases[] = {
      {"synchronizing stream 1 of cuda:0", [&] { driver_.synchronize_stream(stream_); }},
      {"querying stream 1 of cuda:0", [&] { (void)driver_.query_stream(stream_); }},
      {"synchronizing cuda:0", [&] { driver_.synchronize_device(0); }},
  };
  for (const Case& c : cases) {
    driver_.begin_capture(stream_, CaptureMode::global);
    expect_cuda_error(900, c.text, c.call);
    expect_cuda_error(901, "capturing work", [&] { driver_.copy(data, host, 4, stream_); });
    EXPECT_TRUE(driver_.is_capturing(stream_));
    expect_cuda_error(901, "ending", [&] { (void)driver_.end_capture(stream_); });
    EXPECT_FALSE(driver_.is_capturing(stream_));
  }
  driver_.deallocate(0, data);
}

// The driver asks for it as CUDA allows it to who knows what it does.
TEST_F(SimCaptureTest, EventsMayBeAskedAndAwaited) {
  driver_.record_event(back_, side_);
  driver_.begin_capture(stream_, CaptureMode::global);
  EXPECT_NO_THROW(driver_.synchronize_event(back_));
  EXPECT_TRUE(driver_.query_event(back_));
  driver_.destroy_graph(driver_.end_capture(stream_));
}

TEST_F(SimCaptureTest, ModesDecideWhatOtherThreadsMayDo) {
  const auto synchronize_elsewhere = [&] {
    std::exception_ptr error;
    std::thread([&] {
      try {
        driver_.synchronize_device(1);
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error) std::rethrow_exception(error);
  };
  driver_.begin_capture(stream_, CaptureMode::thread_local_);
  EXPECT_NO_THROW(synchronize_elsewhere());
  driver_.destroy_graph(driver_.end_capture(stream_));

  driver_.begin_capture(stream_, CaptureMode::relaxed);
  EXPECT_NO_THROW(driver_.synchronize_device(1));
  driver_.destroy_graph(driver_.end_capture(stream_));

  driver_.begin_capture(stream_, CaptureMode::global);
  expect_cuda_error(900, "synchronizing", synchronize_elsewhere);
  expect_cuda_error(901, "ending", [&] { (void)driver_.end_capture(stream_); });
}

// The driver asks for it as CUDA allows it to who knows what it does.
TEST_F(SimCaptureTest, MemoryMayBeMadeAndFreed) {
  driver_.begin_capture(stream_, CaptureMode::global);
  EXPECT_NO_THROW(driver_.deallocate(0, driver_.allocate(0, kBytes)));
  EXPECT_NO_THROW(driver_.deallocate_pinned(driver_.allocate_pinned(kBytes)));
  driver_.destroy_graph(driver_.end_capture(stream_));
}

TEST_F(SimCaptureTest, AGraphInAGraphKeepsItsObjects) {
  bool released = false;
  driver_.begin_capture(stream_, CaptureMode::global);
  driver_.retain_by_capture(
      stream_, [](void* flag) { *static_cast<bool*>(flag) = true; }, &released);
  const NativeGraph inner = driver_.end_capture(stream_);
  driver_.begin_capture(side_, CaptureMode::global);
  driver_.launch_graph(inner, side_);
  const NativeGraph outer = driver_.end_capture(side_);
  driver_.destroy_graph(inner);
  EXPECT_FALSE(released);
  driver_.destroy_graph(outer);
  EXPECT_TRUE(released);
}

TEST_F(SimCaptureTest, DestroyingACapturedStreamReleasesWhatItsCaptureKept) {
  bool released = false;
  driver_.begin_capture(stream_, CaptureMode::global);
  driver_.retain_by_capture(
      stream_, [](void* flag) { *static_cast<bool*>(flag) = true; }, &released);
  driver_.destroy_stream(stream_);
  EXPECT_TRUE(released);
}

TEST_F(SimCaptureTest, RefusesForeignEndsAndOutsideEvents) {
  expect_cuda_error(900, "the default stream of cuda:0", [&] {
    driver_.begin_capture({0, nullptr}, CaptureMode::global);
  });
  expect_cuda_error(401, "not being captured", [&] { (void)driver_.end_capture(stream_); });

  driver_.record_event(back_, side_);
  driver_.begin_capture(stream_, CaptureMode::global);
  expect_cuda_error(401, "already", [&] { driver_.begin_capture(stream_, CaptureMode::global); });
  expect_cuda_error(905, "spoilt", [&] { driver_.wait_event(stream_, back_); });
  expect_cuda_error(901, "ending", [&] { (void)driver_.end_capture(stream_); });

  driver_.begin_capture(stream_, CaptureMode::global);
  order_after(side_, stream_, event_);
  expect_cuda_error(903, "began on stream 1", [&] { (void)driver_.end_capture(side_); });
  expect_cuda_error(901, "ending", [&] { (void)driver_.end_capture(stream_); });

  driver_.begin_capture(stream_, CaptureMode::global);
  std::thread([&] {
    expect_cuda_error(908, "ending", [&] { (void)driver_.end_capture(stream_); });
  }).join();
  driver_.destroy_graph(driver_.end_capture(stream_));

  const NativeStream other = driver_.create_stream(0, 0);
  driver_.begin_capture(stream_, CaptureMode::relaxed);
  driver_.begin_capture(other, CaptureMode::relaxed);
  driver_.record_event(event_, stream_);
  expect_cuda_error(902, "merge", [&] { driver_.wait_event(other, event_); });
  expect_cuda_error(901, "ending", [&] { (void)driver_.end_capture(other); });
  expect_cuda_error(901, "ending", [&] { (void)driver_.end_capture(stream_); });
}

TEST_F(SimCaptureTest, GraphsNestAndFailAsTasksDo) {
  driver_.begin_capture(stream_, CaptureMode::global);
  add(stream_, 1);
  const NativeGraph inner = driver_.end_capture(stream_);
  driver_.begin_capture(side_, CaptureMode::global);
  add(side_, 0);
  driver_.launch_graph(inner, side_);
  sim::launch(side_, [] { throw std::runtime_error("node failed"); });
  add(side_, 2);
  const NativeGraph outer = driver_.end_capture(side_);
  driver_.destroy_graph(inner);
  driver_.launch_graph(outer, stream_);
  EXPECT_THROW(driver_.synchronize_stream(stream_), std::runtime_error);
  EXPECT_EQ(order_, (std::vector{0, 1}));
  driver_.destroy_graph(outer);
}

TEST_F(SimCaptureTest, DestroyingAStreamThatTookPartSpoilsTheCapture) {
  driver_.begin_capture(stream_, CaptureMode::global);
  order_after(side_, stream_, event_);
  order_after(stream_, side_, back_);
  driver_.destroy_stream(side_);
  EXPECT_TRUE(driver_.is_capturing(stream_));
  expect_cuda_error(901, "ending", [&] { (void)driver_.end_capture(stream_); });
}

TEST_F(SimCaptureTest, DestroyingACapturedStreamEndsItsCapture) {
  driver_.begin_capture(stream_, CaptureMode::global);
  order_after(side_, stream_, event_);
  driver_.destroy_stream(stream_);
  EXPECT_FALSE(driver_.is_capturing(side_));
  EXPECT_NO_THROW(driver_.deallocate(0, driver_.allocate(0, kBytes)));
}

}  // namespace
}  // namespace gantry::testing
