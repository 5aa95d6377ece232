#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::cuda_error_of;
using testing::DeviceBytes;
using testing::PinnedBytes;
using testing::TestEvent;
using testing::TestStream;

constexpr int kIllegalState = 401;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;
constexpr int kCaptureUnjoined = 904;

class DriverCaptureTest : public testing::DriverTest {
 protected:
  static void count(void* counter) { ++*static_cast<int*>(counter); }
};

TEST_F(DriverCaptureTest, CapturedWorkRunsAtEveryReplayAndNotBefore) {
  const TestStream stream(0);
  const DeviceBytes device(0, 256);
  const PinnedBytes result(256);
  int calls = 0;
  driver().fill(device.data(), 1, 256, stream);
  driver().synchronize_stream(stream);
  EXPECT_FALSE(driver().is_capturing(stream));
  driver().begin_capture(stream, CaptureMode::thread_local_);
  EXPECT_TRUE(driver().is_capturing(stream));
  driver().fill(device.data(), 2, 256, stream);
  driver().launch_host_function(stream, count, &calls);
  const NativeGraph graph = driver().end_capture(stream);
  EXPECT_FALSE(driver().is_capturing(stream));
  driver().copy(result.data(), device.data(), 256, stream);
  driver().synchronize_stream(stream);
  EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(256, 1)) << "the capture ran its work";
  EXPECT_EQ(calls, 0);
  for (int replay = 1; replay <= 3; ++replay) {
    driver().fill(device.data(), 1, 256, stream);
    driver().launch_graph(graph, stream);
    driver().copy(result.data(), device.data(), 256, stream);
    driver().synchronize_stream(stream);
    EXPECT_EQ(result.vec(), std::vector<std::uint8_t>(256, 2));
    EXPECT_EQ(calls, replay);
  }
  driver().destroy_graph(graph);
}

TEST_F(DriverCaptureTest, RunsOfCopiesAreCaptured) {
  const TestStream stream(0);
  const DeviceBytes from(0, 300);
  const DeviceBytes to(0, 300);
  const PinnedBytes result(300);
  auto* const source = static_cast<std::byte*>(from.data());
  auto* const target = static_cast<std::byte*>(to.data());
  driver().begin_capture(stream, CaptureMode::thread_local_);
  driver().copy_batch(
      std::vector<CopyRegion>{{source, target + 200, 100}, {source + 100, target, 200}}, stream);
  const NativeGraph graph = driver().end_capture(stream);
  for (const std::uint8_t round : {1, 2}) {
    driver().fill(source, round, 100, stream);
    driver().fill(source + 100, 10 + round, 200, stream);
    driver().launch_graph(graph, stream);
    driver().copy(result.data(), to.data(), 300, stream);
    driver().synchronize_stream(stream);
    std::vector<std::uint8_t> expected(300, 10 + round);
    std::fill(expected.begin() + 200, expected.end(), round);
    EXPECT_EQ(result.vec(), expected);
  }
  driver().destroy_graph(graph);
}

TEST_F(DriverCaptureTest, ReplaysOnAnotherStream) {
  const TestStream captured(0);
  const TestStream replayed(0);
  int calls = 0;
  driver().begin_capture(captured, CaptureMode::thread_local_);
  driver().launch_host_function(captured, count, &calls);
  const NativeGraph graph = driver().end_capture(captured);
  driver().launch_graph(graph, replayed);
  driver().launch_graph(graph, replayed);
  driver().synchronize_stream(replayed);
  EXPECT_EQ(calls, 2);
  driver().destroy_graph(graph);
}

TEST_F(DriverCaptureTest, StreamThatWaitsJoinsTheCapture) {
  const TestStream first(0);
  const TestStream second(0);
  const TestEvent forked(0);
  const TestEvent joined(0);
  const DeviceBytes device(0, 64);
  const PinnedBytes result(64);
  driver().begin_capture(first, CaptureMode::thread_local_);
  driver().fill(device.data(), 10, 64, first);
  driver().record_event(forked, first);
  driver().wait_event(second, forked);
  EXPECT_TRUE(driver().is_capturing(second));
  const std::uint64_t id = driver().capture_id(first);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(driver().capture_id(second), id);
  driver().fill(device.data(), 20, 32, second);
  driver().record_event(joined, second);
  driver().wait_event(first, joined);
  driver().copy(result.data(), device.data(), 64, first);
  const NativeGraph graph = driver().end_capture(first);
  EXPECT_FALSE(driver().is_capturing(second));
  EXPECT_EQ(driver().capture_id(second), 0u);
  driver().launch_graph(graph, first);
  driver().synchronize_stream(first);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(result.data()[i], i < 32 ? 20 : 10) << "byte " << i;
  driver().destroy_graph(graph);
  driver().begin_capture(first, CaptureMode::thread_local_);
  EXPECT_NE(driver().capture_id(first), id);
  driver().fill(device.data(), 10, 64, first);
  driver().destroy_graph(driver().end_capture(first));
}

