// Conditions in captured graphs, by fills and copies alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <vector>

#include "tests/device/driver/driver_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace gantry {
namespace {

using testing::cuda_error_of;
using testing::DeviceBytes;
using testing::PinnedBytes;
using testing::TestEvent;
using testing::TestStream;

constexpr int kInvalidValue = 1;
constexpr int kIllegalState = 401;
constexpr int kNotSupported = 801;
constexpr int kCaptureUnsupported = 900;
constexpr int kCaptureInvalidated = 901;
constexpr int kCaptureUnjoined = 904;
constexpr std::size_t kBytes = 64;

class DriverConditionTest : public testing::DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (!driver().supports_conditions(0)) GTEST_SKIP() << "the driver has no conditional nodes";
  }

  // Bytes of device memory that the host reads and writes.
  class Cells {
   public:
    explicit Cells(std::uint8_t value = 0) : device_(0, kBytes), host_(kBytes) {
      set(std::vector<std::uint8_t>(kBytes, value));
    }
    void set(std::vector<std::uint8_t> values) {
      const TestStream stream(0);
      values.resize(kBytes);
      std::copy(values.begin(), values.end(), host_.data());
      driver().copy(device_.data(), host_.data(), kBytes, stream);
      driver().synchronize_stream(stream);
    }
    [[nodiscard]] std::vector<std::uint8_t> values(std::size_t count = kBytes) const {
      const TestStream stream(0);
      driver().copy(host_.data(), device_.data(), kBytes, stream);
      driver().synchronize_stream(stream);
      return {host_.data(), host_.data() + count};
    }
    [[nodiscard]] std::byte* at(std::size_t index = 0) const {
      return static_cast<std::byte*>(device_.data()) + index;
    }
    // Drops the first value; the others move forward.
    void shift(NativeStream stream) const {
      driver().copy(spare_.data(), at(1), kBytes - 1, stream);
      driver().copy(at(), spare_.data(), kBytes - 1, stream);
    }
    // Puts a value in front of the others.
    void push(std::uint8_t value, NativeStream stream) const {
      driver().copy(spare_.data(), at(), kBytes - 1, stream);
      driver().copy(at(1), spare_.data(), kBytes - 1, stream);
      driver().fill(at(), value, 1, stream);
    }

   private:
    DeviceBytes device_;
    DeviceBytes spare_{0, kBytes};
    PinnedBytes host_;
  };

  static NativeCondition when(const void* flag) { return {.flag = flag}; }
  static NativeCondition as_long_as(const void* flag) {
    return {.kind = ConditionKind::while_, .flag = flag};
  }
  static std::vector<std::uint8_t> equal(std::size_t count, std::uint8_t value) {
    return std::vector<std::uint8_t>(count, value);
  }
  void replay(NativeGraph graph) const {
    driver().launch_graph(graph, stream_);
    driver().synchronize_stream(stream_);
  }

  const TestStream stream_{0};
  const TestStream body_{0};
  const TestStream inner_{0};
};

TEST_F(DriverConditionTest, ABodyRunsInTheReplaysWhoseFlagIsSet) {
  for (const std::size_t flag_bytes : {std::size_t{1}, std::size_t{4}}) {
    Cells flag;
    Cells out;
    driver().begin_capture(stream_, CaptureMode::global);
    driver().fill(out.at(), 1, 8, stream_);
    driver().begin_condition(stream_, {.flag = flag.at(), .flag_bytes = flag_bytes}, body_);
    driver().fill(out.at(), 2, 4, body_);
    driver().end_condition(body_);
    driver().copy(out.at(8), out.at(), 8, stream_);
    const NativeGraph graph = driver().end_capture(stream_);
    EXPECT_EQ(out.values(), equal(kBytes, 0)) << "captured work does not run";
    const std::vector<std::uint8_t> set{2, 2, 2, 2, 1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 1, 1};
    for (const bool is_set : {false, true, true, false}) {
      std::vector<std::uint8_t> value(4, 0);
      value[flag_bytes - 1] = is_set ? 0x80 : 0;
      flag.set(value);
      replay(graph);
      EXPECT_EQ(out.values(16), is_set ? set : equal(16, 1)) << flag_bytes;
    }
    driver().destroy_graph(graph);
  }
}

