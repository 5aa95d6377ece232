// Long rows of small kernels, each of which needs what the one ahead of it wrote. A step keeps the
// differences between elements and the values small, so that a step that reads too early changes
// all numbers behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/streams/graph_fixture.hpp"

namespace gantry {
namespace {

// One element, a block, and many blocks on each multiprocessor.
class OverlappedLaunchesTest : public testing::GraphTest,
                               public ::testing::WithParamInterface<std::int64_t> {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    expected_.resize(static_cast<std::size_t>(GetParam()));
    std::iota(expected_.begin(), expected_.end(), 0.0F);
    values_ = tensor(expected_, options_);
    other_ = zeros_like(values_);
  }

  // Temporaries, whose memory the next step takes again.
  void reflect() const {
    const Tensor doubled = values_ * 2;
    const Tensor mirrored = values_ - doubled;
    values_.copy_(mirrored + 7);
  }
  void reflect_expected() {
    for (float& value : expected_) value = 7 - value;
  }
  // A copy, a reduction and a strided kernel between elementwise ones. Values start from 0 again.
  void turn() const {
    other_.copy_(values_);
    const Tensor greatest = other_.max();
    values_.fill_(-1);
    values_.copy_((greatest - other_).flip({0}));
  }
  void turn_expected() {
    const float greatest = *std::max_element(expected_.begin(), expected_.end());
    for (float& value : expected_) value = greatest - value;
    std::reverse(expected_.begin(), expected_.end());
  }
  void steps() const {
    for (int i = 0; i < 12; ++i) reflect();
    turn();
    reflect();
    reflect();
    values_.add_(1);
    turn();
  }
  void expect_steps() {
    for (int i = 0; i < 12; ++i) reflect_expected();
    turn_expected();
    reflect_expected();
    reflect_expected();
    for (float& value : expected_) value += 1;
    turn_expected();
  }

  Tensor values_;
  Tensor other_;
  std::vector<float> expected_;
};

TEST_P(OverlappedLaunchesTest, AKernelReadsWhatTheOneAheadWrote) {
  for (int i = 0; i < 15; ++i) {
    steps();
    expect_steps();
  }
  EXPECT_EQ(values_.to_vector<float>(), expected_);
}

TEST_P(OverlappedLaunchesTest, EventsOfOtherStreamsWaitForTheWholeRow) {
  std::vector<Stream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(Stream::from_pool(device_));
  Stream last = Stream::current(device_);
  for (std::size_t i = 0; i < 15; ++i) {
    Stream& next = streams[i % streams.size()];
    next.wait(last);
    const StreamGuard guard(next);
    steps();
    expect_steps();
    last = next;
  }
  Stream::current(device_).wait(last);
  EXPECT_EQ(values_.to_vector<float>(), expected_);
}

TEST_P(OverlappedLaunchesTest, ReplaysKeepTheOrder) {
  Graph graph;
  {
    const GraphCapture capture(graph);
    steps();
    Stream side = Stream::from_pool(device_);
    side.wait(capture.stream());
    {
      const StreamGuard guard(side);
      steps();
    }
    Stream::current(device_).wait(side);
    steps();
  }
  for (int i = 0; i < 5; ++i) {
    graph.replay();
    reflect();
    for (int k = 0; k < 3; ++k) expect_steps();
    reflect_expected();
  }
  EXPECT_EQ(values_.to_vector<float>(), expected_);
}

TEST_P(OverlappedLaunchesTest, BodiesOfConditionsKeepTheOrder) {
  if (!driver().supports_conditions(0)) GTEST_SKIP() << "the driver has no conditional nodes";
  const Tensor left = zeros({}, {.dtype = DType::i32, .device = device_});
  Graph graph;
  {
    const GraphCapture capture(graph);
    reflect();
    graph_while(left, [&] {
      steps();
      left.sub_(1);
    });
    reflect();
    values_.add_(3);
  }
  for (const int rounds : {1, 4, 0, 2}) {
    left.fill_(rounds);
    graph.replay();
    reflect_expected();
    for (int k = 0; k < rounds; ++k) expect_steps();
    reflect_expected();
    for (float& value : expected_) value += 3;
  }
  EXPECT_EQ(values_.to_vector<float>(), expected_);
}

INSTANTIATE_TEST_SUITE_P(Sizes, OverlappedLaunchesTest,
                         ::testing::Values<std::int64_t>(1, 1000, 100'000));

}  // namespace
}  // namespace gantry
