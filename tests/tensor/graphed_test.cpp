#include <gantry/tensor/graphed.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/tensor/elementwise.hpp>
#include <gantry/tensor/factories.hpp>
#include <gantry/tensor/linalg.hpp>
#include <gantry/tensor/random.hpp>
#include <gantry/tensor/reductions.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry {
namespace {

class GraphedTest : public testing::DeviceTest {
 protected:
  const Device device_ = Device::cuda(0);
};

std::vector<Tensor> layer(std::span<const Tensor> inputs) {
  const Tensor hidden = (inputs[0].matmul(inputs[1]) + inputs[2]).relu();
  return {hidden, hidden.sum(1)};
}

TEST_F(GraphedTest, GivesTheResultsOfTheFunction) {
  manual_seed(1);
  const auto random_inputs = [&] {
    return std::vector<Tensor>{randn({8, 16}, device_), randn({16, 4}, device_),
                               randn({4}, device_)};
  };
  Graphed graphed = make_graphed(layer, random_inputs());
  for (int i = 0; i < 3; ++i) {
    const std::vector<Tensor> inputs = random_inputs();
    const std::vector<Tensor> expected = layer(inputs);
    const std::vector<Tensor>& outputs = graphed(inputs);
    ASSERT_EQ(outputs.size(), 2U);
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(outputs[k].to_vector<float>(), expected[k].to_vector<float>()) << i;
    }
  }
  const void* address = graphed(random_inputs())[0].data_ptr();
  EXPECT_EQ(graphed(random_inputs())[0].data_ptr(), address) << "outputs are the capture's";
}

TEST_F(GraphedTest, CallsOnSeveralStreamsFollowEachOther) {
  const Tensor total = zeros({50'000}, device_);
  Graphed graphed = make_graphed(
      [&](std::span<const Tensor> inputs) {
        total.add_(inputs[0]);
        return std::vector<Tensor>{};
      },
      {total});
  total.zero_();
  std::vector<Stream> streams = {Stream::from_pool(device_), Stream::from_pool(device_)};
  for (const Stream& stream : streams) stream.wait(Stream::current(device_));
  for (int i = 0; i < 10; ++i) {
    const StreamGuard guard(streams[static_cast<std::size_t>(i % 2)]);
    graphed({full({50'000}, i, {.dtype = DType::f32, .device = device_})});
  }
  synchronize(device_);
  EXPECT_EQ(total.to_vector<float>(), std::vector<float>(50'000, 45));
}

TEST_F(GraphedTest, MayBeCapturedWhetherItRanOrNot) {
  const Tensor total = zeros({4}, device_);
  Graphed graphed = make_graphed(
      [&](std::span<const Tensor> inputs) {
        total.add_(inputs[0]);
        return std::vector<Tensor>{};
      },
      {total});
  const Tensor one = ones({4}, device_);
  total.zero_();
  for (int round = 1; round <= 3; ++round) {
    Graph outer;
    {
      GraphCapture capture(outer);
      graphed({one});
      capture.end();
    }
    outer.replay();
    outer.replay();
    graphed({one});  // also what it noted of the capture does not matter
    EXPECT_EQ(total[0].item<float>(), static_cast<float>(3 * round));
  }
}

TEST_F(GraphedTest, DrawsAsTheEagerProgram) {
  const auto noise = [](std::span<const Tensor> inputs) {
    return std::vector<Tensor>{inputs[0] + randn_like(inputs[0])};
  };
  const Tensor x = ones({1000}, device_);
  manual_seed(4);
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 3; ++i) expected.push_back(noise({{x}})[0].to_vector<float>());
  manual_seed(4);
  Graphed graphed = make_graphed(noise, {x}, {.warm_up = 2});
  for (const auto& values : expected) EXPECT_EQ(graphed({x})[0].to_vector<float>(), values);
}

TEST_F(GraphedTest, RejectsInputsUnlikeTheSamples) {
  const Tensor x = ones({2, 3}, device_);
  int calls = 0;
  Graphed graphed = make_graphed(
      [&](std::span<const Tensor> inputs) {
        ++calls;
        return std::vector<Tensor>{inputs[0] * 2};
      },
      {x});
  EXPECT_EQ(calls, 2);
  graphed({x});
  EXPECT_ERROR(graphed({}), InvalidArgument, "graphed: expected 1 inputs, but got 0");
  EXPECT_ERROR(graphed({x, x}), InvalidArgument, "graphed: expected 1 inputs, but got 2");
  EXPECT_ERROR(graphed({Tensor()}), InvalidArgument, "inputs[0]");
  EXPECT_ERROR(graphed({ones({3, 2}, device_)}), ShapeError,
               "graphed: expected inputs[0] of sizes [2, 3], but got [3, 2]");
  EXPECT_ERROR(graphed({ones({2, 3}, {.dtype = DType::f64, .device = device_})}), DTypeError,
               "graphed: expected inputs[0] of type ");
  EXPECT_ERROR(graphed({ones({2, 3})}), DeviceMismatchError,
               "graphed: expected inputs[0] on cuda:0, but got it on cpu");
  EXPECT_EQ(graphed.graph().device(), device_);
  EXPECT_EQ(calls, 2);

  const auto same = [](std::span<const Tensor> inputs) {
    return std::vector<Tensor>(inputs.begin(), inputs.end());
  };
  EXPECT_ERROR(make_graphed(same, std::vector<Tensor>{}), InvalidArgument,
               "make_graphed: expected at least one sample");
  EXPECT_ERROR(make_graphed(same, {ones({2})}), InvalidArgument,
               "make_graphed: expected samples on a device");
  EXPECT_ERROR(make_graphed(same, {x, ones({2})}), DeviceMismatchError,
               "make_graphed: expected all samples on cuda:0");
  EXPECT_ERROR(make_graphed(same, {x}, {.warm_up = -1}), InvalidArgument, "warm_up >= 0");
}

TEST_F(GraphedTest, AFunctionThatCannotBeCapturedLeavesNothingBehind) {
  const Tensor x = ones({4}, device_);
  EXPECT_THROW((void)make_graphed(
                   [](std::span<const Tensor> inputs) {
                     (void)inputs[0].sum().item<float>();
                     return std::vector<Tensor>{};
                   },
                   {x}),
               Error);
  int calls = 0;
  EXPECT_THROW((void)make_graphed(
                   [&](std::span<const Tensor>) -> std::vector<Tensor> {
                     if (++calls == 2) throw std::runtime_error("the function");
                     return {};
                   },
                   {x}),
               std::runtime_error);
  EXPECT_FALSE(is_current_stream_capturing());
  Graphed works = make_graphed(
      [](std::span<const Tensor> inputs) { return std::vector<Tensor>{inputs[0] + 1}; }, {x});
  EXPECT_EQ(works({x})[0].to_vector<float>(), std::vector<float>(4, 2));
}

}  // namespace
}  // namespace gantry
