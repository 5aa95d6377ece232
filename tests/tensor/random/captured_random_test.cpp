// Random numbers of replayed graphs beside those of the same work, submitted eagerly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"
#include "tests/support/fault_driver.hpp"
#include "tests/support/stream_hold.hpp"
#include "tests/support/stream_position.hpp"

namespace gantry {
namespace {

class CapturedRandomTest : public testing::DeviceTest {
 protected:
  const Device device_ = Device::cuda(0);
  const TensorOptions options_{.device = device_};

  // Draws of every kind into static tensors.
  struct Draws {
    explicit Draws(Device device)
        : uniform(empty({1001}, device)),
          normal(empty({3, 333}, device)),
          strided(empty({64, 32}, device).t()),
          halves(empty({777}, {.dtype = DType::f16, .device = device})),
          integers(empty({513}, {.dtype = DType::i64, .device = device})),
          flips(empty({255}, {.dtype = DType::u8, .device = device})),
          order(empty({100}, {.dtype = DType::i64, .device = device})) {}

    void draw(GeneratorRef generator = {}) const {
      uniform.uniform_(-1, 1, generator);
      normal.normal_(2, 3, generator);
      strided.normal_(0, 1, generator);
      halves.uniform_(0, 1, generator);
      integers.random_(-50, 1000, generator);
      flips.bernoulli_(0.3, generator);
      const Tensor permutation = generator.get() == nullptr
                                     ? randperm(100, order.device())
                                     : randperm(100, order.device(), *generator.get());
      order.copy_(permutation);
    }
    [[nodiscard]] std::vector<std::vector<double>> values() const {
      std::vector<std::vector<double>> all;
      for (const Tensor& tensor : {uniform, normal, strided, halves, integers, flips, order}) {
        all.push_back(tensor.to(DType::f64).to_vector<double>());
      }
      return all;
    }

    Tensor uniform, normal, strided, halves, integers, flips, order;
  };
};

TEST_F(CapturedRandomTest, ReplaysDrawWhatTheEagerProgramDraws) {
  const Draws eager(device_);
  const Draws captured(device_);
  manual_seed(7);
  Graph graph;
  {
    const GraphCapture capture(graph);
    captured.draw();
  }
  EXPECT_EQ(default_generator(device_).offset(), 0U) << "a capture draws nothing";
  std::vector<std::vector<std::vector<double>>> expected;
  for (int i = 0; i < 3; ++i) {
    eager.draw();
    expected.push_back(eager.values());
  }
  const std::uint64_t offset = default_generator(device_).offset();
  manual_seed(7);
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    EXPECT_EQ(captured.values(), expected[static_cast<std::size_t>(i)]) << i;
  }
  EXPECT_EQ(default_generator(device_).offset(), offset);
  EXPECT_NE(expected[0], expected[1]);
}

TEST_F(CapturedRandomTest, EagerDrawsAndSeedsBetweenReplaysCount) {
  const Draws eager(device_);
  const Draws captured(device_);
  Generator generator(device_, 11);
  Graph graph;
  {
    const GraphCapture capture(graph);
    captured.draw(generator);
  }
  Generator twin(device_, 11);
  for (const std::uint64_t seed : {11U, 99U, 11U}) {
    generator.manual_seed(seed);
    twin.manual_seed(seed);
    for (int i = 0; i < 2; ++i) {
      const Tensor a = rand({5}, device_, generator);
      const Tensor b = rand({5}, device_, twin);
      EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>());
      graph.replay();
      eager.draw(twin);
      EXPECT_EQ(captured.values(), eager.values()) << seed << " " << i;
    }
  }
  generator.set_state(twin.get_state());
  graph.replay();
  eager.draw(twin);
  EXPECT_EQ(captured.values(), eager.values());
}