TEST_F(DriverConditionTest, ALoopEndsBehindTheRoundInWhichAStopIsSet) {
  Cells flag;
  Cells stops;
  Cells marks;
  // The stop of the inner loop also ends the loop around it.
  driver().begin_capture(stream_, CaptureMode::global);
  driver().begin_condition(stream_, as_long_as(flag.at()), body_);
  driver().begin_condition(body_, as_long_as(flag.at()), inner_);
  marks.push(7, inner_);
  driver().copy(stops.at(4), stops.at(0), 4, inner_);
  driver().stop_condition(inner_, reinterpret_cast<const std::uint32_t*>(stops.at(4)));
  driver().stop_condition(inner_, reinterpret_cast<const std::uint32_t*>(stops.at(4)));
  driver().end_condition(inner_);
  marks.push(8, body_);
  driver().end_condition(body_);
  driver().stop_condition(stream_, reinterpret_cast<const std::uint32_t*>(stops.at(4)));  // no body
  const NativeGraph graph = driver().end_capture(stream_);
  flag.set({1});
  for (int round = 0; round < 2; ++round) {
    marks.set({});
    stops.set({0, 0, 1, 0});
    replay(graph);
    std::vector<std::uint8_t> expected(kBytes, 0);
    expected[0] = 8;
    expected[1] = 7;
    EXPECT_EQ(marks.values(), expected);
  }
  driver().destroy_graph(graph);
}

TEST_F(DriverConditionTest, ALoopHasAtMostEightStops) {
  Cells flag;
  Cells stops;
  driver().begin_capture(stream_, CaptureMode::global);
  driver().begin_condition(stream_, as_long_as(flag.at()), body_);
  const auto stop = [&](std::size_t i) {
    driver().stop_condition(body_, reinterpret_cast<const std::uint32_t*>(stops.at()) + i);
  };
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 8; ++i) stop(i);  // equal words count once
  }
  constexpr int kNotSupported = 801;
  EXPECT_EQ(cuda_error_of([&] { stop(8); }), kNotSupported);
  driver().abandon_condition(body_);
  EXPECT_NE(cuda_error_of([&] { driver().end_capture(stream_); }), 0);
}

TEST_F(DriverConditionTest, ALoopReadsItsFlagBeforeEachRound) {
  Cells flags;
  Cells marks;
  driver().begin_capture(stream_, CaptureMode::global);
  driver().begin_condition(stream_, as_long_as(flags.at()), body_);
  marks.push(7, body_);
  flags.shift(body_);
  driver().end_condition(body_);
  const NativeGraph graph = driver().end_capture(stream_);
  for (const std::size_t rounds : {3, 0, 1, 20}) {
    marks.set({});
    flags.set(equal(rounds, 1));
    replay(graph);
    std::vector<std::uint8_t> expected = equal(rounds, 7);
    expected.resize(kBytes);
    EXPECT_EQ(marks.values(), expected) << rounds << " rounds";
  }
  driver().destroy_graph(graph);
}

TEST_F(DriverConditionTest, BodiesNest) {
  Cells flags;
  Cells choices;
  Cells marks;
  driver().begin_capture(stream_, CaptureMode::global);
  driver().begin_condition(stream_, as_long_as(flags.at()), body_);
  driver().begin_condition(body_, when(choices.at()), inner_);
  EXPECT_EQ(driver().condition_depth(inner_), 2);
  marks.push(9, inner_);
  driver().end_condition(inner_);
  marks.push(5, body_);
  choices.shift(body_);
  flags.shift(body_);
  driver().end_condition(body_);
  const NativeGraph graph = driver().end_capture(stream_);
  for (int round = 0; round < 2; ++round) {
    marks.set({});
    flags.set({1, 1, 1});
    choices.set({1, 0, 1});
    replay(graph);
    EXPECT_EQ(marks.values(6), (std::vector<std::uint8_t>{5, 9, 5, 5, 9, 0}));
  }
  driver().destroy_graph(graph);
}

