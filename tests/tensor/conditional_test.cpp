// Conditions in graphs beside the same program, run eagerly.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/extend/driver.hpp>
#include <gantry/memory/caching_allocator.hpp>
#include <gantry/memory/stats.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/streams/owned_stream.hpp>
#include <gantry/streams/stream_guard.hpp>
#include <gantry/tensor/conditional.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/graphed.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>

#include "streams/stream_clock.hpp"
#include "tests/streams/graph_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry {
namespace {

class ConditionalTest : public testing::GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    if (!driver().supports_conditions(0)) GTEST_SKIP() << "the driver has no conditional nodes";
  }

  template <class E>
  static void expect_error(const std::function<void()>& call, const char* text) {
    EXPECT_THAT(testing::message_of<E>(call), ::testing::HasSubstr(text));
  }

  [[nodiscard]] Tensor flag(int value, DType dtype = DType::i32) const {
    return full({}, value, {.dtype = dtype, .device = device_});
  }
};

TEST_F(ConditionalTest, ABodyRunsInTheReplaysWhoseFlagIsSet) {
  for (const DType dtype : {DType::bool_, DType::i32}) {
    const Tensor is_set = flag(0, dtype);
    const Tensor out = equal(1);
    Graph graph;
    {
      const GraphCapture capture(graph);
      graph_if(is_set, [&] {
        EXPECT_NE(Stream::current(), capture.stream());
        out.mul_(10);
      });
      EXPECT_EQ(Stream::current(), capture.stream());
      out.add_(1);
    }
    float expected = 1;
    for (const int value : {1, 0, 1, 1}) {
      is_set.fill_(value);
      graph.replay();
      expected = (value != 0 ? 10 * expected : expected) + 1;
      EXPECT_EQ(value_of(out), expected);
    }
  }
}

TEST_F(ConditionalTest, ALoopEndsWhenItsBodyClearsTheFlag) {
  const Tensor x = equal(1000);
  const Tensor rounds = equal(0, 1);
  const Tensor goes_on = flag(0, DType::bool_);
  const auto halve = [&] {
    goes_on.copy_(gt(x, 1).any());
    graph_while(goes_on, [&] {
      x.copy_(x * 0.5);
      rounds.add_(1);
      goes_on.copy_(gt(x, 1).any());
    });
  };
  halve();
  EXPECT_EQ(value_of(rounds), 10);
  EXPECT_EQ(value_of(x), 1000.0F / 1024);
  Graph graph;
  {
    const GraphCapture capture(graph);
    halve();
  }
  for (const int power : {0, 3, 12}) {
    x.fill_(1 << power);
    rounds.fill_(0);
    graph.replay();
    EXPECT_EQ(value_of(rounds), power);
    EXPECT_EQ(value_of(x), 1);
  }
}

// A random program over a few tensors: arithmetic with temporaries, branches and counted loops.
class RandomProgram {
 public:
  RandomProgram(std::uint32_t seed, std::vector<Tensor> values, std::vector<Tensor> flags)
      : random_(seed), values_(std::move(values)), flags_(std::move(flags)) {
    for (int i = 0; i < 4; ++i) steps_.push_back(make(2));
  }
  void run() const { run(steps_); }

 private:
  enum class Kind : std::uint8_t { add, mix, keep, branch, loop };
  struct Step {
    Kind kind = Kind::add;
    std::size_t to = 0, from = 0;
    float number = 0;
    int rounds = 0;
    std::vector<Step> body;
  };

  std::size_t pick(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }
  Step make(int depth) {
    Step step{.kind = static_cast<Kind>(pick(depth > 0 ? 5 : 3)),
              .to = pick(values_.size()),
              .from = pick(values_.size()),
              .number = static_cast<float>(1 + pick(3)),
              .rounds = static_cast<int>(pick(4)),
              .body = {}};
    if (step.kind >= Kind::branch) {
      for (std::size_t i = 0; i < 3; ++i) step.body.push_back(make(depth - 1));
    }
    return step;
  }
  void run(const std::vector<Step>& steps) const {
    for (const Step& step : steps) run(step);
  }
  void run(const Step& step) const {
    const Tensor& to = values_[step.to];
    const Tensor& from = values_[step.from];
    switch (step.kind) {
      case Kind::add:
        to.add_(remainder(from, 7) + step.number);
        return;
      case Kind::mix: {
        const Tensor sum = from + to;
        const Tensor product = sum * step.number;
        to.copy_(remainder(product - from, 101));
        return;
      }
      case Kind::keep: {
        Tensor kept = remainder(from, 13);
        for (int i = 0; i < 3; ++i) kept = kept + 1;
        to.copy_(kept);
        return;
      }
      case Kind::branch: {
        const Tensor is_odd = gt(remainder(from.narrow(0, 0, 1), 2), 0.5);
        graph_if(is_odd, [&] { run(step.body); });
        return;
      }
      case Kind::loop: {
        const Tensor count = full({1}, step.rounds, flags_.front().options());
        graph_while(count, [&] {
          run(step.body);
          count.sub_(1);
        });
        return;
      }
    }
  }

