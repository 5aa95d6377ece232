// One test for each row of docs/reference/torch-cuda-map.md. check.torch_map finds each expression
// of a row in the body of its test.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <gantry/gantry.hpp>

#include "tests/support/device_fixture.hpp"
#include "tests/support/temporary_folder.hpp"

namespace gantry::testing {

class TorchCudaMapTest : public DeviceTest {
 protected:
  // The number of NVML, which real GPUs have; simulated devices say that they have none.
  template <class Read>
  static void expect_measured(Read read) {
    try {
      EXPECT_GE(read(), 0);
    } catch (const NotSupported& error) {
      EXPECT_NE(platform(), Platform::cuda) << error.what();
    }
  }
};

}  // namespace gantry::testing