TEST_F(DriverConditionTest, ABodyBelongsToTheCaptureAroundIt) {
  const Cells flag(1);
  const Cells out;
  const TestStream side(0);
  const TestEvent forked(0);
  const TestEvent joined(0);
  driver().begin_capture(stream_, CaptureMode::global);
  const std::uint64_t id = driver().capture_id(stream_);
  EXPECT_EQ(driver().condition_depth(stream_), 0);
  driver().begin_condition(stream_, when(flag.at()), body_);
  driver().record_event(forked, body_);
  driver().wait_event(side, forked);
  for (const NativeStream inside : {NativeStream(body_), NativeStream(side)}) {
    EXPECT_TRUE(driver().is_capturing(inside));
    EXPECT_EQ(driver().capture_id(inside), id);
    EXPECT_EQ(driver().condition_depth(inside), 1);
  }
  driver().fill(out.at(), 3, 4, side);
  driver().record_event(joined, side);
  driver().wait_event(body_, joined);
  driver().copy(out.at(4), out.at(), 4, body_);
  driver().end_condition(body_);
  for (const NativeStream ended : {NativeStream(body_), NativeStream(side)}) {
    EXPECT_FALSE(driver().is_capturing(ended));
    EXPECT_EQ(driver().condition_depth(ended), 0);
  }
  EXPECT_EQ(driver().condition_depth(stream_), 0);
  const NativeGraph graph = driver().end_capture(stream_);
  replay(graph);
  EXPECT_EQ(out.values(9), (std::vector<std::uint8_t>{3, 3, 3, 3, 3, 3, 3, 3, 0}));
  driver().destroy_graph(graph);
}

TEST_F(DriverConditionTest, ABodyReplaysOtherGraphs) {
  const Cells flag(1);
  const Cells out;
  driver().begin_capture(stream_, CaptureMode::global);
  driver().fill(out.at(), 4, 4, stream_);
  const NativeGraph part = driver().end_capture(stream_);
  driver().begin_capture(stream_, CaptureMode::global);
  driver().begin_condition(stream_, when(flag.at()), body_);
  driver().launch_graph(part, body_);
  driver().copy(out.at(4), out.at(), 2, body_);
  driver().end_condition(body_);
  const NativeGraph graph = driver().end_capture(stream_);
  driver().destroy_graph(part);
  replay(graph);
  EXPECT_EQ(out.values(8), (std::vector<std::uint8_t>{4, 4, 4, 4, 4, 4, 0, 0}));
  driver().destroy_graph(graph);
}

TEST_F(DriverConditionTest, ObjectsOfABodyLiveAsLongAsTheGraph) {
  const Cells flag(1);
  std::atomic<int> releases{0};
  driver().begin_capture(stream_, CaptureMode::global);
  driver().begin_condition(stream_, when(flag.at()), body_);
  driver().retain_by_capture(
      body_, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &releases);
  driver().end_condition(body_);
  const NativeGraph graph = driver().end_capture(stream_);
  replay(graph);
  EXPECT_EQ(releases, 0);
  driver().destroy_graph(graph);
  EXPECT_TRUE(testing::eventually([&] { return releases != 0; }));
  EXPECT_EQ(releases, 1);
}

TEST_F(DriverConditionTest, WrongArgumentsChangeNothing) {
  const Cells flag(1);
  const Cells out;
  EXPECT_EQ(cuda_error_of([&] { driver().begin_condition(stream_, when(flag.at()), body_); }),
            kIllegalState)
      << "no capture";
  EXPECT_EQ(cuda_error_of([&] { driver().end_condition(body_); }), kIllegalState);
  driver().abandon_condition(body_);
  driver().begin_capture(stream_, CaptureMode::global);
  driver().fill(out.at(), 1, 4, stream_);
  const NativeStream legacy{.device = 0, .handle = nullptr};
  EXPECT_EQ(cuda_error_of([&] { driver().begin_condition(stream_, when(flag.at()), legacy); }),
            kInvalidValue);
  EXPECT_EQ(cuda_error_of([&] {
              driver().begin_condition(stream_, {.flag = flag.at(), .flag_bytes = 3}, body_);
            }),
            kInvalidValue);
  EXPECT_EQ(cuda_error_of([&] { driver().begin_condition(stream_, when(flag.at()), stream_); }),
            kIllegalState);
  EXPECT_EQ(cuda_error_of([&] { driver().end_condition(stream_); }), kIllegalState);
  const NativeGraph graph = driver().end_capture(stream_);
  replay(graph);
  EXPECT_EQ(out.values(4), equal(4, 1));
  driver().destroy_graph(graph);
}

