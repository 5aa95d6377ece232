#include <gantry/streams/host_function.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry {
namespace {

class HostFunctionTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    GANTRY_REQUIRE_DEVICES(1);
  }
  const Device device_ = Device::cuda(0);
};

TEST_F(HostFunctionTest, RunsBetweenEarlierAndLaterWork) {
  const Stream stream = Stream::from_pool(device_);
  const StreamGuard guard(stream);
  const Tensor ones_there = ones({1000}, {.dtype = i32, .device = device_});
  const Tensor in = empty({1000}, {.dtype = i32, .pinned = true});
  const Tensor out = zeros({1000}, {.dtype = i32, .pinned = true});
  for (int round = 1; round <= 20; ++round) {
    const Tensor there = ones_there.mul(round);
    in.copy_(there, /*non_blocking=*/true);
    launch_host_function(stream, [data = in.data_ptr<std::int32_t>()] {
      for (int i = 0; i < 1000; ++i) data[i] += 5;
    });
    there.copy_(in, /*non_blocking=*/true);
    out.copy_(there, /*non_blocking=*/true);
    stream.synchronize();
    EXPECT_EQ(out.amin().item<int>(), round + 5);
    EXPECT_EQ(out.amax().item<int>(), round + 5);
  }
}

TEST_F(HostFunctionTest, IsDestroyedOnceItHasRun) {
  const Stream stream = Stream::from_pool(device_);
  const auto count = std::make_shared<std::atomic<int>>(0);
  for (int i = 0; i < 100; ++i) launch_host_function(stream, [count] { ++*count; });
  stream.synchronize();
  EXPECT_EQ(*count, 100);
  // The driver may still leave the last one.
  while (count.use_count() != 1) {
  }
}

TEST_F(HostFunctionTest, RunsInEachReplayAndEndsWithTheGraph) {
  const auto count = std::make_shared<std::atomic<int>>(0);
  {
    Graph graph;
    {
      GraphCapture capture(graph);
      launch_host_function(capture.stream(), [count] { ++*count; });
      launch_host_function(capture.stream(), [count] { *count += 100; });
      capture.end();
    }
    EXPECT_EQ(*count, 0);
    for (int round = 1; round <= 5; ++round) {
      graph.replay();
      synchronize(device_);
      EXPECT_EQ(*count, 101 * round);
    }
  }
  synchronize(device_);
  while (count.use_count() != 1) {
  }
}

TEST_F(HostFunctionTest, ACaptureThatFailsReleasesIt) {
  const auto count = std::make_shared<int>(0);
  try {
    Graph graph;
    const GraphCapture capture(graph);
    launch_host_function(capture.stream(), [count] { ++*count; });
    throw std::runtime_error("given up");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(count.use_count(), 1);
  EXPECT_EQ(*count, 0);
}

TEST_F(HostFunctionTest, TheNextSynchronizingCallThrowsItsException) {
  const Stream stream = Stream::from_pool(device_);
  std::atomic<bool> is_later{false};
  launch_host_function(stream, [] { throw std::out_of_range("first"); });
  launch_host_function(stream, [] { throw ShapeError("second"); });
  launch_host_function(stream, [&] { is_later = true; });
  const auto text = [&]() -> std::string {
    try {
      stream.synchronize();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(text(), "first");
  EXPECT_NE(text().find("second"), std::string::npos);
  EXPECT_EQ(text(), "none");
  EXPECT_TRUE(is_later);
}

TEST_F(HostFunctionTest, BadInput) {
  const Stream stream = Stream::current(device_);
  EXPECT_ERROR(launch_host_function(stream, nullptr), InvalidArgument,
               "launch_host_function: expected a function, but got an empty one");
  const auto count = std::make_shared<int>(0);
  const Tensor flag = ones({}, {.dtype = i32, .device = device_});
  const auto capture_it = [&] {
    Graph graph;
    GraphCapture capture(graph);
    graph_if(flag, [&] { launch_host_function(Stream::current(device_), [count] { ++*count; }); });
  };
  EXPECT_THROW(capture_it(), CaptureError);
  EXPECT_EQ(count.use_count(), 1);
}

}  // namespace
}  // namespace gantry