  std::mt19937 random_;
  std::vector<Tensor> values_;
  std::vector<Tensor> flags_;
  std::vector<Step> steps_;
};

TEST_F(ConditionalTest, RandomProgramsReplayToTheBitsOfTheEagerRun) {
  constexpr std::uint32_t kPrograms = 30;
  for (std::uint32_t seed = 0; seed < kPrograms; ++seed) {
    const auto fresh = [&] { return std::vector{equal(1, 300), equal(2, 300), equal(3, 300)}; };
    const std::vector<Tensor> eager_values = fresh();
    const std::vector<Tensor> values = fresh();
    const RandomProgram eager(seed, eager_values, {flag(0)});
    const RandomProgram captured(seed, values, {flag(0)});
    Graph graph;
    {
      GraphCapture capture(graph);
      captured.run();
      capture.end();
    }
    // Memory of a graph must not be that of anything outside, and the other way round.
    const Tensor outside = equal(5, 100'000);
    for (int replay = 0; replay < 3; ++replay) {
      eager.run();
      graph.replay();
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i].to_vector<float>(), eager_values[i].to_vector<float>())
            << "program " << seed << ", replay " << replay << ", tensor " << i;
      }
    }
    ASSERT_EQ(value_of(outside), 5);
  }
}

TEST_F(ConditionalTest, MemoryOfABodyBelongsToTheGraph) {
  release_unused();
  const Tensor is_set = flag(1);
  const Tensor out = equal(0);
  const std::size_t before = memory::allocated(device_);
  {
    Graph graph;
    Tensor result;
    {
      const GraphCapture capture(graph);
      graph_if(is_set, [&] { result = (out + 3) * 2; });
      out.copy_(result);
    }
    std::vector<Tensor> others;
    for (int i = 0; i < 50; ++i) others.push_back(equal(static_cast<float>(i)));
    graph.replay();
    EXPECT_EQ(value_of(out), 6);
    EXPECT_EQ(value_of(result), 6);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(value_of(others[static_cast<std::size_t>(i)]), i);
  }
  release_unused();
  EXPECT_EQ(memory::allocated(device_), before);
}

// The bodies of two branches run side by side, so what one freed must not serve the other.
TEST_F(ConditionalTest, BodiesOfBranchesShareNoMemory) {
  const Tensor is_set = flag(1);
  const std::vector<Tensor> outs{equal(1), equal(2)};
  std::vector<void*> temporaries;
  Graph graph;
  {
    const GraphCapture capture(graph);
    for (const Tensor& out : outs) {
      const Stream branch = Stream::from_pool(device_);
      branch.wait(capture.stream());
      {
        const StreamGuard guard(branch);
        // The second condition of a branch follows the first, and may use its memory.
        for (int i = 0; i < 2; ++i) {
          graph_if(is_set, [&] {
            const Tensor sum = out + 10;
            temporaries.push_back(sum.data_ptr());
            out.copy_(sum);
          });
        }
      }
      capture.stream().wait(branch);
    }
  }
  ASSERT_EQ(temporaries.size(), 4U);
  EXPECT_EQ(temporaries[0], temporaries[1]);
  EXPECT_EQ(temporaries[2], temporaries[3]);
  EXPECT_NE(temporaries[0], temporaries[2]);
  graph.replay();
  EXPECT_EQ(value_of(outs[0]), 21);
  EXPECT_EQ(value_of(outs[1]), 22);
}

TEST_F(ConditionalTest, DrawsInABodyAreRefused) {
  const Tensor is_set = flag(1);
  const Tensor out = equal(0);
  release_unused();
  const std::size_t before = memory::allocated(device_);
  for (const auto& condition : {graph_if, graph_while}) {
    Graph graph;
    expect_error<CaptureError>(
        [&] {
          const GraphCapture capture(graph);
          out.add_(out + 1);
          condition(is_set, [&] { out.uniform_(); });
        },
        "random: expected a draw outside of graph_if and graph_while, but got one inside");
    EXPECT_FALSE(graph.is_captured());
    // Also in a graph around it, the draw may be before the body.
    {
      const GraphCapture capture(graph);
      out.uniform_();
      graph_if(is_set, [&] { out.fill_(2); });
    }
    graph.replay();
    EXPECT_EQ(value_of(out), 2);
  }
  release_unused();
  EXPECT_EQ(memory::allocated(device_), before);
}

