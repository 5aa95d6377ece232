// Calls of generators in captures: replays do what the eager program does.
#include <cstdint>
#include <span>
#include <vector>

#include <gantry/kernels/philox.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/graphed.hpp>

#include "tests/kernels/own_kernels.hpp"
#include "tests/tensor/random/captured_generator_fixture.hpp"

namespace gantry {
namespace {

using testing::CapturedGeneratorTest;
using testing::Values;

TEST_F(CapturedGeneratorTest, CheckpointsDrawAgain) {
  expect_as_eager([&] {
    const Tensor before = draw();
    const Tensor state = get_rng_state(device_);
    const Tensor first = draw();
    set_rng_state(state, device_);
    const Tensor again = draw();
    return std::vector{before, first, again, draw()};
  });
  // The first of two nested checkpoints is restored last.
  expect_as_eager([&] {
    const Tensor outer = get_rng_state(device_);
    std::vector<Tensor> all{draw()};
    const Tensor inner = get_rng_state(device_);
    all.push_back(draw());
    all.push_back(draw());
    set_rng_state(inner, device_);
    all.push_back(draw());
    set_rng_state(outer, device_);
    all.push_back(draw());
    set_rng_state(inner, device_);
    return all;
  });
}

TEST_F(CapturedGeneratorTest, CheckpointsOfOwnGeneratorsAndOfAllDevices) {
  Generator other(device_, 5);
  expect_as_eager(
      [&] {
        const Tensor state = other.get_state();
        const Tensor first = draw(other);
        other.set_state(state);
        return std::vector{first, draw(other), draw(other)};
      },
      other);
  expect_as_eager([&] {
    const std::vector<Tensor> states = get_rng_state_all();
    const Tensor first = draw();
    set_rng_state_all(states);
    return std::vector{first, draw()};
  });
}

TEST_F(CapturedGeneratorTest, AdvancesAreLeftOut) {
  expect_as_eager([&] {
    const Tensor first = draw();
    const std::uint64_t before = generator().offset();
    EXPECT_EQ(generator().advance(5), before);
    EXPECT_EQ(generator().offset(), before + 5);
    return std::vector{first, draw()};
  });
  expect_as_eager([&] {
    generator().advance();
    return std::vector{draw()};
  });
  // A graph that only advances.
  expect_as_eager([&] {
    generator().advance(3);
    return std::vector<Tensor>{ones({1}, device_)};
  });
}

TEST_F(CapturedGeneratorTest, OffsetsAndStatesAreTheEagerOnes) {
  Generator other(device_, 5);
  other.set_offset(40);
  Graph graph;
  {
    const GraphCapture capture(graph);
    EXPECT_EQ(other.offset(), 40U);
    static_cast<void>(draw(other));
    EXPECT_EQ(other.offset(), 41U);
    EXPECT_EQ(other.advance(2), 41U);
    EXPECT_EQ(other.initial_seed(), 5U);
    const Tensor state = other.get_state();
    EXPECT_THAT(state.view(i64).to_vector<std::int64_t>(), ::testing::ElementsAre(5, 43));
    static_cast<void>(draw(other));
    EXPECT_EQ(other.offset(), 44U);
    other.set_state(state);
    EXPECT_EQ(other.offset(), 43U);
  }
  EXPECT_EQ(other.offset(), 40U);
  EXPECT_THAT(other.get_state().view(i64).to_vector<std::int64_t>(), ::testing::ElementsAre(5, 40));
}

TEST_F(CapturedGeneratorTest, KernelsReserveNewOffsetsAtEachReplay) {
  const auto words = [&](std::uint64_t count) {
    const Tensor out = empty({static_cast<std::int64_t>(count) * 6}, device_);
    own::draw_words(Stream::current(device_), out.numel(), generator().reserve(count), 6,
                    out.data_ptr<float>());
    return out;
  };
  expect_as_eager([&] { return std::vector{words(1)}; });
  expect_as_eager([&] {
    const Tensor first = draw();
    const Tensor second = words(4);
    return std::vector{first, second, draw(), words(2)};
  });
  // Eager positions equal those of take().
  Generator twin = generator().clone();
  const PhiloxPosition reserved = generator().reserve(3);
  const Generator::Position taken = twin.take(3);
  EXPECT_EQ(reserved.replay, nullptr);
  EXPECT_EQ(reserved.seed, taken.seed);
  EXPECT_EQ(reserved.offset, taken.offset);
  EXPECT_EQ(generator().offset(), twin.offset());
  EXPECT_EQ(Generator(Device::cpu(), 3).reserve().seed, 3U);
}

TEST_F(CapturedGeneratorTest, ReservedOffsetsFollowSeedsBetweenReplays) {
  const Tensor out = empty({6}, device_);
  Graph graph;
  {
    const GraphCapture capture(graph);
    own::draw_words(capture.stream(), 6, generator().reserve(), 6, out.data_ptr<float>());
  }
  manual_seed(1);
  graph.replay();
  const std::vector<float> first = out.to_vector<float>();
  graph.replay();
  EXPECT_NE(out.to_vector<float>(), first);
  manual_seed(1);
  graph.replay();
  EXPECT_EQ(out.to_vector<float>(), first);
}

TEST_F(CapturedGeneratorTest, ClonesFollowTheirOrigin) {
  expect_as_eager([&] {
    const Tensor first = draw();
    Generator copy = generator().clone();
    EXPECT_EQ(copy.offset(), generator().offset());
    const Tensor second = draw(copy);
    const Tensor third = draw(copy);
    EXPECT_EQ(copy.offset(), generator().offset() + 2);
    return std::vector{first, second, third, draw(), draw()};
  });
  // A clone of a clone, and a clone whose origin draws nothing else.
  expect_as_eager([&] {
    Generator copy = generator().clone();
    const Tensor first = draw(copy);
    Generator other = copy.clone();
    return std::vector{first, draw(other), draw(copy)};
  });
  // They go back to each other's states.
  expect_as_eager([&] {
    Generator copy = generator().clone();
    const Tensor begin = generator().get_state();
    const Tensor first = draw(copy);
    copy.set_state(begin);
    const Tensor again = draw(copy);
    const Tensor next = draw(copy);
    generator().set_state(copy.get_state());
    return std::vector{first, again, next, draw()};
  });
  expect_refused("manual_seed: ", [&] { generator().clone().manual_seed(1); });
}

TEST_F(CapturedGeneratorTest, GeneratorsThatACaptureMakesRepeat) {
  expect_as_eager([&] {
    Generator made(device_, 5);
    const Tensor first = draw(made);
    made.manual_seed(6);
    const Tensor second = draw(made);
    made.set_offset(3);
    const Tensor third = draw(made);
    Generator part = made.fork(2);
    Generator copy = made.clone();
    return std::vector{first, second, third, draw(part), draw(copy), draw()};
  });
  // After the capture such a generator is like any other.
  Generator made = Generator(Device::cpu());
  Graph first;
  {
    const GraphCapture capture(first);
    made = Generator(device_, 5);
  }
  expect_as_eager([&] { return std::vector{draw(made), draw(made)}; }, made);
}

TEST_F(CapturedGeneratorTest, SeveralGeneratorsInOneCapture) {
  Generator a(device_, 5);
  Generator b(device_, 5);
  Generator a_twin(device_, 5);
  Generator b_twin(device_, 5);
  const auto work = [&](Generator& one, Generator& two) {
    const Tensor state = one.get_state();
    std::vector<Tensor> all{draw(one), draw(two), draw()};
    one.set_state(state);
    two.advance(2);
    all.push_back(draw(one));
    all.push_back(draw(two));
    EXPECT_ERROR(two.set_state(state), CaptureError, "set_state");
    return all;
  };
  Graph graph;
  std::vector<Tensor> captured;
  {
    const GraphCapture capture(graph);
    captured = work(a, b);
  }
  manual_seed(1);
  Generator default_twin = generator().clone();
  for (int round = 0; round < 3; ++round) {
    graph.replay();
    const std::uint64_t first = a_twin.offset();
    std::vector<Tensor> eager{draw(a_twin), draw(b_twin), draw(default_twin)};
    a_twin.set_offset(first);
    b_twin.advance(2);
    eager.push_back(draw(a_twin));
    eager.push_back(draw(b_twin));
    EXPECT_EQ(values(captured), values(eager)) << round;
  }
  EXPECT_EQ(a.offset(), a_twin.offset());
  EXPECT_EQ(b.offset(), b_twin.offset());
}

TEST_F(CapturedGeneratorTest, OneGeneratorInSeveralCaptures) {
  Graph first, second;
  std::vector<Tensor> of_first, of_second;
  manual_seed(1);
  {
    const GraphCapture capture(first);
    const Tensor state = generator().get_state();
    of_first.push_back(draw());
    {
      const GraphCapture inner(second, {.stream = Stream::from_pool(device_)});
      EXPECT_EQ(generator().offset(), 0U) << "each capture has its own";
      generator().advance(3);
      of_second.push_back(draw());
      EXPECT_ERROR(generator().set_state(state), CaptureError, "set_state");
    }
    generator().set_state(state);
    of_first.push_back(draw());
  }
  manual_seed(2);
  const Tensor a = draw();
  generator().advance(3);
  const Tensor b = draw();
  manual_seed(2);
  first.replay();
  second.replay();
  EXPECT_EQ(values(of_first), values({a, a}));
  EXPECT_EQ(values(of_second), values({b}));
  EXPECT_EQ(generator().offset(), 5U);
}

TEST_F(CapturedGeneratorTest, SeveralDevicesInOneCapture) {
  GANTRY_REQUIRE_DEVICES(2);
  const Device other = Device::cuda(1);
  Generator& there = default_generator(other);
  const Stream side = Stream::from_pool(other);
  std::vector<Tensor> drawn;
  Graph graph;
  there.manual_seed(5);
  {
    const GraphCapture capture(graph);
    drawn.push_back(draw());
    // A device whose current stream is not captured is outside.
    there.manual_seed(6);
    EXPECT_EQ(there.take(2).offset, 0U);
    side.wait(capture.stream());
    {
      const StreamGuard guard(side);
      const Tensor state = get_rng_state(other);
      drawn.push_back(rand({5}, other));
      set_rng_state(state, other);
      drawn.push_back(rand({5}, other));
      EXPECT_ERROR(there.manual_seed(1), CaptureError, "manual_seed");
    }
    // Its captured draws come before a seed, also where another stream is current.
    EXPECT_ERROR(there.manual_seed(1), CaptureError, "manual_seed");
    EXPECT_ERROR(there.set_offset(1), CaptureError, "set_offset");
    EXPECT_ERROR(set_rng_state(there.get_state(), other), CaptureError, "set_rng_state");
    capture.stream().wait(side);
  }
  EXPECT_EQ(there.initial_seed(), 6U);
  EXPECT_EQ(there.offset(), 2U);
  manual_seed_all(8);
  const Tensor here = draw();
  const Tensor beside = rand({5}, other);
  manual_seed_all(8);
  graph.replay();
  synchronize(device_);
  EXPECT_EQ(values(drawn), values({here, beside, beside}));
  EXPECT_EQ(there.offset(), 1U);
}

TEST_F(CapturedGeneratorTest, GraphedFunctionsCheckpoint) {
  const Tensor sample = ones({5}, device_);
  const auto step = [&](std::span<const Tensor> inputs) {
    const Tensor state = get_rng_state(device_);
    const Tensor first = inputs[0].mul(draw());
    set_rng_state(state, device_);
    return std::vector<Tensor>{first, inputs[0].mul(draw())};
  };
  manual_seed(3);
  Graphed graphed = make_graphed(step, {sample});
  EXPECT_EQ(generator().offset(), 0U);
  std::vector<Values> expected;
  for (int i = 0; i < 2; ++i) expected.push_back(values(step(std::vector<Tensor>{sample})));
  manual_seed(3);
  for (const Values& of_call : expected) EXPECT_EQ(values(graphed({sample})), of_call);
  EXPECT_ERROR(make_graphed(
                   [&](std::span<const Tensor> inputs) {
                     manual_seed(4);
                     return std::vector<Tensor>{inputs[0].mul(draw())};
                   },
                   {sample}),
               CaptureError, "manual_seed: ");
  EXPECT_EQ(generator().initial_seed(), 3U);
  EXPECT_EQ(generator().offset(), 2U);
}

TEST_F(CapturedGeneratorTest, GraphsThatDrawNothingMayBePartOfAnother) {
  const Tensor out = zeros({1}, device_);
  Graph inner;
  {
    const GraphCapture capture(inner);
    static_cast<void>(generator().offset());
    static_cast<void>(get_rng_state(device_));
    out.add_(1);
  }
  Graph outer;
  {
    const GraphCapture capture(outer);
    inner.replay();
  }
  outer.replay();
  EXPECT_EQ(out.item<float>(), 1);
}

}  // namespace
}  // namespace gantry
