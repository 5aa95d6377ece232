// Captured work of generators beside the same work, submitted eagerly.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <gantry/core/error.hpp>
#include <gantry/streams/graph.hpp>
#include <gantry/tensor/random.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/expect_error.hpp"

namespace gantry::testing {

using Values = std::vector<std::vector<float>>;

class CapturedGeneratorTest : public DeviceTest {
 protected:
  [[nodiscard]] Tensor draw() const { return rand({5}, device_); }
  [[nodiscard]] Tensor draw(Generator& generator) const { return rand({5}, device_, generator); }
  [[nodiscard]] Generator& generator() const { return default_generator(device_); }

  static Values values(const std::vector<Tensor>& tensors) {
    Values all;
    for (const Tensor& tensor : tensors) all.push_back(tensor.to_vector<float>());
    return all;
  }
  // Checks that replays of `work` draw what eager calls draw, from several seeds, and leave
  // `generator` where those leave it.
  void expect_as_eager(const std::function<std::vector<Tensor>()>& work,
                       Generator& generator) const {
    Graph graph;
    std::vector<Tensor> captured;
    generator.manual_seed(99);
    generator.set_offset(17);
    {
      const GraphCapture capture(graph);
      captured = work();
    }
    EXPECT_EQ(generator.initial_seed(), 99U);
    EXPECT_EQ(generator.offset(), 17U) << "the capture moves the generator";
    for (const std::uint64_t seed : {3U, 99U, 4U}) {
      std::vector<Values> expected;
      generator.manual_seed(seed);
      for (int round = 0; round < 3; ++round) expected.push_back(values(work()));
      const std::uint64_t offset = generator.offset();
      generator.manual_seed(seed);
      for (int round = 0; round < 3; ++round) {
        graph.replay();
        EXPECT_EQ(values(captured), expected[static_cast<std::size_t>(round)])
            << "seed " << seed << ", round " << round;
      }
      EXPECT_EQ(generator.offset(), offset);
    }
  }
  void expect_as_eager(const std::function<std::vector<Tensor>()>& work) const {
    expect_as_eager(work, generator());
  }

  // Checks that `call`, in the middle of a capture, throws a CaptureError that begins with `text`,
  // changes nothing and leaves the capture usable.
  void expect_refused(const std::string& text, const std::function<void()>& call) const {
    SCOPED_TRACE(text);
    generator().manual_seed(7);
    const Values expected = values({draw(), draw()});
    generator().manual_seed(7);
    Graph graph;
    std::vector<Tensor> drawn;
    {
      const GraphCapture capture(graph);
      drawn.push_back(draw());
      const std::string error = message_of<CaptureError>(call);
      EXPECT_THAT(error, ::testing::StartsWith(text));
      EXPECT_EQ(generator().offset(), 1U);
      drawn.push_back(draw());
    }
    EXPECT_EQ(generator().initial_seed(), 7U);
    EXPECT_EQ(generator().offset(), 0U);
    graph.replay();
    EXPECT_EQ(values(drawn), expected);
    EXPECT_EQ(generator().offset(), 2U);
  }

  const Device device_ = Device::cuda(0);
};

}  // namespace gantry::testing