TEST_F(DriverCaptureTest, QuestionsAboutStreamsLeaveTheCaptureAlone) {
  const TestStream first(0);
  const TestStream second(0);
  const TestStream outside(0);
  const TestEvent forked(0);
  const TestEvent joined(0);
  const std::uint64_t identity = driver().stream_identity(second);
  driver().begin_capture(first, CaptureMode::global);
  driver().record_event(forked, first);
  driver().wait_event(second, forked);
  EXPECT_EQ(driver().stream_identity(second), identity);
  const std::uint64_t own = driver().stream_identity(first);
  EXPECT_NE(own, identity);
  EXPECT_NE(own, driver().stream_identity(outside));
  EXPECT_TRUE(driver().query_stream(outside));
  driver().record_event(joined, second);
  driver().wait_event(first, joined);
  driver().destroy_graph(driver().end_capture(first));
  EXPECT_EQ(driver().stream_identity(first), own);
  EXPECT_EQ(driver().stream_identity(second), identity);
}

TEST_F(DriverCaptureTest, ASpoiltCaptureKeepsItsNumber) {
  const TestStream stream(0);
  driver().begin_capture(stream, CaptureMode::thread_local_);
  const std::uint64_t id = driver().capture_id(stream);
  EXPECT_EQ(cuda_error_of([&] { driver().synchronize_stream(stream); }), kCaptureUnsupported);
  EXPECT_EQ(driver().capture_id(stream), id);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().end_capture(stream); }), kCaptureInvalidated);
  EXPECT_EQ(driver().capture_id(stream), 0U);
}

TEST_F(DriverCaptureTest, CapturesOfOtherThreadsGoOnWhileOneEnds) {
  const TestStream first(0);
  const TestStream second(0);
  const DeviceBytes device(0, 64);
  const DeviceBytes other(0, 64);
  driver().begin_capture(first, CaptureMode::global);
  driver().fill(device.data(), 1, 64, first);
  std::thread([&] {
    driver().begin_capture(second, CaptureMode::thread_local_);
    driver().fill(other.data(), 2, 64, second);
    const NativeGraph graph = driver().end_capture(second);
    EXPECT_TRUE(driver().update_graph(graph, graph));
    driver().destroy_graph(graph);
  }).join();
  driver().destroy_graph(driver().end_capture(first));
}

TEST_F(DriverCaptureTest, UnjoinedStreamIsAnError) {
  const TestStream first(0);
  const TestStream second(0);
  const TestEvent forked(0);
  const DeviceBytes device(0, 64);
  driver().begin_capture(first, CaptureMode::thread_local_);
  driver().record_event(forked, first);
  driver().wait_event(second, forked);
  driver().fill(device.data(), 1, 64, second);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().end_capture(first); }), kCaptureUnjoined);
  EXPECT_FALSE(driver().is_capturing(first));
  EXPECT_FALSE(driver().is_capturing(second));
  driver().synchronize_stream(first);
  driver().synchronize_stream(second);
}

TEST_F(DriverCaptureTest, SynchronizingSpoilsTheCapture) {
  const TestStream stream(0);
  driver().begin_capture(stream, CaptureMode::thread_local_);
  EXPECT_EQ(cuda_error_of([&] { driver().synchronize_stream(stream); }), kCaptureUnsupported);
  EXPECT_TRUE(driver().is_capturing(stream)) << "a spoilt capture must still be ended";
  EXPECT_EQ(cuda_error_of([&] { (void)driver().end_capture(stream); }), kCaptureInvalidated);
  EXPECT_FALSE(driver().is_capturing(stream));
  int calls = 0;
  driver().launch_host_function(stream, count, &calls);
  driver().synchronize_stream(stream);
  EXPECT_EQ(calls, 1) << "the stream is usable again";
}

