#include "streams/stream_signal.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/device/driver.hpp>
#include <gantry/streams/event.hpp>

#include "streams/stream_clock.hpp"
#include "tests/support/device_fixture.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"

namespace gantry {
namespace {

using testing::FaultDriver;
using testing::StreamHold;

class StreamSignalTest : public testing::DeviceTest {
 protected:
  static std::vector<Device> devices() {
    std::vector<Device> result;
    for (int i = 0; i < device_count(); ++i) result.push_back(Device::cuda(i));
    return result;
  }
  // One new stream on every device; the first is the one that is waited for.
  static std::vector<Stream> one_each() {
    std::vector<Stream> streams;
    for (const Device device : devices()) streams.push_back(Stream::from_pool(device));
    return streams;
  }
};

void set_seven(void* data) { static_cast<std::atomic<int>*>(data)->store(7); }

TEST_F(StreamSignalTest, EveryStreamWaits) {
  std::vector<Stream> streams = one_each();
  streams.push_back(Stream::from_pool(Device::cuda(0)));
  streams.push_back(Stream::default_stream(devices().back()));
  std::atomic<int> value{0};
  StreamHold hold(streams[0]);
  driver().launch_host_function(streams[0].native(), set_seven, &value);
  release_streams(streams[0], streams);
  for (std::size_t i = 1; i < streams.size(); ++i) EXPECT_FALSE(streams[i].query()) << i;
  hold.release();
  for (std::size_t i = 1; i < streams.size(); ++i) {
    streams[i].synchronize();
    EXPECT_EQ(value.load(), 7) << i;
  }
}

TEST_F(StreamSignalTest, ClocksKnowTheOrder) {
  const std::vector<Stream> streams = one_each();
  const StreamClock& clock = StreamClock::of(streams[0]);
  StreamHold hold(streams[0]);
  const std::uint64_t before = clock.next_mark();
  release_streams(streams[0], streams);
  const std::uint64_t after = clock.next_mark();
  for (std::size_t i = 1; i < streams.size(); ++i) {
    EXPECT_TRUE(StreamClock::of(streams[i]).is_after(clock, before)) << i;
    EXPECT_FALSE(StreamClock::of(streams[i]).is_after(clock, after)) << i;
  }
  EXPECT_LT(clock.completed(), before);
  hold.release();
  for (const Stream& stream : streams) stream.synchronize();
  EXPECT_GE(clock.completed(), before);
}

TEST_F(StreamSignalTest, OneWriteServesManyDevicesAndEventsServeOne) {
  GANTRY_REQUIRE_DEVICES(3);
  const std::vector<Stream> streams = one_each();
  release_streams(streams[0], streams);
  const auto others = static_cast<std::uint64_t>(streams.size() - 1);
  const FaultDriver calls;
  release_streams(streams[0], streams);
  EXPECT_EQ(calls.calls("write_word"), 1u);
  EXPECT_EQ(calls.calls("wait_word"), others);
  EXPECT_EQ(calls.calls("record_event") + calls.calls("wait_event"), 0u);
  release_streams(streams[0], std::span(streams).first(2));
  EXPECT_EQ(calls.calls("write_word"), 1u);
  EXPECT_EQ(calls.calls("record_event"), 1u);
  EXPECT_EQ(calls.calls("wait_event"), 1u);
  release_streams(streams[0], {});
  release_streams(streams[0], std::span(streams).first(1));
  EXPECT_EQ(calls.calls("record_event"), 1u);
}

TEST_F(StreamSignalTest, AWordMayCountRound) {
  GANTRY_REQUIRE_DEVICES(2);
  const std::vector<Stream> streams = one_each();
  auto* const word = static_cast<std::uint32_t*>(driver().allocate_pinned(64));
  ASSERT_NE(word, nullptr);
  *word = 0xffff'fffe;
  for (const std::uint32_t value : {0xffff'ffffu, 0u, 1u}) {
    driver().write_word(streams[0].native(), word, value);
    driver().wait_word(streams[1].native(), word, 0xffff'ffffu);
    driver().wait_word(streams[1].native(), word, value);
    streams[1].synchronize();
    EXPECT_EQ(*word, value);
  }
  driver().deallocate_pinned(word);
}

TEST_F(StreamSignalTest, CapturedStreamsTakeEvents) {
  GANTRY_REQUIRE_DEVICES(3);
  const std::vector<Stream> streams = one_each();
  driver().begin_capture(streams[0].native(), CaptureMode::relaxed);
  {
    const FaultDriver calls;
    release_streams(streams[0], streams);
    EXPECT_EQ(calls.calls("write_word") + calls.calls("wait_word"), 0u);
  }
  for (std::size_t i = 1; i < streams.size(); ++i) {
    EXPECT_TRUE(driver().is_capturing(streams[i].native())) << i;
    streams[0].wait(streams[i]);
  }
  const NativeGraph graph = driver().end_capture(streams[0].native());
  driver().launch_graph(graph, streams[0].native());
  streams[0].synchronize();
  driver().destroy_graph(graph);
}

TEST_F(StreamSignalTest, AFailedCallLeavesItUsable) {
  GANTRY_REQUIRE_DEVICES(3);
  const std::vector<Stream> streams = one_each();
  release_streams(streams[0], streams);
  FaultDriver faults;
  for (const char* call : {"write_word", "wait_word"}) {
    faults.fail_on(call, 1);
    EXPECT_THROW(release_streams(streams[0], streams), CudaError) << call;
    release_streams(streams[0], streams);
  }
  for (const Stream& stream : streams) stream.synchronize();
}

TEST_F(StreamSignalTest, ThreadsShareAStream) {
  GANTRY_REQUIRE_DEVICES(3);
  const Stream hub = Stream::from_pool(Device::cuda(0));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const std::vector<Stream> own = one_each();
      for (int i = 0; i < 100; ++i) {
        release_streams(hub, own);
        hub.wait(own.back());
      }
      for (const Stream& stream : own) stream.synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  hub.synchronize();
}

}  // namespace
}  // namespace gantry
