// What the tests of Graph share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include <gantry/streams/graph.hpp>
#include <gantry/tensor/factories.hpp>

#include "tests/support/device_fixture.hpp"

namespace gantry::testing {

class GraphTest : public DeviceTest {
 protected:
  const Device device_ = Device::cuda(0);
  const TensorOptions options_{.dtype = DType::f32, .device = device_};

  // `count` values, all equal.
  [[nodiscard]] Tensor equal(float value, std::int64_t count = 1000) const {
    return full({count}, value, options_);
  }
  // The value of all elements; fails if they differ.
  static float value_of(const Tensor& tensor) {
    const auto values = tensor.to_vector<float>();
    EXPECT_EQ(values, std::vector<float>(values.size(), values.at(0)));
    return values.at(0);
  }
};

}  // namespace gantry::testing