TEST_F(DriverConditionTest, ASpoiltBodySpoilsTheCapture) {
  const Cells flag(1);
  const TestStream side(0);
  const TestEvent forked(0);
  const auto spoils = [&](const char* what, auto in_body) {
    driver().begin_capture(stream_, CaptureMode::global);
    driver().begin_condition(stream_, when(flag.at()), body_);
    in_body();
    EXPECT_FALSE(driver().is_capturing(body_)) << what;
    EXPECT_EQ(cuda_error_of([&] { (void)driver().end_capture(stream_); }), kCaptureInvalidated)
        << what;
    EXPECT_FALSE(driver().is_capturing(stream_)) << what;
  };
  spoils("a wait of the host", [&] {
    EXPECT_EQ(cuda_error_of([&] { driver().synchronize_stream(body_); }), kCaptureUnsupported);
    EXPECT_EQ(cuda_error_of([&] { driver().end_condition(body_); }), kCaptureInvalidated);
  });
  spoils("an unjoined stream", [&] {
    driver().record_event(forked, body_);
    driver().wait_event(side, forked);
    driver().fill(flag.at(8), 0, 1, side);
    EXPECT_EQ(cuda_error_of([&] { driver().end_condition(body_); }), kCaptureUnjoined);
  });
  spoils("a body that is abandoned", [&] { driver().abandon_condition(body_); });
  spoils("a host function", [&] {
    EXPECT_EQ(cuda_error_of([&] {
                driver().launch_host_function(
                    body_, [](void*) {}, nullptr);
              }),
              kCaptureUnsupported);
    driver().abandon_condition(body_);
  });
  // Everything is usable again.
  driver().fill(flag.at(), 1, 1, body_);
  driver().synchronize_stream(body_);
  driver().synchronize_stream(side);
}

TEST_F(DriverConditionTest, AnEndAroundAnOpenBodyFails) {
  const Cells flag(1);
  driver().begin_capture(stream_, CaptureMode::global);
  driver().begin_condition(stream_, when(flag.at()), body_);
  driver().begin_condition(body_, when(flag.at()), inner_);
  EXPECT_NE(cuda_error_of([&] { (void)driver().end_capture(stream_); }), 0);
  for (const NativeStream one :
       {NativeStream(stream_), NativeStream(body_), NativeStream(inner_)}) {
    EXPECT_FALSE(driver().is_capturing(one));
    driver().synchronize_stream(one);
  }
}

TEST_F(DriverConditionTest, ABodyWaitsForNoEventOfTheWorkAroundIt) {
  const Cells flag(1);
  const TestEvent outside(0);
  driver().begin_capture(stream_, CaptureMode::global);
  driver().record_event(outside, stream_);
  driver().begin_condition(stream_, when(flag.at()), body_);
  EXPECT_NE(cuda_error_of([&] { driver().wait_event(body_, outside); }), 0);
  driver().abandon_condition(body_);
  EXPECT_EQ(cuda_error_of([&] { (void)driver().end_capture(stream_); }), kCaptureInvalidated);
}

TEST_F(DriverConditionTest, AGraphWithConditionsIsNoPartAndHasNoUpdates) {
  const Cells flag(1);
  const auto capture = [&] {
    driver().begin_capture(stream_, CaptureMode::global);
    driver().begin_condition(stream_, when(flag.at()), body_);
    driver().fill(flag.at(8), 1, 1, body_);
    driver().end_condition(body_);
    return driver().end_capture(stream_);
  };
  const NativeGraph graph = capture();
  const NativeGraph other = capture();
  EXPECT_FALSE(driver().update_graph(graph, other));
  driver().begin_capture(stream_, CaptureMode::global);
  EXPECT_EQ(cuda_error_of([&] { driver().launch_graph(graph, stream_); }), kNotSupported);
  driver().destroy_graph(driver().end_capture(stream_));
  driver().destroy_graph(other);
  replay(graph);
  EXPECT_EQ(flag.values(9).back(), 1);
  driver().destroy_graph(graph);
}

TEST_F(DriverConditionTest, ABodyHasOneDevice) {
  GANTRY_REQUIRE_DEVICES(2);
  const Cells flag(1);
  const TestStream other(1);
  const TestEvent forked(0);
  const TestEvent joined(1);
  driver().begin_capture(stream_, CaptureMode::global);
  const int code = cuda_error_of([&] {
    driver().begin_condition(stream_, when(flag.at()), body_);
    driver().record_event(forked, body_);
    driver().wait_event(other, forked);
    driver().record_event(joined, other);
    driver().wait_event(body_, joined);
    driver().end_condition(body_);
  });
  driver().abandon_condition(body_);
  if (code != 0) {
    EXPECT_EQ(cuda_error_of([&] { (void)driver().end_capture(stream_); }), kCaptureInvalidated);
  } else {
    driver().destroy_graph(driver().end_capture(stream_));  // without work there
  }
  EXPECT_FALSE(driver().is_capturing(other));
}

}  // namespace
}  // namespace gantry
