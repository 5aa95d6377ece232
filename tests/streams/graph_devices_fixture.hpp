// What the tests of graphs of several devices share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include <gantry/extend/driver.hpp>
#include <gantry/streams/graph.hpp>

#include "tests/streams/graph_fixture.hpp"

namespace gantry::testing {

class GraphDevicesTest : public GraphTest {
 protected:
  const Device other_ = Device::cuda(1);

  /// Zeros, by default so many that work on them takes a moment. No work of their making is under
  /// way.
  [[nodiscard]] static Tensor on(Device device, std::int64_t count = 1 << 18) {
    Tensor made = zeros({count}, {.dtype = DType::f32, .device = device});
    synchronize(device);
    return made;
  }
  static void capture(Graph& graph, const std::vector<Device>& devices,
                      const std::function<void()>& work) {
    GraphCapture capture(graph, {.devices = devices});
    work();
    capture.end();
  }
  /// Checks that a replay of out.copy_(in) runs behind earlier work of the current streams of both
  /// devices, and before their later work.
  static void expect_ordered(const Tensor& in, const Tensor& out,
                             const std::function<void()>& replay) {
    for (int i = 1; i <= 10; ++i) {
      in.fill_(i);
      out.fill_(-1);
      replay();
      EXPECT_EQ(value_of(out), static_cast<float>(i)) << "replay " << i;
      in.fill_(-2);
    }
  }
};

}  // namespace gantry::testing
