// Calls of generators that replays could not repeat: they are refused in captures.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/graphed.hpp>

#include "tests/tensor/random/captured_generator_fixture.hpp"

namespace gantry {
namespace {

using testing::CapturedGeneratorTest;
using ::testing::HasSubstr;

TEST_F(CapturedGeneratorTest, SeedsAreRefused) {
  Generator other(device_, 5);
  expect_refused(
      "manual_seed: expected a call outside of the capture of a graph, but got one "
      "inside, which replays would not repeat; seed before a replay",
      [] { manual_seed(9); });
  expect_refused("manual_seed: ", [&] { generator().manual_seed(9); });
  expect_refused("seed: ", [] { static_cast<void>(seed()); });
  expect_refused("seed: ", [&] { static_cast<void>(generator().seed()); });
  expect_refused("manual_seed: ", [&] { other.manual_seed(9); });
  EXPECT_EQ(other.initial_seed(), 5U);
}

TEST_F(CapturedGeneratorTest, SeedsOfAllDevicesChangeNoneOfThem) {
  default_generator(Device::cpu()).manual_seed(11);
  for (int i = 0; i < device_count(); ++i) default_generator(Device::cuda(i)).manual_seed(7);
  std::vector<Tensor> states = get_rng_state_all();
  expect_refused("manual_seed_all: ", [] { manual_seed_all(9); });
  expect_refused("seed_all: ", [] { static_cast<void>(seed_all()); });
  expect_refused("set_rng_state_all: ", [&] { set_rng_state_all(states); });
  EXPECT_EQ(default_generator(Device::cpu()).initial_seed(), 11U);
  for (int i = 0; i < device_count(); ++i) {
    EXPECT_EQ(default_generator(Device::cuda(i)).initial_seed(), 7U) << i;
  }
}

TEST_F(CapturedGeneratorTest, PositionsThatAreNotRelativeAreRefused) {
  expect_refused("set_offset: ", [&] { generator().set_offset(0); });
  expect_refused("take: ", [&] { static_cast<void>(generator().take()); });
  expect_refused("fork: ", [&] { static_cast<void>(generator().fork(1)); });
  EXPECT_THAT(testing::message_of<CaptureError>([&] {
                Graph graph;
                const GraphCapture capture(graph);
                static_cast<void>(generator().take());
              }),
              HasSubstr("call reserve(), whose position each replay advances"));
}

TEST_F(CapturedGeneratorTest, StatesOfOtherMomentsAreRefused) {
  const Tensor before = generator().get_state();
  generator().manual_seed(7);
  const Tensor equal = generator().get_state();
  expect_refused("set_rng_state: ", [&] { set_rng_state(before, device_); });
  expect_refused("set_state: ", [&] { generator().set_state(before); });
  expect_refused("set_state: ", [&] { generator().set_state(equal); });
  // A state from outside is another one, whatever its bytes.
  Graph graph;
  {
    const GraphCapture capture(graph);
    const Tensor inside = generator().get_state();
    EXPECT_ERROR(generator().set_state(equal), CaptureError,
                 "pass a state that get_state() returned in the same capture, unchanged");
    generator().set_state(inside);
    inside.fill_(1);
    EXPECT_ERROR(generator().set_state(inside), CaptureError, "unchanged");
  }
  // The states of an earlier capture and of another generator.
  Tensor earlier;
  Graph first;
  {
    const GraphCapture capture(first);
    earlier = generator().get_state();
  }
  Generator other(device_, 7);
  expect_refused("set_state: ", [&] { generator().set_state(earlier); });
  expect_refused("set_state: ", [&] { generator().set_state(other.get_state()); });
  // Bad states are refused as outside.
  expect_refused("no such error", [&] {
    EXPECT_ERROR(generator().set_state(zeros({8}, u8)), InvalidArgument,
                 "set_state: expected a CPU");
  });
}

TEST_F(CapturedGeneratorTest, FailedFunctionsLeaveTheGeneratorAsBefore) {
  manual_seed(3);
  EXPECT_ERROR(make_graphed(
                   [&](std::span<const Tensor>) -> std::vector<Tensor> {
                     static_cast<void>(draw());
                     throw InvalidArgument("no step");
                   },
                   {ones({5}, device_)}),
               InvalidArgument, "no step");
  EXPECT_EQ(generator().offset(), 0U);
}

TEST_F(CapturedGeneratorTest, FailedCapturesLeaveTheGeneratorAsBefore) {
  Generator other(device_, 5);
  other.set_offset(4);
  Graph graph;
  EXPECT_ERROR(
      [&] {
        const GraphCapture capture(graph);
        const Tensor state = other.get_state();
        static_cast<void>(draw(other));
        other.advance(3);
        static_cast<void>(other.reserve(2));
        other.set_state(state);
        static_cast<void>(draw(other));
        throw InvalidArgument("stop");
      }(),
      InvalidArgument, "stop");
  EXPECT_EQ(other.initial_seed(), 5U);
  EXPECT_EQ(other.offset(), 4U);
}

TEST_F(CapturedGeneratorTest, BodiesOfConditionsMoveNoGenerator) {
  if (!driver().supports_conditions(0)) GTEST_SKIP() << "the driver has no conditional nodes";
  const Tensor flag = ones({}, {.dtype = bool_, .device = device_});
  const Tensor out = zeros({5}, device_);
  for (const auto& [text, call] : std::vector<std::pair<std::string, std::function<void()>>>{
           {"random: expected a draw outside of graph_if", [&] { static_cast<void>(draw()); }},
           {"random: expected a draw outside of graph_if",
            [&] { static_cast<void>(generator().reserve()); }},
           {"advance: expected a draw outside of graph_if", [&] { generator().advance(); }},
           {"set_state: expected a draw outside of graph_if",
            [&] { generator().set_state(generator().get_state()); }},
           {"take: ", [&] { static_cast<void>(generator().take()); }},
           {"manual_seed: ", [&] { manual_seed(1); }}}) {
    Graph graph;
    const GraphCapture capture(graph);
    graph_if(flag, [&, &text = text, &call = call] {
      EXPECT_THAT(testing::message_of<CaptureError>(call), HasSubstr(text));
      out.add_(1);
    });
  }
}

TEST_F(CapturedGeneratorTest, CapturesWithoutAGraphDrawNothing) {
  const Stream stream = Stream::from_pool(device_);
  const std::uint64_t offset = generator().offset();
  driver().begin_capture(stream.native(), CaptureMode::thread_local_);
  {
    const StreamGuard guard(stream);
    const Tensor out = empty({5}, device_);
    EXPECT_ERROR(out.uniform_(), CaptureError, "random: expected the capture of a graph");
    EXPECT_ERROR(generator().reserve(), CaptureError, "random: expected the capture of a graph");
  }
  driver().destroy_graph(driver().end_capture(stream.native()));
  EXPECT_EQ(generator().offset(), offset);
}

}  // namespace
}  // namespace gantry
