#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "tests/device/sim/sim_machine.hpp"

namespace gantry::testing {
namespace {

/// Sets CUDA_LAUNCH_BLOCKING before the machine is made.
class LaunchBlocking {
 public:
  explicit LaunchBlocking(const char* value) { setenv("CUDA_LAUNCH_BLOCKING", value, 1); }
  ~LaunchBlocking() { unsetenv("CUDA_LAUNCH_BLOCKING"); }
  LaunchBlocking(const LaunchBlocking&) = delete;
  LaunchBlocking& operator=(const LaunchBlocking&) = delete;
};

class SimLaunchBlockingTest : private LaunchBlocking, public SimMachineTest {
 protected:
  SimLaunchBlockingTest() : LaunchBlocking("1") {}

  /// Launches a kernel that ends when `opened` is set, as a kernel that waits for a peer does.
  void launch_waiting(NativeStream stream, sim::KernelWaits waits = sim::KernelWaits::for_peers) {
    sim::launch(
        stream,
        [this] {
          while (!opened_.load(std::memory_order_acquire)) std::this_thread::yield();
        },
        waits);
  }
  void open() { opened_.store(true, std::memory_order_release); }
  void TearDown() override { open(); }

  std::atomic<bool> opened_{false};
  NativeStream stream_ = driver_.create_stream(0, 0);
  NativeStream other_ = driver_.create_stream(1, 0);
};

// The kernel gives a launch that does not wait ample time to return.
TEST_F(SimLaunchBlockingTest, TheLaunchReturnsWhenTheKernelIsDone) {
  std::atomic<bool> has_returned{false};
  bool returned_early = false;
  sim::launch(stream_, [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (!has_returned && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    returned_early = has_returned;
  });
  has_returned = true;
  driver_.synchronize_stream(stream_);
  EXPECT_FALSE(returned_early);
}

TEST_F(SimLaunchBlockingTest, TheLaunchThrowsWhatTheKernelThrows) {
  const auto launch = [&](const char* text) {
    sim::launch(stream_, [text] { throw std::runtime_error(text); });
  };
  EXPECT_THROW(launch("first"), std::runtime_error);
  // The error was reported; the stream works.
  EXPECT_NO_THROW(driver_.synchronize_stream(stream_));
  bool ran = false;
  sim::launch(stream_, [&] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_THROW(launch("second"), std::runtime_error);
}

TEST_F(SimLaunchBlockingTest, HostFunctionsAndCopiesStayAsynchronous) {
  driver_.launch_host_function(
      stream_,
      [](void* opened) {
        while (!*static_cast<std::atomic<bool>*>(opened)) std::this_thread::yield();
      },
      &opened_);
  void* data = driver_.allocate(0, kBytes);
  driver_.fill(data, 1, kBytes, stream_);
  EXPECT_FALSE(driver_.query_stream(stream_));
  open();
  driver_.synchronize_stream(stream_);
  driver_.deallocate(0, data);
}

TEST_F(SimLaunchBlockingTest, AKernelThatWaitsForPeersIsNotWaitedFor) {
  launch_waiting(stream_);
  bool ran = false;
  sim::launch(stream_, [&] { ran = true; });  // behind it
  EXPECT_FALSE(driver_.query_stream(stream_));
  open();
  driver_.synchronize_stream(stream_);
  EXPECT_TRUE(ran);
  // Launches block again.
  EXPECT_THROW(sim::launch(stream_, [] { throw std::runtime_error("now"); }), std::runtime_error);
}

TEST_F(SimLaunchBlockingTest, NorIsAKernelOfTheProgramThatMayWait) {
  launch_waiting(stream_, sim::KernelWaits::by_spinning);
  EXPECT_FALSE(driver_.query_stream(stream_));
  driver_.begin_capture(other_, CaptureMode::relaxed);
  launch_waiting(other_, sim::KernelWaits::by_spinning);
  const NativeGraph graph = driver_.end_capture(other_);
  driver_.launch_graph(graph, other_);
  EXPECT_FALSE(driver_.query_stream(other_));
  open();
  driver_.synchronize_stream(stream_);
  driver_.synchronize_stream(other_);
  driver_.destroy_graph(graph);
}

TEST_F(SimLaunchBlockingTest, NorIsWhatWaitsForItThroughEvents) {
  const NativeEvent event = driver_.create_event(0, {});
  const NativeEvent second = driver_.create_event(1, {});
  const NativeStream third = driver_.create_stream(2, 0);
  launch_waiting(stream_);
  driver_.record_event(event, stream_);
  driver_.wait_event(other_, event);
  driver_.record_event(second, other_);
  driver_.wait_event(third, second);
  int ran = 0;
  sim::launch(third, [&] { ++ran; });
  EXPECT_FALSE(driver_.query_stream(third));
  open();
  driver_.synchronize_stream(third);
  EXPECT_EQ(ran, 1);
}

TEST_F(SimLaunchBlockingTest, NorAreLaunchesBehindAWaitForAWord) {
  auto* const word = static_cast<std::uint32_t*>(driver_.allocate_pinned(kBytes));
  __atomic_store_n(word, 0, __ATOMIC_RELAXED);
  driver_.wait_for_word(stream_, word, 1);
  bool ran = false;
  sim::launch(stream_, [&] { ran = true; });
  EXPECT_FALSE(driver_.query_stream(stream_));
  __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  driver_.synchronize_stream(stream_);
  EXPECT_TRUE(ran);
  driver_.deallocate_pinned(word);
}

TEST_F(SimLaunchBlockingTest, CapturesCollectAndGraphLaunchesBlock) {
  int runs = 0;
  bool fails = false;
  driver_.begin_capture(stream_, CaptureMode::relaxed);
  sim::launch(stream_, [&] {
    if (fails) throw std::runtime_error("in a graph");
    ++runs;
  });
  const NativeGraph graph = driver_.end_capture(stream_);
  EXPECT_EQ(runs, 0);
  driver_.launch_graph(graph, stream_);
  EXPECT_EQ(runs, 1);
  fails = true;
  EXPECT_THROW(driver_.launch_graph(graph, other_), std::runtime_error);
  driver_.destroy_graph(graph);
}

TEST_F(SimLaunchBlockingTest, AGraphThatWaitsForPeersIsNotWaitedFor) {
  driver_.begin_capture(stream_, CaptureMode::relaxed);
  launch_waiting(stream_);
  const NativeGraph graph = driver_.end_capture(stream_);
  driver_.launch_graph(graph, stream_);
  bool ran = false;
  sim::launch(stream_, [&] { ran = true; });
  EXPECT_FALSE(driver_.query_stream(stream_));
  open();
  driver_.synchronize_stream(stream_);
  EXPECT_TRUE(ran);
  driver_.destroy_graph(graph);
}

TEST(SimLaunchBlockingOffTest, LaunchesReturnAtOnceOtherwise) {
  for (const char* value : {"0", ""}) {
    const LaunchBlocking off(value);
    const auto machine = make_sim_driver(1);
    std::atomic<bool> opened{false};
    const NativeStream stream = machine->create_stream(0, 0);
    sim::launch(stream, [&] {
      while (!opened) std::this_thread::yield();
    });
    EXPECT_FALSE(machine->query_stream(stream));
    opened = true;
    machine->synchronize_stream(stream);
  }
}

TEST(SimLaunchBlockingOffTest, GantrysOwnVariableDoesTheSame) {
  setenv("GANTRY_LAUNCH_BLOCKING", "1", 1);
  const auto machine = make_sim_driver(1);
  unsetenv("GANTRY_LAUNCH_BLOCKING");
  EXPECT_THROW(sim::launch({0, nullptr}, [] { throw std::runtime_error("now"); }),
               std::runtime_error);
}

TEST(SimLaunchBlockingOffTest, RefusesOtherValues) {
  const LaunchBlocking bad("perhaps");
  try {
    static_cast<void>(make_sim_driver(1));
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "CUDA_LAUNCH_BLOCKING: expected 1/0, true/false, on/off or yes/no, but got "
                 "'perhaps'");
  }
}

}  // namespace
}  // namespace gantry::testing