TEST_F(CapturedRandomTest, ReplaysInFlightOnSeveralStreamsKeepTheirOwnPositions) {
  const Tensor drawn = empty({20'000}, device_);
  const Tensor sum = zeros({20'000}, device_);
  const Tensor expected = zeros({20'000}, device_);
  Graph graph;
  {
    const GraphCapture capture(graph);
    drawn.uniform_();
    sum.add_(drawn);
  }
  manual_seed(3);
  for (int i = 0; i < 20; ++i) expected.add_(rand({20'000}, device_));
  manual_seed(3);
  std::vector<Stream> streams;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(Stream::from_pool(device_));
    streams.back().wait(Stream::current(device_));
  }
  for (int i = 0; i < 20; ++i) {
    const StreamGuard guard(streams[static_cast<std::size_t>(i % 3)]);
    graph.replay();
  }
  synchronize(device_);
  EXPECT_EQ(sum.to_vector<float>(), expected.to_vector<float>());
}

TEST_F(CapturedRandomTest, UpdatedGraphsDrawAsTheirSource) {
  const Tensor drawn = empty({1000}, device_);
  Graph graph;
  {
    const GraphCapture capture(graph);
    drawn.uniform_();
  }
  Generator generator(device_, 5);
  {
    Graph other;
    {
      const GraphCapture capture(other);
      drawn.uniform_(2, 3, generator);
    }
    graph.update(other);
  }
  graph.replay();
  const std::vector<float> values = drawn.to_vector<float>();
  EXPECT_EQ(generator.offset(), 1U);
  const Tensor expected = empty({1000}, device_);
  expected.uniform_(2, 3, Generator(device_, 5));
  EXPECT_EQ(values, expected.to_vector<float>());
}

TEST_F(CapturedRandomTest, EveryDeviceOfACaptureDraws) {
  GANTRY_REQUIRE_DEVICES(2);
  const Device other = Device::cuda(1);
  const Tensor here = empty({1000}, device_);
  const Tensor there = empty({1000}, other);
  const Stream side = Stream::from_pool(other);
  Graph graph;
  {
    const GraphCapture capture(graph);
    here.uniform_();
    side.wait(capture.stream());
    {
      const StreamGuard guard(side);
      there.normal_();
    }
    capture.stream().wait(side);
  }
  manual_seed_all(21);
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> first = rand({1000}, device_).to_vector<float>();
    const std::vector<float> second = randn({1000}, other).to_vector<float>();
    default_generator(device_).set_offset(static_cast<std::uint64_t>(i));
    default_generator(other).set_offset(static_cast<std::uint64_t>(i));
    graph.replay();
    synchronize(device_);
    EXPECT_EQ(here.to_vector<float>(), first) << i;
    EXPECT_EQ(there.to_vector<float>(), second) << i;
  }
}

// Notes how two streams are ordered where a graph is launched.
class LaunchOrder : public testing::FaultDriver {
 public:
  LaunchOrder(Stream launching, Stream drawing)
      : launching_(std::move(launching)), drawing_(std::move(drawing)), launched_(launching_) {}

  void wait_event(NativeStream stream, NativeEvent event) override {
    testing::FaultDriver::wait_event(stream, event);
    // The next work of the drawing stream comes behind its wait.
    if (stream.handle == drawing_.native().handle) stored_.emplace(drawing_);
  }
  void launch_graph(NativeGraph graph, NativeStream stream) override {
    waits_for_last_launch = launched_.precedes(drawing_);
    is_behind_store = stored_ && stored_->precedes(launching_);
    testing::FaultDriver::launch_graph(graph, stream);
    launched_ = testing::StreamPosition(launching_);
  }

  bool waits_for_last_launch = false;
  bool is_behind_store = false;

 private:
  const Stream launching_;
  const Stream drawing_;
  testing::StreamPosition launched_;
  std::optional<testing::StreamPosition> stored_;
};

// The second replay begins while the first one may still read its position.
TEST_F(CapturedRandomTest, APositionOnAnotherDeviceIsStoredBetweenTwoReplays) {
  GANTRY_REQUIRE_DEVICES(2);
  const Device other = Device::cuda(1);
  const Tensor drawn = empty({1000}, other);
  const Tensor sum = zeros({1000}, other);
  const Stream side = Stream::from_pool(other);
  Graph graph;
  {
    const GraphCapture capture(graph);
    side.wait(capture.stream());
    {
      const StreamGuard guard(side);
      drawn.uniform_();
      sum.add_(drawn);
    }
    capture.stream().wait(side);
  }
  const std::uint64_t offset = default_generator(other).offset();
  const Tensor expected = rand({1000}, other).add(rand({1000}, other));
  default_generator(other).set_offset(offset);
  for (const Device device : {device_, other}) synchronize(device);
  const StreamGuard launching(Stream::from_pool(device_));
  const Stream second = Stream::from_pool(other);
  {
    LaunchOrder order(Stream::current(device_), second);
    testing::StreamHold hold(Stream::current(device_));
    {
      const StreamGuard first(Stream::from_pool(other));
      graph.replay();
    }
    const StreamGuard guard(second);
    graph.replay();
    EXPECT_TRUE(order.waits_for_last_launch);
    EXPECT_TRUE(order.is_behind_store);
    hold.release();
    for (const Device device : {device_, other}) synchronize(device);
  }
  EXPECT_EQ(sum.to_vector<float>(), expected.to_vector<float>());
}

TEST_F(CapturedRandomTest, AGraphThatDrawsIsNoPartOfAnother) {
  const Tensor drawn = empty({10}, device_);
  Graph inner;
  {
    const GraphCapture capture(inner);
    drawn.uniform_();
  }
  Graph outer;
  {
    const GraphCapture capture(outer);
    EXPECT_ERROR(inner.replay(), CaptureError,
                 "expected a stream that is not being captured, since the graph draws random");
  }
}

}  // namespace
}  // namespace gantry