TEST_F(DriverCaptureTest, DefaultStreamCannotBeCaptured) {
  const NativeStream legacy{.device = 0, .handle = nullptr};
  EXPECT_EQ(cuda_error_of([&] { driver().begin_capture(legacy, CaptureMode::thread_local_); }),
            kCaptureUnsupported);
  EXPECT_FALSE(driver().is_capturing(legacy));
}

TEST_F(DriverCaptureTest, CapturesDoNotNest) {
  const TestStream stream(0);
  driver().begin_capture(stream, CaptureMode::thread_local_);
  EXPECT_EQ(cuda_error_of([&] { driver().begin_capture(stream, CaptureMode::thread_local_); }),
            kIllegalState);
  EXPECT_TRUE(driver().is_capturing(stream));
  driver().destroy_graph(driver().end_capture(stream));
  EXPECT_NE(cuda_error_of([&] { (void)driver().end_capture(stream); }), 0);
}

TEST_F(DriverCaptureTest, EmptyCaptureReplaysNothing) {
  const TestStream stream(0);
  driver().begin_capture(stream, CaptureMode::relaxed);
  const NativeGraph graph = driver().end_capture(stream);
  driver().launch_graph(graph, stream);
  driver().synchronize_stream(stream);
  driver().destroy_graph(graph);
}

// Counts how often a graph let go of it.
class Kept {
 public:
  void retain_by(NativeStream stream) {
    driver().retain_by_capture(
        stream, [](void* kept) { ++static_cast<Kept*>(kept)->releases_; }, this);
  }
  [[nodiscard]] int releases() const { return releases_; }
  /// CUDA tells a moment later, and in its own time after a run.
  [[nodiscard]] bool wait_until_released() const {
    return testing::eventually([&] { return releases_ != 0; }) && releases_ == 1;
  }

 private:
  std::atomic<int> releases_{0};
};

TEST_F(DriverCaptureTest, AGraphKeepsObjectsUntilItIsDestroyedAndHasRun) {
  const TestStream stream(0);
  const TestStream runs(0);
  const DeviceBytes device(0, 256);
  Kept kept;
  driver().begin_capture(stream, CaptureMode::thread_local_);
  driver().fill(device.data(), 2, 256, stream);
  kept.retain_by(stream);
  const NativeGraph graph = driver().end_capture(stream);
  driver().launch_graph(graph, runs);
  driver().synchronize_stream(runs);
  EXPECT_EQ(kept.releases(), 0);
  {
    const testing::StreamHold hold{NativeStream(runs)};
    driver().launch_graph(graph, runs);
    driver().destroy_graph(graph);
    EXPECT_EQ(kept.releases(), 0) << "it has not run";
  }
  driver().synchronize_stream(runs);
  EXPECT_TRUE(kept.wait_until_released());
}

TEST_F(DriverCaptureTest, AFailedCaptureKeepsNothing) {
  const TestStream stream(0);
  Kept kept;
  driver().begin_capture(stream, CaptureMode::thread_local_);
  kept.retain_by(stream);
  EXPECT_EQ(cuda_error_of([&] { driver().synchronize_stream(stream); }), kCaptureUnsupported);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().end_capture(stream); }), kCaptureInvalidated);
  EXPECT_TRUE(kept.wait_until_released());
}

TEST_F(DriverCaptureTest, OnlyCapturesKeepObjects) {
  const TestStream stream(0);
  Kept kept;
  EXPECT_EQ(cuda_error_of([&] { kept.retain_by(stream); }), kIllegalState);
  EXPECT_TRUE(kept.wait_until_released());
}

TEST_F(DriverCaptureTest, MemoryMayBeMadeAndFreedInEveryMode) {
  const TestStream stream(0);
  for (const CaptureMode mode :
       {CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed}) {
    driver().begin_capture(stream, mode);
    void* data = driver().allocate(0, 4096);
    ASSERT_NE(data, nullptr);
    driver().fill(data, 1, 4096, stream);
    void* pinned = driver().allocate_pinned(4096);
    ASSERT_NE(pinned, nullptr);
    driver().deallocate_pinned(pinned);
    driver().destroy_graph(driver().end_capture(stream));
    driver().deallocate(0, data);
  }
}

}  // namespace
}  // namespace gantry