TEST_F(ConditionalTest, AnExceptionOfTheBodySpoilsTheCapture) {
  const Tensor is_set = flag(1);
  const Tensor out = equal(0);
  Graph graph;
  {
    const GraphCapture capture(graph);
    EXPECT_THROW(graph_while(is_set,
                             [&] {
                               out.add_(1);
                               throw std::runtime_error("the body's own");
                             }),
                 std::runtime_error);
  }
  EXPECT_THROW(graph.replay(), CaptureError) << "the loop would never end";
  out.add_(1);
  EXPECT_EQ(value_of(out), 1);
}

// The streams of bodies are noted as captured, as the program's own streams are.
TEST_F(ConditionalTest, BehindACaptureDevicesMayBeSynchronized) {
  const Tensor is_set = flag(1);
  const Tensor out = equal(0);
  const OwnedStream own(device_);
  Graph graph;
  {
    const GraphCapture capture(graph);
    graph_if(is_set, [&] { out.add_(1); });
  }
  EXPECT_TRUE(may_synchronize_devices()) << "a body that has ended";
  Graph spoilt;
  {
    const GraphCapture capture(spoilt);
    EXPECT_THROW(graph_if(is_set, [] { throw std::runtime_error("the body's own"); }),
                 std::runtime_error);
  }
  EXPECT_TRUE(may_synchronize_devices()) << "a body that has thrown";
  Graph forked;
  {
    const GraphCapture capture(forked);
    own.stream().wait(capture.stream());
    {
      const StreamGuard guard(own.stream());
      out.add_(1);
    }
    capture.stream().wait(own.stream());
  }
  EXPECT_TRUE(may_synchronize_devices()) << "a stream of the program that was forked";
}

TEST_F(ConditionalTest, AWaitOfTheHostInTheBodyIsACaptureError) {
  const Tensor is_set = flag(1);
  const Tensor out = equal(0, 1);
  Graph graph;
  EXPECT_THROW(
      {
        const GraphCapture capture(graph);
        graph_if(is_set, [&] { (void)out.item<float>(); });
      },
      CudaError);
  EXPECT_FALSE(graph.is_captured());
  expect_error<CaptureError>(
      [&] {
        const GraphCapture capture(graph);
        graph_if(is_set, [&] { EXPECT_THROW((void)out.item<float>(), CudaError); });
      },
      "graph_if: failed to capture the body of a condition: ");
  EXPECT_FALSE(graph.is_captured());
}

TEST_F(ConditionalTest, OutsideOfCapturesTheHostReadsTheFlag) {
  const Tensor x = equal(8, 1);
  const Tensor count = flag(3);
  Graphed cube = make_graphed(
      [&](std::span<const Tensor> inputs) {
        const Tensor product = ones_like(inputs[0]);
        const Tensor left = count.clone();
        graph_while(left, [&] {
          product.mul_(inputs[0]);
          left.sub_(1);
        });
        return std::vector<Tensor>{product};
      },
      {x});
  EXPECT_EQ(value_of(cube({equal(2, 1)})[0]), 8);
  count.fill_(5);
  EXPECT_EQ(value_of(cube({equal(2, 1)})[0]), 32);
}

TEST_F(ConditionalTest, WrongFlagsAreRefusedBeforeAnythingIsCaptured) {
  const auto body = [] { FAIL() << "a body of a wrong flag"; };
  Graph graph;
  const GraphCapture capture(graph);
  expect_error<InvalidArgument>([&] { graph_if(Tensor(), body); }, "graph_if: ");
  expect_error<InvalidArgument>([&] { graph_while(zeros({}, {.dtype = DType::i32}), body); },
                                "graph_while: expected flag on a device, but got it on the CPU");
  expect_error<ShapeError>(
      [&] { graph_if(empty({2}, {.dtype = DType::i32, .device = device_}), body); },
      "graph_if: expected flag with one element, but got sizes [2]");
  expect_error<DTypeError>([&] { graph_if(empty({}, {.device = device_}), body); },
                           "graph_if: expected flag of type Bool or Int, but got Float");
}

TEST_F(ConditionalTest, AGraphWithConditionsCannotBeUpdatedOrCaptured) {
  const Tensor is_set = flag(1);
  const Tensor out = equal(0);
  const auto capture = [&](Graph& graph) {
    const GraphCapture scope(graph);
    graph_if(is_set, [&] { out.add_(1); });
  };
  Graph graph;
  Graph other;
  capture(graph);
  capture(other);
  EXPECT_THROW(graph.update(other), InvalidArgument);
  Graph around;
  EXPECT_THROW(
      {
        const GraphCapture scope(around);
        graph.replay();
      },
      CudaError);
  graph.replay();
  EXPECT_EQ(value_of(out), 1);
}

}  // namespace
}  // namespace gantry
